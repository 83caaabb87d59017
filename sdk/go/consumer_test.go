package orbit

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// quick is a back-off that does not slow tests down.
var quick = Backoff{Min: time.Millisecond, Max: 4 * time.Millisecond}

// consumer fills what every test needs.
func consumer(g *gateway, h DeliveryHandler) Consumer {
	return Consumer{URL: g.URL, Token: testToken, SubscriptionID: testSub, Handler: h, Backoff: quick, DrainTimeout: patience, Basic: true}
}

func saved(context.Context, *Delivery) error { return nil }

func TestConsumerAcksWhatWasHandled(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	acks, delivered := make(chan AckResult, 3), make(chan string, 3)
	var order []string
	wrap := func(name string) func(DeliveryHandler) DeliveryHandler {
		return func(next DeliveryHandler) DeliveryHandler {
			return func(ctx context.Context, d *Delivery) error {
				order = append(order, name)
				return next(ctx, d)
			}
		}
	}
	c := consumer(g, func(_ context.Context, d *Delivery) error {
		if string(d.Event.Snapshot.Result) != exact {
			return fmt.Errorf("result %s", d.Event.Snapshot.Result)
		}
		return nil
	})
	c.Middleware = []func(DeliveryHandler) DeliveryHandler{wrap("outer"), wrap("inner")}
	c.OnAck = func(a AckResult) { acks <- a }
	c.OnDeliver = func(d *Delivery) { delivered <- d.ID }
	stop, ended := g.background(t, c.Run)
	p := g.open(t, testLease, testInterval)
	for n := 1; n <= 3; n++ {
		p.push("event.deliver", deliverBody(n, "1", exact))
		if got := p.ack(); got.DeliveryID != id(n) || got.Epoch != "1" || got.LeaseSecret != testSecret {
			t.Errorf("acked %s, want %d", got.DeliveryID, n)
		}
		if a := must(t, "OnAck", acks); a.DeliveryID != id(n) || a.Deduplicated {
			t.Errorf("OnAck %+v", a)
		}
		if d := must(t, "OnDeliver", delivered); d != id(n) {
			t.Errorf("OnDeliver %s", d)
		}
	}
	stop()
	if code := p.closed(); code != 1000 {
		t.Errorf("close code %d", code)
	}
	if err := must(t, "end", ended); err != nil {
		t.Error(err)
	}
	if !reflect.DeepEqual(order[:2], []string{"outer", "inner"}) {
		t.Errorf("middleware ran as %v", order)
	}
}

func TestConsumerLeavesWhatFailed(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	failures := make(chan DeliveryError, 2)
	c := consumer(g, func(_ context.Context, d *Delivery) error {
		switch d.ID {
		case id(1):
			return errors.New("disk full")
		case id(2):
			panic("nil map")
		}
		return nil
	})
	c.OnError = func(e DeliveryError) { failures <- e }
	g.background(t, c.Run)
	p := g.open(t, testLease, testInterval)
	for n := 1; n <= 3; n++ {
		p.push("event.deliver", deliverBody(n, "1", "1"))
	}
	if got := p.ack(); got.DeliveryID != id(3) {
		t.Errorf("acked %s, which had failed", got.DeliveryID)
	}
	if e := must(t, "error", failures); e.DeliveryID != id(1) || e.Err.Error() != "disk full" {
		t.Errorf("got %v", e)
	}
	var panicked *PanicError
	if e := must(t, "panic", failures); e.DeliveryID != id(2) || !errors.As(e, &panicked) || len(panicked.Stack) == 0 {
		t.Errorf("got %v", e)
	}
}

