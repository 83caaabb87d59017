package main

import (
	"context"
	"sync"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

func scaled(n, percent int) int { return max(n*percent/100, batch) }

func submitRate(ctx context.Context, s *stack, scale int) ([]metric, error) {
	q, _, err := s.queue(ctx, 0)
	if err != nil {
		return nil, err
	}
	n := scaled(60_000, scale)
	return s.counted(ctx, "tasks submitted", n, func() error { return s.submit(ctx, q, n, 4) })
}

func taskRate(ctx context.Context, s *stack, scale int) ([]metric, error) {
	q, _, err := s.queue(ctx, 0)
	if err != nil {
		return nil, err
	}
	n := scaled(40_000, scale)
	if err := s.submit(ctx, q, n, 4); err != nil {
		return nil, err
	}
	return s.counted(ctx, "tasks completed", n, func() error { return s.work(ctx, q, 4, 128, n) })
}

func drainRate(ctx context.Context, s *stack, scale int) ([]metric, error) {
	q, sub, err := s.queue(ctx, 128)
	if err != nil {
		return nil, err
	}
	n := scaled(40_000, scale)
	if err := s.submit(ctx, q, n, 4); err != nil {
		return nil, err
	}
	if err := s.work(ctx, q, 4, 128, n); err != nil {
		return nil, err
	}
	return s.counted(ctx, "delivered and acknowledged", n, func() error { return s.consume(ctx, sub, 4, n, nil) })
}

func flowRate(ctx context.Context, s *stack, scale int) ([]metric, error) {
	q, sub, err := s.queue(ctx, 256)
	if err != nil {
		return nil, err
	}
	n := scaled(30_000, scale)
	if err := s.submit(ctx, q, n, 4); err != nil {
		return nil, err
	}
	return s.counted(ctx, "worked, delivered and acknowledged", n, func() error {
		return together(func() error { return s.work(ctx, q, 4, 128, n) }, func() error { return s.consume(ctx, sub, 4, n, nil) })
	})
}

func taskFlowRate(ctx context.Context, s *stack, scale int) ([]metric, error) {
	q, _, err := s.queue(ctx, 0)
	if err != nil {
		return nil, err
	}
	n := scaled(30_000, scale)
	return s.counted(ctx, "submitted and worked", n, func() error {
		return together(func() error { return s.submit(ctx, q, n, 2) }, func() error { return s.work(ctx, q, 4, 128, n) })
	})
}

func latency(ctx context.Context, s *stack, scale int) ([]metric, error) {
	q, sub, err := s.queue(ctx, 0)
	if err != nil {
		return nil, err
	}
	n := scaled(1500, scale)
	var mu sync.Mutex
	var late []time.Duration
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 2)
	go func() { failed <- s.work(ctx, q, 1, 16, n) }()
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range n {
			<-tick.C
			if _, err := s.client.SubmitTask(ctx, orbit.NewKey(), orbit.SubmitTaskRequest{QueueID: q, Input: payload, RetrySafety: orbit.Safe}); err != nil {
				failed <- err
				return
			}
		}
	}()
	err = s.consume(ctx, sub, 1, n, func(d *orbit.Delivery) {
		d1 := time.Since(d.Event.OccurredAt)
		mu.Lock()
		late = append(late, d1)
		mu.Unlock()
	})
	if err != nil {
		return nil, err
	}
	return percentiles("commit to handler", late), nil
}

func httpRates(ctx context.Context, s *stack, scale int) ([]metric, error) {
	_, sub, err := s.queue(ctx, 0)
	if err != nil {
		return nil, err
	}
	n := scaled(2000, scale)
	reads, err := paced(n, 200, func(int) error {
		_, err := s.client.GetSubscription(ctx, sub)
		return err
	})
	if err != nil {
		return nil, err
	}
	// One subscription a request in flight, so that revisions do not race.
	subs := make(chan *orbit.Subscription, 32)
	for range cap(subs) {
		_, id, err := s.queue(ctx, 0)
		if err != nil {
			return nil, err
		}
		one, err := s.client.GetSubscription(ctx, id)
		if err != nil {
			return nil, err
		}
		subs <- one
	}
	writes, err := paced(n, 200, func(i int) error {
		one := <-subs
		done, err := s.client.ConfigureSubscription(ctx, one.ID, orbit.NewKey(), orbit.ConfigureSubscriptionRequest{
			ExpectedRevision: one.Revision, Enabled: i%2 == 0, Reason: "bench",
		})
		if err != nil {
			return err
		}
		subs <- &done.Subscription
		return nil
	})
	if err != nil {
		return nil, err
	}
	return append(percentiles("GetSubscription", reads), percentiles("configure", writes)...), nil
}

// paced starts n requests at a fixed rate, whether or not earlier ones have ended, and times each.
func paced(n, perSecond int, request func(i int) error) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	failed := make(chan error, n)
	var wg sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for i := range n {
		<-tick.C
		wg.Go(func() {
			began := time.Now()
			if err := request(i); err != nil {
				failed <- err
			}
			took[i] = time.Since(began)
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
		return took, nil
	}
}
