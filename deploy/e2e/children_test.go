package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// childRole makes this test binary one of the workers below.
const childRole = "ORBIT_E2E_ROLE"

var children = map[string]func() error{"steady": steady, "late": late}

func child(role string) int {
	if err := children[role](); err != nil {
		fmt.Println("ended", err)
		return 1
	}
	return 0
}

// worker starts one of them.
func (f *fleet) worker(role, gateway, queue string, env ...string) *process {
	f.t.Helper()
	return startChild(f.t, role, append(env, "ORBIT_GATEWAY_URL="+gateway, "ORBIT_TOKEN="+f.vars["ORBIT_TOKEN"], "ORBIT_QUEUE_ID="+queue)...)
}

func startChild(t *testing.T, role string, env ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProcess(t, self, nil, append(env, childRole+"="+role)...)
}

// steady works as a deployment does: it says what it executes and stops cleanly at SIGTERM.
func steady() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	w := orbit.Worker{
		URL: os.Getenv("ORBIT_GATEWAY_URL"), Token: os.Getenv("ORBIT_TOKEN"), QueueID: os.Getenv("ORBIT_QUEUE_ID"), Name: "steady", Concurrency: 8,
		Handler: func(_ context.Context, a *orbit.Assignment) (json.RawMessage, error) {
			fmt.Println("ran", a.Task.ID)
			time.Sleep(time.Duration(10+rand.IntN(50)) * time.Millisecond)
			return json.RawMessage(`1`), nil
		},
		OnConnect: func(orbit.WorkerWelcome) { fmt.Println("connected", "now") },
		OnError:   func(e orbit.AttemptError) { fmt.Println("error", e) },
		Backoff:   orbit.Backoff{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond},
	}
	return w.Run(ctx)
}

// late holds so many tasks until it is told to go on, and then completes them whatever has happened.
func late() error {
	n, err := strconv.Atoi(os.Getenv("ORBIT_E2E_HOLD"))
	if err != nil {
		return err
	}
	ctx := context.Background()
	options := orbit.WorkerOptions{URL: os.Getenv("ORBIT_GATEWAY_URL"), Token: os.Getenv("ORBIT_TOKEN"), QueueID: os.Getenv("ORBIT_QUEUE_ID"), Name: "late", Capacity: n}
	conn, err := orbit.DialWorker(ctx, options)
	if err != nil {
		return err
	}
	var held []*orbit.Assignment
	for range n {
		a, err := conn.Receive(ctx)
		if err != nil {
			return err
		}
		held = append(held, a)
		fmt.Println("holding", a.Task.ID)
	}
	if err := conn.Drain(ctx); err != nil { // a refused outcome frees its place, and nothing may come for it
		return err
	}
	fmt.Println("drained", "now")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for _, a := range held {
		_, err := conn.Complete(ctx, a.Proof(), json.RawMessage(`"late"`))
		var refused *orbit.Error
		switch {
		case err == nil:
			fmt.Println("accepted", a.Task.ID)
		case errors.As(err, &refused) && refused.Code == orbit.ErrAttemptLeaseLost:
			fmt.Println("lost", a.Task.ID)
		default:
			return fmt.Errorf("complete %s: %w", a.Task.ID, err)
		}
	}
	conn.Close()
	return nil
}