func TestConsumerReportsAgainWithTheSameProof(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	acks := make(chan AckResult, 1)
	var handled atomic.Int32
	c := consumer(g, func(context.Context, *Delivery) error { handled.Add(1); return nil })
	c.OnAck = func(a AckResult) { acks <- a }
	g.background(t, c.Run)

	p := g.open(t, testLease, testInterval)
	p.push("event.deliver", deliverBody(1, "1", "1"))
	p.next("event.ack")
	p.bye(CloseAbnormal, "") // the answer is lost

	p = g.open(t, testLease, testInterval)
	f := p.next("event.ack")
	var proof Proof
	p.into(f, &proof)
	if want := (Proof{DeliveryID: id(1), Epoch: "1", LeaseSecret: testSecret}); proof != want {
		t.Errorf("reported %v %s", proof, proof.Epoch)
	}
	p.bye(1012, "service restart") // and again

	p = g.open(t, testLease, testInterval)
	p.next("event.ack")
	p.push("event.deliver", deliverBody(1, "2", "1")) // the lease had run out: the proof was replaced
	f = p.next("event.ack")
	p.into(f, &proof)
	if proof.Epoch != "2" {
		t.Errorf("reported epoch %s, want the newest", proof.Epoch)
	}
	p.reply(f, "ack", ackBody(proof, true))
	if a := must(t, "OnAck", acks); !a.Deduplicated {
		t.Errorf("OnAck %+v", a)
	}
	if n := handled.Load(); n != 1 {
		t.Errorf("handled %d times", n)
	}
}

func TestConsumerRunsOneHandlerForAReplacedLease(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	started, finish := make(chan string, 4), make(chan struct{})
	c := consumer(g, func(_ context.Context, d *Delivery) error {
		started <- d.ID
		<-finish
		return nil
	})
	c.Concurrency = 4
	g.background(t, c.Run)
	p := g.open(t, testLease, testInterval)
	p.push("event.deliver", deliverBody(1, "9", "1"))
	must(t, "start", started)
	p.push("event.deliver", deliverBody(1, "10", "1")) // B1: slower than its lease
	p.push("event.deliver", deliverBody(2, "1", "1"))
	if d := must(t, "start", started); d != id(2) {
		t.Errorf("%s was started twice", d)
	}
	close(finish)
	got := map[string]Counter{}
	for range 2 {
		a := p.ack()
		got[a.DeliveryID] = a.Epoch
	}
	if want := map[string]Counter{id(1): "10", id(2): "1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("acked %v, want %v", got, want)
	}
}

// TestConsumerAsksOnlyForWhatItCanStart plays a server with a backlog of 100 (B3).
func TestConsumerAsksOnlyForWhatItCanStart(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 3} {
		g := newGateway(t)
		var running, most, waits atomic.Int32
		c := consumer(g, func(context.Context, *Delivery) error {
			n := running.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			running.Add(-1)
			return nil
		})
		c.Concurrency = size
		c.OnError = func(DeliveryError) { waits.Add(1) }
		stop, ended := g.background(t, c.Run)
		p := g.open(t, testLease, testInterval)
		if p.capacity() != size {
			t.Fatalf("asked for %d with %d places", p.capacity(), size)
		}
		sent := 0
		for ; sent < size; sent++ {
			p.push("event.deliver", deliverBody(sent, "1", "1"))
		}
		seen := map[string]bool{}
		for range 100 {
			a := p.ack()
			if seen[a.DeliveryID] {
				t.Errorf("%s was handled twice", a.DeliveryID)
			}
			seen[a.DeliveryID] = true
			if sent < 100 {
				p.push("event.deliver", deliverBody(sent, "1", "1"))
				sent++
			}
		}
		if int(most.Load()) > size || waits.Load() != 0 {
			t.Errorf("%d at once with %d places, %d errors", most.Load(), size, waits.Load())
		}
		stop()
		if err := must(t, "end", ended); err != nil {
			t.Error(err)
		}
	}
}

