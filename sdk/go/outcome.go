package orbit

import (
	"context"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxResult is the limit of a task's input and of its result, in bytes (R8.2).
const MaxResult = 256 << 10

// OutcomeResult is the server's record of an outcome. Deduplicated means that it was recorded before.
type OutcomeResult struct {
	AttemptID    string    `json:"attempt_id"`
	TaskID       string    `json:"task_id"`
	State        TaskState `json:"state"`
	Revision     Counter   `json:"revision"`
	Deduplicated bool      `json:"deduplicated"`
}

// Failure is why an attempt failed. Code has 1–128 characters, Message up to 4096; both are cut to that.
type Failure struct {
	Code       string
	Message    string
	Retryable  bool          // false: the task fails, whatever attempts are left
	RetryAfter time.Duration // 0: the server's back-off; in whole milliseconds
}

// RenewItem is the answer for one attempt of a renewal: Err is nil or an *Error (ErrAttemptLeaseLost).
type RenewItem struct {
	AttemptID       string
	LeaseUntil      time.Time
	CancelRequested bool
	Err             error
}

// Complete reports success. result is one JSON value of at most MaxResult bytes, or nil; it is sent byte
// for byte. When the answer is lost, report again, on this or another connection.
func (c *WorkerConn) Complete(ctx context.Context, p AttemptProof, result json.RawMessage) (OutcomeResult, error) {
	body, err := completeBody(p.lease(), result)
	if err != nil {
		return OutcomeResult{}, err
	}
	return c.outcome(ctx, "attempt.complete", body)
}

// Fail reports failure.
func (c *WorkerConn) Fail(ctx context.Context, p AttemptProof, f Failure) (OutcomeResult, error) {
	return c.outcome(ctx, "attempt.fail", failBody(p.lease(), f))
}

// Cancelled reports that the work was stopped because a cancel was requested.
func (c *WorkerConn) Cancelled(ctx context.Context, p AttemptProof) (OutcomeResult, error) {
	return c.outcome(ctx, "attempt.cancelled", p.lease().body("attempt_id"))
}

// Release gives back an attempt that was never started; it is not counted.
func (c *WorkerConn) Release(ctx context.Context, p AttemptProof) (OutcomeResult, error) {
	return c.outcome(ctx, "attempt.release", p.lease().body("attempt_id"))
}

// Renew renews 1–256 attempts for another full lease each and answers for each, in order.
func (c *WorkerConn) Renew(ctx context.Context, proofs []AttemptProof) ([]RenewItem, error) {
	leases := make([]lease, len(proofs))
	for i, p := range proofs {
		leases[i] = p.lease()
	}
	return c.renew(ctx, leases)
}

func (c *WorkerConn) renew(ctx context.Context, leases []lease) ([]RenewItem, error) {
	var reply struct {
		Attempts []struct {
			AttemptID       string     `json:"attempt_id"`
			LeaseUntil      time.Time  `json:"lease_until"`
			CancelRequested bool       `json:"cancel_requested"`
			Error           *wireError `json:"error"`
		} `json:"attempts"`
	}
	if err := c.call(ctx, "attempts.renew", list("attempts", "attempt_id", leases), &reply); err != nil {
		return nil, err
	}
	items := make([]RenewItem, len(reply.Attempts))
	for i, r := range reply.Attempts {
		items[i] = RenewItem{AttemptID: r.AttemptID, LeaseUntil: r.LeaseUntil, CancelRequested: r.CancelRequested, Err: r.Error.err()}
	}
	return items, nil
}

func (c *WorkerConn) outcome(ctx context.Context, typ string, body []byte) (OutcomeResult, error) {
	var r OutcomeResult
	err := c.call(ctx, typ, body, &r)
	return r, err
}

// completeBody refuses a result that the server would refuse for its form or size.
func completeBody(l lease, result json.RawMessage) ([]byte, error) {
	o := l.members("attempt_id")
	if result != nil {
		if err := checkRaw("result", result); err != nil {
			return nil, err
		}
		if len(result) > MaxResult {
			return nil, invalid("result: has %d bytes, the limit is %d", len(result), MaxResult)
		}
		o.raw("result", result)
	}
	return o.done(), nil
}

func failBody(l lease, f Failure) []byte {
	var e object
	e.put("code", cut(orElse(f.Code, codeHandler), 128))
	e.put("message", cut(f.Message, 4096))
	o := l.members("attempt_id")
	o.raw("error", e.done())
	o.put("retryable", f.Retryable)
	if f.RetryAfter > 0 && f.Retryable {
		o.put("retry_after_ms", max(1, f.RetryAfter.Milliseconds()))
	}
	return o.done()
}

// cut returns at most n characters of s, in valid UTF-8.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "�")
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n])
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
