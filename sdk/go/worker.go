package orbit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// TaskHandler executes one attempt. What it returns is the outcome:
//
//   - result, nil: success. result is one JSON value of at most MaxResult bytes, kept byte for byte, or nil.
//   - an error: failure, to be retried while attempts are left; [Permanent], [RetryAfter] and [WithCode]
//     say otherwise. A panic is an error.
//   - an error after ctx was cancelled with cause ErrCancelRequested: the task is cancelled.
//
// ctx is cancelled with cause ErrCancelRequested, ErrAttemptLeaseLost (the attempt is somebody else's now:
// stop without further effects; nothing is reported) or ErrDrainTimeout.
type TaskHandler func(ctx context.Context, a *Assignment) (json.RawMessage, error)

// Worker executes one queue's tasks and keeps its connection up. Fill the fields, then call Run; they
// must not change while it runs. Leases of what it holds are renewed at a third of their length, over any
// number of connections. Hooks are called from several goroutines and must not block.
type Worker struct {
	URL     string      // a gateway's base, like https://orbit.example.com
	Token   string      // with workers:execute
	QueueID string      // 32 hex
	Name    string      // 1–128 ASCII (R1.6); "": the host's name
	Handler TaskHandler // called by at most Concurrency goroutines

	// Concurrency is how many handlers run at once, 1–256 (0: 1). No more attempts than can be started are
	// asked for.
	Concurrency int
	// Middleware wraps Handler; the first is the outermost.
	Middleware []func(TaskHandler) TaskHandler
	// DrainTimeout is how long Run goes on after ctx ended for handlers to finish and outcomes to be
	// answered (0: 20 s). Then handlers are cancelled with cause ErrDrainTimeout, and have a second for
	// what they return to be reported. As soon as ctx ended the gateway is asked for no more, and attempts
	// that were not started are given back and not counted.
	DrainTimeout time.Duration
	// Backoff between connections (zero: 250 ms to 15 s).
	Backoff Backoff

	InsecureHTTP bool // allow a token over plain http to other hosts than loopback
	Transport    Transport

	OnConnect    func(WorkerWelcome)
	OnDisconnect func(err error)     // a connection ended, or was refused; Run decides whether to go on
	OnAssign     func(*Assignment)   // before it is started
	OnOutcome    func(OutcomeResult) // the server has recorded it
	OnError      func(AttemptError)  // a handler failed, a lease was lost, or an outcome was refused
}

// AttemptError is a failure that concerns one attempt. Err is the handler's error (*PanicError for a
// panic), an *Error of the server (ErrAttemptLeaseLost: the outcome was dropped), or ErrLeaseLapsed.
type AttemptError struct {
	AttemptID string
	TaskID    string
	Err       error
}

func (e AttemptError) Error() string {
	return fmt.Sprintf("attempt %s of task %s: %v", e.AttemptID, e.TaskID, e.Err)
}

// Unwrap returns Err.
func (e AttemptError) Unwrap() error { return e.Err }

// Run executes until ctx ends, then lets running handlers finish, has their outcomes answered, gives back
// what was not started, closes, and returns nil. Otherwise it returns a *StopError: for a close or refusal
// that must not be tried again (CloseError.Reconnect), or ErrDrainTimeout. Handlers' contexts carry ctx's
// values and outlive its end until DrainTimeout.
func (w Worker) Run(ctx context.Context) error {
	r, err := newWorkerRun(ctx, w)
	if err != nil {
		return &StopError{Cause: err}
	}
	defer r.cancel(nil)
	if err := r.link.run(ctx); err != nil {
		return &StopError{Cause: err}
	}
	return nil
}
