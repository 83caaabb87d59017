package orbit

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// ErrCancelRequested is the cause (context.Cause) with which a worker handler's context is cancelled when the
// task's cancel was requested. Other causes are ErrAttemptLeaseLost, ErrDeliveryLeaseLost, ErrDraining and
// ErrDrainTimeout.
var ErrCancelRequested = errors.New("orbit: the task's cancel was requested")

// Codes of failures that the SDK reports for a handler.
const (
	codeHandler       = "HANDLER_ERROR"    // the handler returned an error without a code of its own
	codePanic         = "HANDLER_PANIC"    // it panicked
	codeInvalidResult = "RESULT_INVALID"   // its result is not JSON that Orbit takes
	codeTooLarge      = "RESULT_TOO_LARGE" // its result has more than MaxResult bytes
)

// taskError carries what a handler wants to be done with its error.
type taskError struct {
	code      string
	permanent bool
	after     time.Duration
	err       error
}

func (e *taskError) Error() string { return e.err.Error() }
func (e *taskError) Unwrap() error { return e.err }

// Permanent marks a worker handler's error as not retryable: the task fails whatever attempts are left.
// nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &taskError{permanent: true, err: err}
}

// RetryAfter asks that the task (of a Worker), or the delivery (of a Consumer that is not Basic, at most
// 15 minutes), comes again after d and not sooner. nil stays nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &taskError{after: d, err: err}
}

// WithCode gives a worker handler's error the code that the task's error shows, 1–128 characters. The
// default is HANDLER_ERROR. nil stays nil.
func WithCode(code string, err error) error {
	if err == nil {
		return nil
	}
	return &taskError{code: code, err: err}
}

// PanicError is a handler's panic, turned into an error.
type PanicError struct {
	Value any
	Stack []byte // of the handler's goroutine; it never leaves the process
}

// Error names the value.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value when it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// recovered turns a panic under way into err; it must be deferred.
func recovered(err *error) {
	if value := recover(); value != nil {
		*err = &PanicError{Value: value, Stack: debug.Stack()}
	}
}

// wishes collects what the layers of a handler's error ask for; the outermost word counts.
func wishes(err error) taskError {
	w := taskError{err: err}
	for e := (*taskError)(nil); errors.As(err, &e); err = e.err {
		w.permanent = w.permanent || e.permanent
		if w.code == "" {
			w.code = e.code
		}
		if w.after == 0 {
			w.after = e.after
		}
	}
	return w
}

// failureOf is what the server is told of a handler's error.
func failureOf(err error) Failure {
	w := wishes(err)
	var panicked *PanicError
	if w.code == "" && errors.As(err, &panicked) {
		w.code = codePanic
	}
	return Failure{Code: w.code, Message: err.Error(), Retryable: !w.permanent, RetryAfter: w.after}
}
