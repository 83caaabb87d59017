package orbit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestAckBatching(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	gate := make(chan struct{})
	failures, acks := make(chan DeliveryError, 1), make(chan AckResult, 8)
	c := consumer(g, func(_ context.Context, d *Delivery) error {
		if d.ID != id(9) {
			<-gate
		}
		return nil
	})
	c.Concurrency, c.Basic = 4, false
	c.OnError = func(e DeliveryError) { failures <- e }
	c.OnAck = func(a AckResult) { acks <- a }
	g.background(t, c.Run)
	p := g.open(t, testLease, testInterval)
	p.push("event.deliver", deliverBody(9, "1", "1"))
	p.ack() // a single one is not batched
	must(t, "ack", acks)

	for n := 1; n <= 3; n++ {
		p.push("event.deliver", deliverBody(n, "1", "1"))
	}
	close(gate)
	var got []Proof
	for len(got) < 3 { // ready together or not, all are reported once
		f := p.read()
		switch f.Type {
		case "event.ack":
			var proof Proof
			p.into(f, &proof)
			got = append(got, proof)
			p.reply(f, "ack", ackBody(proof, false))
		case "event.ack_batch":
			var body struct{ Acks []Proof }
			p.into(f, &body)
			var results []string
			for _, proof := range body.Acks {
				results = append(results, ackBody(proof, false))
			}
			got = append(got, body.Acks...)
			p.reply(f, "ack", `{"results":[`+strings.Join(results, ",")+`]}`)
		default:
			t.Fatalf("got %s", f.Type)
		}
	}
	seen := map[string]bool{}
	for range 3 {
		seen[must(t, "ack", acks).DeliveryID] = true
	}
	if len(seen) != 3 {
		t.Errorf("acked %v", seen)
	}

	// After a reconnect three are unanswered together: one frame, answered one by one.
	for n := 11; n <= 13; n++ {
		p.push("event.deliver", deliverBody(n, "1", "1"))
	}
	for reported := 0; reported < 3; {
		f := p.read()
		reported += max(1, strings.Count(string(f.Body), "delivery_id"))
	}
	p.bye(1012, "service restart")
	p = g.open(t, testLease, testInterval)
	f := p.next("event.ack_batch")
	var body struct{ Acks []Proof }
	p.into(f, &body)
	if len(body.Acks) != 3 {
		t.Fatalf("batch %s", f.Body)
	}
	p.reply(f, "ack", fmt.Sprintf(`{"results":[%s,{"delivery_id":%q,"epoch":"1","error":{"code":"DELIVERY_LEASE_LOST","message":"no"}},%s]}`,
		ackBody(body.Acks[0], true), body.Acks[1].DeliveryID, ackBody(body.Acks[2], false)))
	if e := must(t, "error", failures); e.DeliveryID != body.Acks[1].DeliveryID || !errors.Is(e, ErrDeliveryLeaseLost) {
		t.Errorf("got %v", e)
	}
	must(t, "ack", acks)
	must(t, "ack", acks)
}

func TestAckBatchingFallsBack(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	c := consumer(g, saved)
	c.Basic = false
	c.Proofs = []Proof{{DeliveryID: id(1), Epoch: "1"}, {DeliveryID: id(2), Epoch: "1"}}
	g.background(t, c.Run)
	p := g.open(t, testLease, testInterval)
	p.refuse(p.next("event.ack_batch"), ErrInvalidArgument) // an older server
	p.ack()
	p.ack()
}

func TestExtendLeases(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	started, cause := make(chan string, 2), make(chan error, 2)
	failures := make(chan DeliveryError, 4)
	c := consumer(g, func(ctx context.Context, d *Delivery) error {
		started <- d.ID
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return ctx.Err()
	})
	c.Basic = false
	c.OnError = func(e DeliveryError) { failures <- e }
	g.background(t, c.Run)
	p := g.open(t, 600, testInterval)
	p.push("event.deliver", deliverBody(1, "1", "1"))
	must(t, "start", started)
	for range 3 { // for as long as the handler runs
		f := p.next("event.extend")
		if !strings.Contains(string(f.Body), id(1)) {
			t.Errorf("extend %s", f.Body)
		}
		p.reply(f, "ack", `{"lease_until":"2026-09-17T10:01:00Z"}`)
	}
	p.refuse(p.next("event.extend"), ErrDeliveryLeaseLost)
	if err := must(t, "cause", cause); !errors.Is(err, ErrDeliveryLeaseLost) {
		t.Errorf("cancelled by %v", err)
	}
	a, b := must(t, "error", failures), must(t, "handler's error", failures)
	if !errors.Is(a, ErrDeliveryLeaseLost) && !errors.Is(b, ErrDeliveryLeaseLost) {
		t.Errorf("got %v and %v", a, b)
	}
}

func TestExtendLeasesOfAnOlderServer(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	started, finish := make(chan string, 1), make(chan struct{})
	c := consumer(g, func(_ context.Context, d *Delivery) error {
		started <- d.ID
		<-finish
		return nil
	})
	c.Basic = false
	g.background(t, c.Run)
	p := g.open(t, 600, testInterval)
	p.push("event.deliver", deliverBody(1, "1", "1"))
	must(t, "start", started)
	p.refuse(p.next("event.extend"), ErrInvalidArgument)
	time.AfterFunc(300*time.Millisecond, func() { close(finish) })
	p.ack() // no other extend came before it
}

