package orbittest_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// childRole makes this test binary a process of its own.
const childRole = "ORBIT_TEST_CHILD"

// drainingChild runs four consumers of 25 handlers each until SIGTERM. In two of them handlers last until some
// time after the signal, so that all run when it comes and finish one after another; the other two are still
// busy connecting then, and have received without starting anything.
func drainingChild() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var mu sync.Mutex
	started := 0
	handler := func(context.Context, *orbit.Delivery) error {
		mu.Lock()
		started++
		turn := started
		mu.Unlock()
		fmt.Println("started")
		<-ctx.Done()
		time.Sleep(time.Duration(turn) * 10 * time.Millisecond)
		fmt.Println("finished")
		return nil
	}
	var running sync.WaitGroup
	errs := make(chan error, 4)
	for n := range 4 {
		running.Add(1)
		go func() {
			defer running.Done()
			errs <- orbit.Consumer{URL: os.Getenv("CHILD_URL"), Token: os.Getenv("CHILD_TOKEN"), SubscriptionID: os.Getenv("CHILD_SUBSCRIPTION"),
				Concurrency: 25, DrainTimeout: 15 * time.Second, Handler: handler,
				OnConnect: func(orbit.EventWelcome) {
					if n >= 2 {
						<-ctx.Done()
					}
				}}.Run(ctx)
		}()
	}
	running.Wait()
	for range 4 {
		if err := <-errs; err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

// child is this process's environment with what a child needs.
func childEnv(role string, add ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ORBIT_") {
			env = append(env, v)
		}
	}
	return append(append(env, childRole+"="+role), add...)
}
