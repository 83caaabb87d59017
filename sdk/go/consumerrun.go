package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrLeaseLapsed says that a delivery or attempt could not be started within its lease and was left for
// the server to hand out again.
var ErrLeaseLapsed = errors.New("orbit: the lease ran out before there was room to start")

// defaultBackoff keeps every client back within a minute of a restart, with room for the herd.
var defaultBackoff = Backoff{Min: 250 * time.Millisecond, Max: 15 * time.Second}

const defaultDrain = 20 * time.Second

// consumerRun is one Run of a Consumer.
type consumerRun struct {
	Consumer
	handler DeliveryHandler
	cancel  context.CancelCauseFunc
	changed changes
	crew    *crew
	outbox  *outbox
	link    *link
	noBatch atomic.Bool // the server has no event.ack_batch
}

func newConsumerRun(ctx context.Context, c Consumer) (*consumerRun, error) {
	r := &consumerRun{Consumer: c, handler: c.Handler}
	if c.Handler == nil {
		return nil, invalid("handler: is required")
	}
	if c.Drain != DrainFinish && c.Drain != DrainRelease {
		return nil, invalid("drain: must be DrainFinish or DrainRelease")
	}
	if c.Concurrency < 0 || c.Concurrency > 32 {
		return nil, invalid("concurrency: must be 1–32")
	}
	r.Concurrency = max(1, c.Concurrency)
	if r.RetryDelay <= 0 {
		r.RetryDelay = time.Second
	}
	for _, wrap := range slices.Backward(c.Middleware) {
		r.handler = wrap(r.handler)
	}
	var base context.Context
	base, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	r.crew = newCrew(ctx, base, r.Concurrency, &r.changed)
	r.outbox = newOutbox(&r.changed)
	if !c.Basic {
		r.outbox.batch = r.ackBatch
	}
	for _, p := range c.Proofs {
		r.outbox.put(r.ack(p.lease()))
	}
	r.link = &link{crew: r.crew, outbox: r.outbox, changed: &r.changed, dial: r.dial, lost: r.lost,
		backoff: c.Backoff.orDefault(defaultBackoff), drain: drainOf(c.DrainTimeout), interrupt: c.Drain == DrainRelease}
	return r, nil
}

func drainOf(d time.Duration) time.Duration {
	if d == 0 {
		return defaultDrain
	}
	return max(0, d)
}

// dial opens a connection for as many deliveries as can be started.
func (r *consumerRun) dial(ctx context.Context, number, capacity int) (*session, error) {
	conn, err := DialEvents(ctx, EventOptions{URL: r.URL, Token: r.Token, SubscriptionID: r.SubscriptionID,
		Capacity: capacity, Extensions: r.Extensions, InsecureHTTP: r.InsecureHTTP, Transport: r.Transport})
	if err != nil {
		return nil, err
	}
	if r.OnConnect != nil {
		r.OnConnect(conn.Welcome)
	}
	s := &session{sock: conn.sock, number: number, capacity: capacity, heartbeat: conn.Welcome.HeartbeatInterval,
		close: conn.Close, renew: func() {}}
	s.receive = func(ctx context.Context) {
		for d, err := conn.Receive(ctx); err == nil; d, err = conn.Receive(ctx) {
			r.take(d, number, conn.Welcome.LeaseDuration)
		}
	}
	if !r.Basic {
		carried := r.crew.leases()
		s.renew = func() { r.extend(conn, carried) }
		s.drain = conn.Drain
		s.release = func(leases []lease) func() {
			return sendAll(s.sock, "event.release", leases, func(l lease) []byte { return releaseBody(l, 0, true) })
		}
	}
	return s, nil
}

func (r *consumerRun) lost(err error) {
	if r.OnDisconnect != nil {
		r.OnDisconnect(err)
	}
}

// take starts a delivery, or acknowledges it again when it was handled and only the answer is missing.
func (r *consumerRun) take(d *Delivery, number int, leased time.Duration) {
	l := d.Proof().lease()
	known := r.crew.known(d.ID)
	if !known && r.outbox.holds(d.ID, ackType) {
		r.outbox.put(r.ack(l))
		return
	}
	if !known && r.OnDeliver != nil {
		r.OnDeliver(d)
	}
	r.crew.add(&job{lease: l, link: number, leased: leased, since: d.received,
		run:    func(ctx context.Context, j *job) { r.handle(ctx, j, d) },
		lapsed: func() { r.failed(d.ID, ErrLeaseLapsed) }})
}

// handle runs the handler and reports with the newest lease: the delivery may have come again meanwhile.
func (r *consumerRun) handle(ctx context.Context, j *job, d *Delivery) {
	err := r.call(ctx, d)
	tell := r.ack
	switch {
	case err != nil && !r.Basic && !errors.Is(context.Cause(ctx), ErrDeliveryLeaseLost):
		tell = func(l lease) *report { return r.giveBack(l, releaseBody(l, r.retryDelay(d, err), false)) }
		if cause := context.Cause(ctx); errors.Is(cause, ErrDraining) || errors.Is(cause, ErrDrainTimeout) {
			tell = func(l lease) *report { return r.giveBack(l, releaseBody(l, 0, true)) }
		}
	case err != nil:
		tell = nil
	}
	if err != nil {
		r.failed(d.ID, err)
	}
	reported := r.crew.current(j)
	if tell != nil {
		r.outbox.put(tell(reported))
	}
	if newest := r.crew.finish(j); tell != nil && newest != reported {
		r.outbox.put(tell(newest))
	}
}

func (r *consumerRun) call(ctx context.Context, d *Delivery) (err error) {
	defer recovered(&err)
	return r.handler(ctx, d)
}

const ackType = "event.ack"

func (r *consumerRun) ack(l lease) *report {
	return &report{lease: l, typ: ackType, body: l.body("delivery_id"), answered: func(reply json.RawMessage, err error) {
		var a AckResult
		if err == nil {
			err = json.Unmarshal(reply, &a)
		}
		if err != nil {
			r.failed(l.id, err)
		} else if r.OnAck != nil {
			r.OnAck(a)
		}
	}}
}

func (r *consumerRun) giveBack(l lease, body []byte) *report {
	return &report{lease: l, typ: "event.release", body: body, answered: func(json.RawMessage, error) {}}
}

// retryDelay doubles with each attempt, so that an outage of the receiver does not use up the budget.
func (r *consumerRun) retryDelay(d *Delivery, cause error) time.Duration {
	if after := wishes(cause).after; after > 0 {
		return after
	}
	return Backoff{Min: r.RetryDelay, Max: maxReleaseDelay}.ceiling(d.Attempts - 1)
}

func (r *consumerRun) failed(id string, err error) {
	if r.OnError != nil {
		r.OnError(DeliveryError{DeliveryID: id, Err: err})
	}
}

// unacked returns the proofs of what was handled and not answered.
func (r *consumerRun) unacked() []Proof {
	var proofs []Proof
	for _, l := range r.outbox.unanswered(ackType) {
		proofs = append(proofs, Proof{DeliveryID: l.id, Epoch: l.epoch, LeaseSecret: l.secret})
	}
	return proofs
}

// sendAll writes one request per lease at once and returns how to wait for all answers.
func sendAll(s *socket, typ string, leases []lease, body func(lease) []byte) func() {
	ctx, cancel := context.WithTimeout(context.Background(), writeLimit)
	var wg sync.WaitGroup
	for _, l := range leases {
		wait, err := s.send(typ, body(l))
		if err != nil {
			break
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			_, _ = wait(ctx)
		}()
	}
	return func() {
		wg.Wait()
		cancel()
	}
}