func TestReleaseLeases(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	started, finish := make(chan string, 4), make(chan struct{})
	c := consumer(g, func(_ context.Context, d *Delivery) error {
		started <- d.ID
		switch d.ID {
		case id(1):
			return errors.New("busy")
		case id(2):
			return fmt.Errorf("wrapped: %w", RetryAfter(7*time.Second, errors.New("busy")))
		}
		<-finish
		return nil
	})
	c.Basic, c.RetryDelay = false, 2*time.Second
	stop, ended := g.background(t, c.Run)
	p := g.open(t, testLease, testInterval)
	for n, want := range []string{`"delay_ms":2000,"refund":false}`, `"delay_ms":7000,"refund":false}`} {
		p.push("event.deliver", deliverBody(n+1, "1", "1"))
		f := p.next("event.release")
		if !strings.HasSuffix(string(f.Body), want) || !strings.Contains(string(f.Body), id(n+1)) {
			t.Errorf("release %s, want %s", f.Body, want)
		}
		p.reply(f, "ack", `{}`)
		must(t, "start", started)
	}
	p.push("event.deliver", deliverBody(3, "1", "1"))
	must(t, "start", started)
	stop()
	drain := p.next("events.drain")
	p.push("event.deliver", deliverBody(4, "1", "1")) // arrives while draining
	p.push("event.deliver", deliverBody(5, "1", "1"))
	p.reply(drain, "ack", `{"draining":true}`)
	for range 2 {
		f := p.next("event.release")
		if !strings.HasSuffix(string(f.Body), `"delay_ms":0,"refund":true}`) {
			t.Errorf("release %s", f.Body)
		}
		p.reply(f, "ack", `{}`)
	}
	close(finish) // only now: what waits does not wait for what runs
	p.ack()
	if code := p.closed(); code != 1000 {
		t.Errorf("close code %d", code)
	}
	if err := must(t, "end", ended); err != nil {
		t.Error(err)
	}
}

func TestWhatLapsedIsNotStarted(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	started, finish := make(chan string, 4), make(chan struct{})
	failures := make(chan DeliveryError, 1)
	c := consumer(g, func(_ context.Context, d *Delivery) error {
		started <- d.ID
		<-finish
		return nil
	})
	c.OnError = func(e DeliveryError) { failures <- e }
	g.background(t, c.Run)
	p := g.open(t, 600, testInterval)
	p.push("event.deliver", deliverBody(1, "1", "1"))
	p.push("event.deliver", deliverBody(2, "1", "1")) // more than was asked for
	must(t, "start", started)
	p.push("event.deliver", deliverBody(2, "2", "1")) // replaces the waiting one
	time.AfterFunc(700*time.Millisecond, func() { close(finish) })
	p.ack()
	if e := must(t, "error", failures); e.DeliveryID != id(2) || !errors.Is(e, ErrLeaseLapsed) {
		t.Errorf("got %v", e)
	}
	if len(started) != 0 {
		t.Errorf("%s was started without a lease", <-started)
	}
}

// An outage of the receiver must not use up the budget in a moment.
func TestRetryDelayDoublesWithEachAttempt(t *testing.T) {
	t.Parallel()
	r := &consumerRun{Consumer: Consumer{RetryDelay: time.Second}}
	for attempts, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 11: 15 * time.Minute, 1000: 15 * time.Minute} {
		d := &Delivery{EventDelivery: EventDelivery{Attempts: attempts}}
		if got := r.retryDelay(d, errors.New("busy")); got != want {
			t.Errorf("attempt %d: %s, want %s", attempts, got, want)
		}
	}
}

// DrainRelease cancels at once; what was interrupted is given back without costing an attempt, what
// succeeded all the same is acknowledged.
func TestDrainRelease(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	started, cause := make(chan string, 2), make(chan error, 2)
	c := consumer(g, func(ctx context.Context, d *Delivery) error {
		started <- d.ID
		<-ctx.Done()
		cause <- context.Cause(ctx)
		if d.ID == id(1) {
			return nil
		}
		return ctx.Err()
	})
	c.Basic, c.Concurrency, c.Drain = false, 2, DrainRelease
	stop, ended := g.background(t, c.Run)
	p := g.open(t, testLease, testInterval)
	for n := range 2 {
		p.push("event.deliver", deliverBody(n+1, "1", "1"))
		must(t, "start", started)
	}
	stop()
	for range 2 {
		if err := must(t, "cause", cause); !errors.Is(err, ErrDraining) {
			t.Errorf("cancelled by %v", err)
		}
	}
	answered := map[string]string{}
	for range 3 {
		f := p.read()
		if f.Type == "events.drain" {
			p.reply(f, "ack", `{"draining":true}`)
			continue
		}
		answered[f.Type] = string(f.Body)
		var proof Proof
		p.into(f, &proof)
		p.reply(f, "ack", ackBody(proof, false))
	}
	if !strings.Contains(answered["event.ack"], id(1)) || !strings.Contains(answered["event.release"], id(2)) ||
		!strings.HasSuffix(answered["event.release"], `"delay_ms":0,"refund":true}`) {
		t.Errorf("reported %v", answered)
	}
	if code := p.closed(); code != 1000 {
		t.Errorf("close code %d", code)
	}
	if err := must(t, "end", ended); err != nil {
		t.Error(err)
	}
}
