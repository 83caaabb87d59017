package e2e

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// B9: ten rolling restarts of workers and, in turn, of the two gateways, with work in flight. A clean stop
// costs no attempt: every task, though unsafe to repeat, ran once, was counted once, and has one event.
func TestRollingRestartsRepeatNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	q, err := f.client.CreateQueue(ctx, orbit.NewKey(), orbit.CreateQueueRequest{Name: "rolling"})
	if err != nil {
		t.Fatal(err)
	}
	gateways := []*service{f.gateway("orbit_gateway"), f.gateway("orbit_gateway")}
	const workers, restarts = 3, 10
	var fleet, all []*process
	launch := func(i int) *process {
		p := f.worker("steady", gateways[i%2].url, q.Queue.ID)
		eventually(t, "a worker to connect", func() bool { return len(p.said("connected")) > 0 })
		all = append(all, p)
		return p
	}
	for i := range workers {
		fleet = append(fleet, launch(i))
	}
	load := &steadyLoad{client: f.client, queue: q.Queue.ID, done: make(chan struct{})}
	failed := make(chan error, 1)
	go func() { failed <- load.run(ctx, func() int { return f.count("SELECT COUNT(*) FROM ready_tasks") }) }()
	for i := range restarts {
		before := f.count("SELECT COUNT(*) FROM result_events")
		eventually(t, "work to be in flight", func() bool {
			return f.count("SELECT COUNT(*) FROM permits") > 0 && f.count("SELECT COUNT(*) FROM result_events") > before
		})
		if i%2 == 1 {
			gateways[i/2%2].restart()
		}
		fleet[i%workers].stop()
		fleet[i%workers] = launch(i % workers)
	}
	close(load.done)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	n := int(load.submitted.Load())
	eventually(t, "all tasks to succeed", func() bool { return f.count("SELECT COUNT(*) FROM tasks WHERE state = 'SUCCEEDED'") == n })
	for _, p := range fleet {
		p.stop()
	}
	ran := map[string]int{}
	for _, p := range all {
		for _, id := range p.said("ran") {
			ran[id]++
		}
		for _, e := range p.said("error") {
			t.Error(e)
		}
	}
	for id, times := range ran {
		if times != 1 {
			t.Errorf("task %s was executed %d times", id, times)
		}
	}
	if len(ran) != n {
		t.Errorf("%d tasks were executed, %d submitted", len(ran), n)
	}
	if got := f.count("SELECT COUNT(*) FROM tasks WHERE attempts = 1"); got != n {
		t.Errorf("%d of %d tasks are counted with one attempt", got, n)
	}
	if got := f.count("SELECT COUNT(*) FROM result_events WHERE type = 'task.succeeded'"); got != n || f.count("SELECT COUNT(*) FROM result_events") != n {
		t.Errorf("%d events of success for %d tasks", got, n)
	}
	f.checkAtRest()
	t.Logf("%d tasks over %d restarts of workers and %d of gateways", n, restarts, restarts/2)
}

// steadyLoad submits unsafe tasks as fast as they are taken.
type steadyLoad struct {
	client    *orbit.Client
	queue     string
	done      chan struct{}
	submitted atomic.Int64
}

func (l *steadyLoad) run(ctx context.Context, waiting func() int) error {
	const batch, enough = 20, 100
	for {
		select {
		case <-l.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if waiting() > enough {
			continue
		}
		tasks := make([]orbit.SubmitTaskRequest, batch)
		for i := range tasks {
			tasks[i] = orbit.SubmitTaskRequest{QueueID: l.queue, Input: json.RawMessage(`1`), RetrySafety: orbit.Unsafe}
		}
		if _, err := l.client.SubmitTasks(ctx, orbit.NewKey(), tasks); err != nil {
			return err
		}
		l.submitted.Add(batch)
	}
}
