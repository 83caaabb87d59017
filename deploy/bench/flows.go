package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// flowLoad measures flows of no-op tasks: a 3-step line from start to SUCCEEDED, one at a time on an
// idle stack, then 1 000 runs of a 10-step diamond at once, which must end with exactly 10 000 tasks.
func flowLoad(ctx context.Context, s *stack, scale int) ([]metric, error) {
	queue, _, err := s.queue(ctx, 0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		w := orbit.Worker{
			URL: s.gateway, Token: s.token, QueueID: queue, Name: "bench", Concurrency: 128,
			Handler: func(context.Context, *orbit.Assignment) (json.RawMessage, error) { return payload, nil },
		}
		failed <- w.Run(ctx)
	}()
	line, err := s.lines(ctx, queue, max(100*scale/100, 10))
	if err != nil {
		return nil, err
	}
	diamonds, err := s.diamonds(ctx, queue, max(1000*scale/100, 20))
	if err != nil {
		return nil, err
	}
	cancel()
	if err := <-failed; err != nil {
		return nil, err
	}
	return append(line, diamonds...), nil
}

// lines times runs one after the other. The times are the database's own: created to finished.
func (s *stack) lines(ctx context.Context, queue string, n int) ([]metric, error) {
	flow, err := s.client.CreateFlow(ctx, orbit.NewKey(), orbit.CreateFlowRequest{Name: "line-" + orbit.NewID(), Steps: []orbit.FlowStep{
		{Name: "a", QueueID: queue, Input: orbit.RunInput("")},
		{Name: "b", QueueID: queue, Input: orbit.StepResult("a", "/items/0"), DependsOn: []string{"a"}},
		{Name: "c", QueueID: queue, Input: orbit.StepResult("b", ""), DependsOn: []string{"b"}},
	}})
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for range n {
		run, err := s.client.StartFlow(ctx, flow.Flow.ID, orbit.NewKey(), orbit.StartFlowRequest{Input: payload})
		if err != nil {
			return nil, err
		}
		done, err := s.ended(ctx, run.Run.ID)
		if err != nil {
			return nil, err
		}
		took = append(took, done.FinishedAt.Sub(done.CreatedAt))
	}
	return percentiles("3 steps, start to SUCCEEDED", took), nil
}

// ended waits for a run to have succeeded.
func (s *stack) ended(ctx context.Context, id string) (*orbit.Run, error) {
	for deadline := time.Now().Add(stallLimit); ; {
		run, err := s.client.GetRun(ctx, id)
		if err != nil {
			return nil, err
		}
		switch {
		case run.State == orbit.RunStateSucceeded:
			return run, nil
		case run.FinishedAt != nil, time.Now().After(deadline):
			return nil, fmt.Errorf("run %s is %s: %+v", id, run.State, run.Steps)
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// diamonds runs n flows of one first step, eight beside each other and one last.
func (s *stack) diamonds(ctx context.Context, queue string, n int) ([]metric, error) {
	steps := []orbit.FlowStep{{Name: "first", QueueID: queue, Input: orbit.RunInput("/order")}}
	last := orbit.FlowStep{Name: "last", QueueID: queue, Input: json.RawMessage(`null`)}
	for i := range 8 {
		name := fmt.Sprintf("middle-%d", i)
		steps = append(steps, orbit.FlowStep{Name: name, QueueID: queue, Input: orbit.StepResult("first", "/order"), DependsOn: []string{"first"}})
		last.DependsOn = append(last.DependsOn, name)
	}
	flow, err := s.client.CreateFlow(ctx, orbit.NewKey(), orbit.CreateFlowRequest{Name: "diamond-" + orbit.NewID(), Steps: append(steps, last)})
	if err != nil {
		return nil, err
	}
	before, err := s.tasks(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var left atomic.Int64
	left.Store(int64(n))
	var mu sync.Mutex
	var runs []string
	err = parallel(16, func() error {
		for left.Add(-1) >= 0 {
			run, err := s.client.StartFlow(ctx, flow.Flow.ID, orbit.NewKey(), orbit.StartFlowRequest{Input: payload})
			if err != nil {
				return err
			}
			mu.Lock()
			runs = append(runs, run.Run.ID)
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	started := time.Since(began)
	for _, id := range runs {
		if _, err := s.ended(ctx, id); err != nil {
			return nil, err
		}
	}
	took := time.Since(began)
	after, err := s.tasks(ctx)
	if err != nil {
		return nil, err
	}
	if after-before != 10*n {
		return nil, fmt.Errorf("%d runs of 10 steps made %d tasks", n, after-before)
	}
	return []metric{perSecond("runs started", n, started), perSecond("steps of diamonds", 10*n, took), {"tasks of the diamonds", float64(after - before), ""}}, nil
}

func (s *stack) tasks(ctx context.Context) (n int, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks").Scan(&n)
	return n, err
}
