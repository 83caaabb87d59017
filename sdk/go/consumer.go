package orbit

import (
	"context"
	"fmt"
	"time"
)

// DeliveryHandler saves one event, de-duplicating by d.Event.ID in its own transaction (package inbox
// does), and returns nil only when that has committed: then, and only then, the delivery is acknowledged.
// After an error the event comes again, until the subscription's budget is used up. A panic is an error.
type DeliveryHandler func(ctx context.Context, d *Delivery) error

// Consumer receives one subscription's events and keeps its connection up. Fill the fields, then call Run;
// they must not change while it runs. Hooks are called from several goroutines and must not block.
type Consumer struct {
	URL            string          // a gateway's base, like https://orbit.example.com
	Token          string          // of the subscription's owner, with events:consume
	SubscriptionID string          // 32 hex
	Handler        DeliveryHandler // called by at most Concurrency goroutines

	// Concurrency is how many handlers run at once, 1–32 (0: 1). No more deliveries than can be started
	// are asked for, so none waits here while its lease runs.
	Concurrency int
	// Middleware wraps Handler; the first is the outermost.
	Middleware []func(DeliveryHandler) DeliveryHandler
	// Drain is what happens to running handlers when ctx ends: DrainFinish (zero) or DrainRelease.
	Drain DrainMode
	// DrainTimeout is how long Run goes on after ctx ended for handlers to finish and acknowledgements to
	// be answered (0: 20 s). Then handlers are cancelled with cause ErrDrainTimeout, and have a second for
	// what they return to be reported.
	DrainTimeout time.Duration
	// Backoff between connections (zero: 250 ms to 15 s).
	Backoff Backoff
	// Proofs to acknowledge that an earlier process handled and had saved (StopError.Unacked).
	Proofs []Proof

	// RetryDelay is the wait after a handler's first failure; it doubles with each attempt, up to 15 min
	// (0: 1 s). An error made by [RetryAfter] names its own.
	RetryDelay time.Duration
	// Basic keeps to hello, ack and ping, for a gateway that knows no more: no lease is extended or given
	// back, so a delivery comes again when its lease has run out, and acknowledgements go one by one.
	// Otherwise (R6.10) the lease of a running handler is extended at a third of its length, and its
	// context is cancelled with cause ErrDeliveryLeaseLost if a newer one was issued elsewhere; what a
	// handler failed to do is given back to come again after RetryDelay; what a drain finds not started
	// is given back with its attempt refunded; acknowledgements that are ready together share a frame.
	Basic bool

	Extensions   []string // names for hello.extensions
	InsecureHTTP bool     // allow a token over plain http to other hosts than loopback
	Transport    Transport

	OnConnect    func(EventWelcome)
	OnDisconnect func(err error)     // a connection ended, or was refused; Run decides whether to go on
	OnDeliver    func(*Delivery)     // before it is started; not for a newer lease of one that runs
	OnAck        func(AckResult)     // the server has recorded it
	OnError      func(DeliveryError) // a handler, an acknowledgement or a lease failed
}

// DrainMode is what a drain does to running handlers. What was not started is given back in either.
type DrainMode int

const (
	// DrainFinish lets running handlers finish, for at most DrainTimeout.
	DrainFinish DrainMode = iota
	// DrainRelease cancels them at once with cause ErrDraining. What returns nil all the same is
	// acknowledged; what returns an error is given back for another process, its attempt refunded.
	DrainRelease
)

// DeliveryError is a failure that concerns one delivery. Err is the handler's error (*PanicError for a
// panic), an *Error of the server, or ErrLeaseLapsed.
type DeliveryError struct {
	DeliveryID string
	Err        error
}

func (e DeliveryError) Error() string { return fmt.Sprintf("delivery %s: %v", e.DeliveryID, e.Err) }

// Unwrap returns Err.
func (e DeliveryError) Unwrap() error { return e.Err }

// Run receives until ctx ends, then lets running handlers finish, has their acknowledgements answered,
// closes, and returns nil. Otherwise it returns a *StopError: for a close or refusal that must not be
// tried again (CloseError.Reconnect), or ErrDrainTimeout. Handlers' contexts carry ctx's values and
// outlive its end until DrainTimeout.
func (c Consumer) Run(ctx context.Context) error {
	r, err := newConsumerRun(ctx, c)
	if err != nil {
		return &StopError{Cause: err}
	}
	defer r.cancel(nil)
	if err := r.link.run(ctx); err != nil {
		return &StopError{Cause: err, Unacked: r.unacked()}
	}
	return nil
}
