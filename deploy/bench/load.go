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

const batch = 100

// queue makes a queue and a subscription to all its events.
func (s *stack) queue(ctx context.Context, maxPending int) (queue, subscription string, err error) {
	q, err := s.client.CreateQueue(ctx, orbit.NewKey(), orbit.CreateQueueRequest{Name: "q-" + orbit.NewID()})
	if err != nil {
		return "", "", err
	}
	sub, err := s.client.CreateSubscription(ctx, orbit.NewKey(), orbit.CreateSubscriptionRequest{Name: "s-" + orbit.NewID(), QueueID: q.Queue.ID, MaxPending: maxPending})
	if err != nil {
		return "", "", err
	}
	return q.Queue.ID, sub.Subscription.ID, nil
}

// payload is about 350 bytes of JSON.
var payload = func() json.RawMessage {
	items := make([]map[string]any, 6)
	for i := range items {
		items[i] = map[string]any{"sku": fmt.Sprintf("item-%06d", i), "quantity": i, "price": 12.5}
	}
	b, err := json.Marshal(map[string]any{"order": "0123456789abcdef", "items": items})
	if err != nil {
		panic(err)
	}
	return b
}()

// submit queues n tasks in batches from several clients at once.
func (s *stack) submit(ctx context.Context, queue string, n, clients int) error {
	var left atomic.Int64
	left.Store(int64(n))
	return parallel(clients, func() error {
		for {
			take := min(int(left.Add(-batch))+batch, batch)
			if take <= 0 {
				return nil
			}
			tasks := make([]orbit.SubmitTaskRequest, take)
			for i := range tasks {
				tasks[i] = orbit.SubmitTaskRequest{QueueID: queue, Input: payload, RetrySafety: orbit.Safe}
			}
			if _, err := s.client.SubmitTasks(ctx, orbit.NewKey(), tasks); err != nil {
				return err
			}
		}
	})
}

func parallel(n int, work func() error) error {
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for range n {
		wg.Go(func() { errs <- work() })
	}
	wg.Wait()
	for range n {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// counter lets a load run until so many have been counted.
type counter struct {
	want int64
	n    atomic.Int64
	done chan struct{}
}

func newCounter(want int) *counter { return &counter{want: int64(want), done: make(chan struct{})} }

func (c *counter) add() {
	if c.n.Add(1) == c.want {
		close(c.done)
	}
}

// work runs no-op workers until n outcomes are committed.
func (s *stack) work(ctx context.Context, queue string, connections, concurrency, n int) error {
	done := newCounter(n)
	return s.until(ctx, done, connections, func(ctx context.Context) error {
		w := orbit.Worker{
			URL: s.gateway, Token: s.token, QueueID: queue, Name: "bench", Concurrency: concurrency,
			Handler:   func(context.Context, *orbit.Assignment) (json.RawMessage, error) { return payload, nil },
			OnOutcome: func(orbit.OutcomeResult) { done.add() },
		}
		return w.Run(ctx)
	})
}

// consume receives and acknowledges n events; seen, if any, hears of each.
func (s *stack) consume(ctx context.Context, subscription string, connections, n int, seen func(*orbit.Delivery)) error {
	done := newCounter(n)
	return s.until(ctx, done, connections, func(ctx context.Context) error {
		c := orbit.Consumer{
			URL: s.gateway, Token: s.token, SubscriptionID: subscription, Concurrency: 32,
			Handler: func(_ context.Context, d *orbit.Delivery) error {
				if seen != nil {
					seen(d)
				}
				return nil
			},
			OnAck: func(orbit.AckResult) { done.add() },
		}
		return c.Run(ctx)
	})
}

const stallLimit = 5 * time.Minute

// until runs several of the same until the counter is full.
func (s *stack) until(ctx context.Context, c *counter, n int, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stallLimit)
	defer cancel()
	failed := make(chan error, n)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { failed <- run(ctx) })
	}
	var err error
	select {
	case <-c.done:
	case err = <-failed:
	case <-ctx.Done():
		err = fmt.Errorf("%d of %d after %s", c.n.Load(), c.want, stallLimit)
	}
	cancel()
	go wg.Wait()
	return err
}
