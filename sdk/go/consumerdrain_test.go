package orbit

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestConsumerDrains(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	started, finish := make(chan string, 4), make(chan struct{})
	var canceled atomic.Bool
	c := consumer(g, func(ctx context.Context, d *Delivery) error {
		started <- d.ID
		<-finish
		canceled.Store(ctx.Err() != nil)
		return nil
	})
	stop, ended := g.background(t, c.Run)
	p := g.open(t, testLease, testInterval)
	p.push("event.deliver", deliverBody(1, "1", "1"))
	must(t, "start", started)
	stop()
	p.bye(1012, "service restart") // even while the gateway restarts
	p = g.open(t, testLease, testInterval)
	p.push("event.deliver", deliverBody(2, "1", "1")) // is not started any more
	close(finish)
	if a := p.ack(); a.DeliveryID != id(1) {
		t.Errorf("acked %s", a.DeliveryID)
	}
	if code := p.closed(); code != 1000 {
		t.Errorf("close code %d", code)
	}
	if err := must(t, "end", ended); err != nil {
		t.Error(err)
	}
	if canceled.Load() || len(started) != 0 {
		t.Errorf("handler cancelled %v, started during the drain %d", canceled.Load(), len(started))
	}
}

func TestConsumerDrainIsBounded(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	started, cause := make(chan string, 1), make(chan error, 1)
	c := consumer(g, func(ctx context.Context, d *Delivery) error {
		started <- d.ID
		if d.ID == id(1) {
			return nil
		}
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return ctx.Err()
	})
	c.DrainTimeout = 50 * time.Millisecond
	stop, ended := g.background(t, c.Run)
	p := g.open(t, testLease, testInterval)
	p.push("event.deliver", deliverBody(1, "1", "1"))
	must(t, "start", started)
	p.next("event.ack") // never answered
	p.push("event.deliver", deliverBody(2, "1", "1"))
	must(t, "start", started)
	stop()
	if err := must(t, "cause", cause); !errors.Is(err, ErrDrainTimeout) {
		t.Errorf("handler was cancelled by %v", err)
	}
	var stopped *StopError
	err := must(t, "end", ended)
	if !errors.As(err, &stopped) || !errors.Is(err, ErrDrainTimeout) || len(stopped.Unacked) != 1 || stopped.Unacked[0].DeliveryID != id(1) {
		t.Fatalf("ended with %v", err)
	}

	again := consumer(g, saved) // the next process reports what was saved
	again.Proofs = stopped.Unacked
	g.background(t, again.Run)
	if a := g.open(t, testLease, testInterval).ack(); a != stopped.Unacked[0] {
		t.Errorf("reported %v", a)
	}
}

func TestConsumerStopsWhileNobodyAnswers(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	lost := make(chan error, 1000)
	g.Close() // nobody listens
	c := consumer(g, saved)
	c.Backoff = Backoff{Min: time.Hour, Max: time.Hour}
	c.OnDisconnect = func(err error) { lost <- err }
	stop, ended := g.background(t, c.Run)
	must(t, "refused", lost)
	stop()
	if err := must(t, "end", ended); err != nil {
		t.Error(err)
	}
}
