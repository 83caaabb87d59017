package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// SubmitTaskRequest describes a task. Input is required: one JSON value of at most 256 KiB, without
// duplicate keys, sent and kept byte for byte.
type SubmitTaskRequest struct {
	QueueID     string
	Input       json.RawMessage
	RetrySafety RetrySafety       // "": Unsafe
	MaxAttempts int               // 1–100 (0: 3)
	RunAt       time.Time         // not before; zero: now
	Priority    int               // −100…100, higher first
	Labels      map[string]string // optional
}

func (r SubmitTaskRequest) encode() ([]byte, error) {
	var o object
	o.put("queue_id", r.QueueID)
	if err := r.put(&o); err != nil {
		return nil, err
	}
	return o.done(), nil
}

// put appends all but the queue.
func (r SubmitTaskRequest) put(o *object) error {
	if r.Input != nil {
		if err := checkRaw("input", r.Input); err != nil {
			return err
		}
		o.raw("input", r.Input)
	}
	if r.RetrySafety != "" {
		o.put("retry_safety", r.RetrySafety)
	}
	if r.MaxAttempts != 0 {
		o.put("max_attempts", r.MaxAttempts)
	}
	if !r.RunAt.IsZero() {
		o.time("run_at", r.RunAt)
	}
	if r.Priority != 0 {
		o.put("priority", r.Priority)
	}
	if len(r.Labels) > 0 {
		o.put("labels", r.Labels)
	}
	return nil
}

// CancelTaskRequest asks for a task to be cancelled.
type CancelTaskRequest struct {
	ExpectedRevision Counter `json:"expected_revision"`
	Reason           string  `json:"reason"` // 1–1024 characters
}

// ResolveTaskRequest decides a task in NEEDS_REVIEW.
type ResolveTaskRequest struct {
	ExpectedRevision Counter
	Outcome          string          // ResolveSucceeded, ResolveFailed or ResolveRequeue
	Result           json.RawMessage // with ResolveSucceeded, optional; kept byte for byte
	Reason           string          // 1–1024 characters
}

// What a review may decide.
const (
	ResolveSucceeded = "succeeded"
	ResolveFailed    = "failed"
	ResolveRequeue   = "requeue"
)

// SubmitTask submits one task. ErrCapacityExceeded: a quota is used up; ErrResourceRetired: the queue is.
func (c *Client) SubmitTask(ctx context.Context, key string, r SubmitTaskRequest) (*TaskResult, error) {
	body, err := r.encode()
	if err != nil {
		return nil, err
	}
	out := new(TaskResult)
	return result(out, c.post(ctx, "/v1/tasks", key, body, out))
}

// SubmitTasks submits up to 500 tasks in one transaction: all or none. The whole request must stay within
// 512 KiB (R2.4).
func (c *Client) SubmitTasks(ctx context.Context, key string, requests []SubmitTaskRequest) (*TasksResult, error) {
	items := []byte{'['}
	for i, r := range requests {
		item, err := r.encode()
		if err != nil {
			var refused *Error
			if errors.As(err, &refused) {
				return nil, invalid("tasks[%d].%s", i, refused.Message)
			}
			return nil, err
		}
		if i > 0 {
			items = append(items, ',')
		}
		items = append(items, item...)
	}
	var o object
	o.raw("tasks", append(items, ']'))
	out := new(TasksResult)
	return result(out, c.post(ctx, "/v1/tasks:batch", key, o.done(), out))
}

// CancelTask cancels a queued task at once; of a running one the worker is told, and its answer decides
// (R8.5).
func (c *Client) CancelTask(ctx context.Context, id, key string, r CancelTaskRequest) (*TaskResult, error) {
	out := new(TaskResult)
	return result(out, c.command(ctx, "tasks", id, ":cancel", key, plain(r), out))
}

// ResolveTask decides a task in NEEDS_REVIEW (R8.3).
func (c *Client) ResolveTask(ctx context.Context, id, key string, r ResolveTaskRequest) (*TaskResult, error) {
	var o object
	o.put("expected_revision", r.ExpectedRevision)
	o.put("outcome", r.Outcome)
	if r.Result != nil {
		if err := checkRaw("result", r.Result); err != nil {
			return nil, err
		}
		o.raw("result", r.Result)
	}
	o.put("reason", r.Reason)
	out := new(TaskResult)
	return result(out, c.command(ctx, "tasks", id, ":resolve", key, o.done(), out))
}
