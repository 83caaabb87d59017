package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// stormTime is how long the storm blows; ORBIT_SOAK_MINUTES makes it longer for a run by hand.
func stormTime(t *testing.T) time.Duration {
	text := os.Getenv("ORBIT_SOAK_MINUTES")
	if text == "" {
		return 5 * time.Second
	}
	minutes, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(minutes * float64(time.Minute))
}

// storm is everybody who does something to tasks, at once.
type storm struct {
	f        *fleet
	clients  []*orbit.Client // one a management replica
	gateways []string
	queues   []string
	failed   chan error

	submitted, cancelled, resolved, conflicts atomic.Int64
}

// C1, tasks: submitters, workers, cancels, resolves, walked-away workers and sweeps at once, over two
// gateways and two management replicas. No deadlock reaches a client, and at rest all counts agree.
func TestATaskStormLeavesEverythingInOrder(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	second, gateway := f.management("orbit_management", "ORBIT_SWEEP_INTERVAL=100ms"), f.gateway("orbit_gateway")
	client, err := orbit.NewClient(second.url, f.vars["ORBIT_TOKEN"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	ctx, cancel := context.WithTimeout(context.Background(), stormTime(t)+2*patience)
	defer cancel()
	s := &storm{
		f: f, clients: []*orbit.Client{f.client, client}, gateways: []string{f.vars["ORBIT_GATEWAY_URL"], gateway.url},
		queues: []string{f.shortQueue(ctx, "a"), f.shortQueue(ctx, "b")}, failed: make(chan error, 100),
	}
	blowing, calm := context.WithTimeout(ctx, stormTime(t))
	defer calm()
	resolving, allResolved := context.WithCancel(ctx)
	defer allResolved()
	working, stopWork := context.WithCancel(ctx)
	defer stopWork()
	var storms, workers, resolvers sync.WaitGroup
	for i := range 4 {
		queue, c, url := s.queues[i%2], s.clients[i/2], s.gateways[i/2]
		storms.Go(func() { s.report(s.submit(blowing, c, queue)) })
		storms.Go(func() { s.report(s.cancel(blowing, c, queue)) })
		storms.Go(func() { s.report(f.drop(blowing, url, queue)) })
		resolvers.Go(func() { s.report(s.resolve(resolving, c, queue)) })
		workers.Go(func() { s.report(s.work(working, url, queue)) })
	}
	storms.Wait()
	open := func() int {
		return f.count("SELECT COUNT(*) FROM tasks WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED')")
	}
	eventually(t, "every task to come to its end", func() bool { return len(s.failed) > 0 || open() == 0 })
	allResolved()
	resolvers.Wait()
	stopWork()
	workers.Wait()
	close(s.failed)
	for err := range s.failed {
		t.Error(err)
	}
	if n := f.count("SELECT COUNT(*) FROM tasks"); n != int(s.submitted.Load()) {
		t.Errorf("%d tasks, %d submitted", n, s.submitted.Load())
	}
	if n := f.count("SELECT COUNT(*) FROM permits"); n != 0 {
		t.Errorf("%d permits are left", n)
	}
	if n := f.count("SELECT COUNT(*) FROM result_events WHERE type = 'task.needs_review'"); n != int(s.resolved.Load()) {
		t.Errorf("%d arrivals at NEEDS_REVIEW, %d resolved", n, s.resolved.Load())
	}
	f.checkAtRest()
	lost := f.count("SELECT COUNT(*) FROM attempts WHERE outcome = 'LOST'")
	if s.cancelled.Load() == 0 || s.resolved.Load() == 0 || lost == 0 {
		t.Error("something did not happen at all")
	}
	t.Logf("%d tasks, %d cancels, %d resolves, %d attempts lost, %d conflicts of revision; the server counted %d deadlocks",
		s.submitted.Load(), s.cancelled.Load(), s.resolved.Load(), lost, s.conflicts.Load(),
		f.count("SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_DEADLOCKS'"))
}

// report keeps what a client must never meet. The end of the storm is not an error.
func (s *storm) report(err error) {
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		select {
		case s.failed <- err:
		default:
		}
	}
}

func (s *storm) submit(ctx context.Context, c *orbit.Client, queue string) error {
	for ctx.Err() == nil {
		tasks := make([]orbit.SubmitTaskRequest, 1+rand.IntN(20))
		for i := range tasks {
			tasks[i] = orbit.SubmitTaskRequest{
				QueueID: queue, Input: json.RawMessage(`{"n":1}`), RetrySafety: []orbit.RetrySafety{orbit.Safe, orbit.Unsafe}[rand.IntN(2)],
				MaxAttempts: 1 + rand.IntN(4), Priority: rand.IntN(5), Labels: map[string]string{"customer": strconv.Itoa(rand.IntN(9))},
			}
		}
		// The request goes to its end, so that the count is exact.
		if _, err := c.SubmitTasks(context.WithoutCancel(ctx), orbit.NewKey(), tasks); err != nil {
			return fmt.Errorf("submit: %w", err)
		}
		s.submitted.Add(int64(len(tasks)))
		pause(ctx, 20*time.Millisecond)
	}
	return nil
}

func (s *storm) cancel(ctx context.Context, c *orbit.Client, queue string) error {
	for ctx.Err() == nil {
		for _, state := range []orbit.TaskState{"QUEUED", "RUNNING"} {
			page, err := c.ListTasks(ctx, orbit.ListTasksRequest{QueueID: queue, State: state, Limit: 10})
			if err != nil {
				return fmt.Errorf("list %s: %w", state, err)
			}
			for _, task := range page.Items {
				_, err := c.CancelTask(ctx, task.ID, orbit.NewKey(), orbit.CancelTaskRequest{ExpectedRevision: task.Revision, Reason: "storm"})
				switch {
				case err == nil:
					s.cancelled.Add(1)
				case errors.Is(err, orbit.ErrStateConflict):
					s.conflicts.Add(1)
				default:
					return fmt.Errorf("cancel: %w", err)
				}
			}
		}
		pause(ctx, 50*time.Millisecond)
	}
	return nil
}

func (s *storm) resolve(ctx context.Context, c *orbit.Client, queue string) error {
	for ctx.Err() == nil {
		page, err := c.ListTasks(ctx, orbit.ListTasksRequest{QueueID: queue, State: "NEEDS_REVIEW", Limit: 20})
		if err != nil {
			return fmt.Errorf("list reviews: %w", err)
		}
		for _, task := range page.Items {
			outcome := []string{"succeeded", "failed", "requeue"}[rand.IntN(3)]
			_, err := c.ResolveTask(context.WithoutCancel(ctx), task.ID, orbit.NewKey(), orbit.ResolveTaskRequest{ExpectedRevision: task.Revision, Outcome: outcome, Reason: "storm"})
			switch {
			case err == nil:
				s.resolved.Add(1)
			case errors.Is(err, orbit.ErrStateConflict):
				s.conflicts.Add(1)
			default:
				return fmt.Errorf("resolve: %w", err)
			}
		}
		pause(ctx, 50*time.Millisecond)
	}
	return nil
}

// work runs handlers that succeed, fail for now, fail for good, or heed a cancel.
func (s *storm) work(ctx context.Context, url, queue string) error {
	w := orbit.Worker{
		URL: url, Token: s.f.vars["ORBIT_TOKEN"], QueueID: queue, Name: "storm", Concurrency: 16,
		Handler: func(ctx context.Context, _ *orbit.Assignment) (json.RawMessage, error) {
			pause(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
			switch rand.IntN(10) {
			case 0:
				return nil, orbit.RetryAfter(10*time.Millisecond, errors.New("for now"))
			case 1:
				return nil, orbit.Permanent(errors.New("for good"))
			}
			return json.RawMessage(`1`), ctx.Err()
		},
		OnDisconnect: func(err error) { s.report(fmt.Errorf("a connection ended: %w", err)) },
		OnError: func(e orbit.AttemptError) {
			var refused *orbit.Error
			if errors.As(e.Err, &refused) { // a handler's own failures are not of that type
				s.report(fmt.Errorf("outcome: %w", e))
			}
		},
	}
	return w.Run(ctx)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