func TestConsumerReconnectsWithWhatIsFreeAndThenWithAll(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	started, finish := make(chan string, 4), make(chan struct{})
	c := consumer(g, func(_ context.Context, d *Delivery) error {
		started <- d.ID
		<-finish
		return nil
	})
	c.Concurrency = 3
	g.background(t, c.Run)
	p := g.open(t, testLease, testInterval)
	p.push("event.deliver", deliverBody(1, "1", "1"))
	p.push("event.deliver", deliverBody(2, "1", "1"))
	must(t, "start", started)
	must(t, "start", started)
	p.bye(1012, "service restart")

	p = g.open(t, testLease, testInterval)
	if p.capacity() != 1 {
		t.Errorf("asked for %d with two of three places taken", p.capacity())
	}
	close(finish)
	// Both handlers finish, and the consumer comes back for all places; acks may come on either connection.
	left := 2
	for left > 0 {
		if f, err := p.tryRead(); err == nil {
			var proof Proof
			p.into(f, &proof)
			p.reply(f, "ack", ackBody(proof, false))
			left--
			continue
		}
		p = g.open(t, testLease, testInterval)
	}
	for p.capacity() != 3 {
		p.closed()
		p = g.open(t, testLease, testInterval)
	}
}

func TestConsumerComesBackOrNot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code   int
		reason string
		back   bool
	}{
		{1000, "bye", true}, {1001, "", true}, {CloseAbnormal, "", true}, {1008, "policy: idle", true}, {1011, "internal " + id(7), true},
		{1012, "service restart", true}, {1013, "try again later", true}, {4999, "", true},
		{1009, "", false}, {4401, "UNAUTHENTICATED", false}, {4403, "PERMISSION_DENIED", false}, {4404, "NOT_FOUND", false},
		{4410, "RESOURCE_RETIRED", false}, {4410, "EVENT_HISTORY_EXPIRED", false}, {4499, "", false},
	} {
		t.Run(fmt.Sprint(c.code, c.reason), func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			lost := make(chan error, 4)
			consumer := consumer(g, saved)
			consumer.OnDisconnect = func(err error) { lost <- err }
			_, ended := g.background(t, consumer.Run)
			g.open(t, testLease, testInterval).bye(c.code, c.reason)
			var closed *CloseError
			if err := must(t, "OnDisconnect", lost); !errors.As(err, &closed) || closed.Code != c.code {
				t.Errorf("OnDisconnect got %v", err)
			}
			if c.back {
				g.open(t, testLease, testInterval)
				return
			}
			var stopped *StopError
			err := must(t, "end", ended)
			if !errors.As(err, &stopped) || !errors.As(err, &closed) || closed.Code != c.code {
				t.Errorf("ended with %v", err)
			}
			if c.reason != "" && !errors.Is(err, Code(c.reason)) {
				t.Errorf("%v is not %s", err, c.reason)
			}
		})
	}
}

func TestConsumerRefusesWrongOptions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Consumer{
		"no handler":   {URL: "http://localhost:1", Token: testToken, SubscriptionID: testSub},
		"concurrency":  {URL: "http://localhost:1", Token: testToken, SubscriptionID: testSub, Handler: saved, Concurrency: 33},
		"subscription": {URL: "http://localhost:1", Token: testToken, SubscriptionID: "x", Handler: saved},
		"plain http":   {URL: "http://orbit.example.com", Token: testToken, SubscriptionID: testSub, Handler: saved},
		"no token":     {URL: "http://localhost:1", SubscriptionID: testSub, Handler: saved},
	} {
		if err := c.Run(context.Background()); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestManyConsumersReturnAfterARestart(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	const herd = 30
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for range herd {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := consumer(g, saved).Run(ctx); err != nil {
				t.Error(err)
			}
		}()
	}
	var peers []*peer
	for range herd {
		peers = append(peers, g.open(t, testLease, testInterval))
	}
	for _, p := range peers {
		p.bye(1012, "service restart")
	}
	for range herd {
		p := g.open(t, testLease, testInterval)
		go func() { _, _ = p.tryRead() }() // answers the goodbye
	}
	cancel()
	wg.Wait()
}
