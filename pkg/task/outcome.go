package task

import (
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

// OutcomeKind is how an attempt ended.
type OutcomeKind string

// Lost is the sweeper's; the others are a worker's report.
const (
	OutcomeComplete  OutcomeKind = "complete"
	OutcomeFail      OutcomeKind = "fail"
	OutcomeCancelled OutcomeKind = "cancelled"
	OutcomeRelease   OutcomeKind = "release"
	OutcomeLost      OutcomeKind = "lost"
)

// Outcome is the report on one attempt with the proof of its lease.
type Outcome struct {
	Kind       OutcomeKind
	Proof      Proof
	Result     strictjson.Raw
	Failure    *Failure
	Retryable  bool
	RetryAfter *time.Duration // nil: exponential back-off
}

// Size is what the outcome weighs in a transaction, in bytes.
func (o *Outcome) Size() int { return 512 + 2*len(o.Result) }

// CommandFor decides what an outcome does to a task in this standing.
func (o *Outcome) CommandFor(safety RetrySafety, attempts, maxAttempts int, cancelRequested bool) Command {
	switch o.Kind {
	case OutcomeComplete:
		return Complete
	case OutcomeFail:
		return FailCommand(o.Retryable, attempts, maxAttempts, cancelRequested)
	case OutcomeCancelled:
		return ConfirmCancel
	case OutcomeRelease:
		return Release
	}
	return LoseCommand(safety, attempts, maxAttempts, cancelRequested)
}

// Back-off after the n-th attempt failed: 1 s doubled each time, at most 10 min, minus up to half by
// jitter so that tasks that failed together do not return together.
const (
	backoffBase = time.Second
	backoffMax  = 10 * time.Minute
)

// Backoff takes random in [0, 1).
func Backoff(attempts int, random float64) time.Duration {
	d := backoffMax
	if shift := attempts - 1; shift < 10 {
		d = min(backoffBase<<max(shift, 0), backoffMax)
	}
	return d - time.Duration(random*float64(d)/2)
}
