// Command resource-lifecycle makes a queue and a subscription, uses them, and ends them in the order that loses no
// result: stop the producers, settle the tasks, consume and acknowledge, retire the subscription, retire the queue.
//
//	ORBIT_MANAGEMENT_URL=… ORBIT_GATEWAY_URL=… ORBIT_TOKEN=… go run ./examples/resource-lifecycle
//
// It works only on what it made, and prints the ids. What it makes, and each command with its key before it is sent, is
// kept in a file, so that a run that was interrupted goes on where it was: run it again. Whatever still stands in the way
// is reported with its ids, and the exit code is 1; nothing is ever skipped, cancelled or thrown away to get further.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

func main() {
	file := flag.String("state", "resource-lifecycle.json", "where this run is kept; the events are saved beside it")
	tasks := flag.Int("tasks", 5, "how many tasks to submit")
	wait := flag.Duration("wait", 30*time.Second, "how long to wait for what is under way to settle")
	keep := flag.Bool("keep", false, "make and use the resources and leave them; run again without it to retire them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *file, *tasks, *wait, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "resource-lifecycle:", err)
		fmt.Fprintf(os.Stderr, "nothing was discarded; run again with -state %s to go on\n", *file)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, file string, tasks int, wait time.Duration, keep bool) error {
	client, err := orbit.NewClient(os.Getenv("ORBIT_MANAGEMENT_URL"), os.Getenv("ORBIT_TOKEN"))
	if err != nil {
		return err
	}
	defer client.Close()
	kept, err := openState(file)
	if err != nil {
		return err
	}
	l := &lifecycle{client: client, state: kept, tasks: tasks}
	if err := l.create(ctx); err != nil {
		return err
	}
	stop, err := l.startServing(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := l.produce(ctx); err != nil { // when it returns, the producers are stopped
		return err
	}
	deadline, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := l.settle(deadline); err != nil {
		return errors.Join(err, l.report(ctx))
	}
	if keep {
		fmt.Println("kept")
		return l.consumed(deadline)
	}
	if err := l.retire(deadline); err != nil {
		return errors.Join(err, l.report(ctx))
	}
	fmt.Println("retired")
	return nil
}
