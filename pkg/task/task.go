// Package task is a unit of work and its state machine (§8).
package task

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

// RetrySafety says whether running twice is harmless.
type RetrySafety string

// Unsafe is the default: an attempt whose end is unknown goes to review instead of running again.
const (
	Unsafe RetrySafety = "unsafe"
	Safe   RetrySafety = "safe"
)

// Limits and defaults of R8.2.
const (
	MaxJSON            = 256 << 10 // bytes of input, and of result
	DefaultMaxAttempts = 3
	LimitMaxAttempts   = 100
	MaxPriority        = 100
	MaxErrorCode       = 128
	MaxErrorMessage    = 4096
)

// Failure is why the last attempt failed.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Validate checks lengths in characters.
func (f Failure) Validate() error {
	if err := ids.CheckText(f.Code, MaxErrorCode); err != nil {
		return errs.Invalid("error.code", "%v", err)
	}
	if f.Message == "" {
		return nil
	}
	if err := ids.CheckText(f.Message, MaxErrorMessage); err != nil {
		return errs.Invalid("error.message", "%v", err)
	}
	return nil
}

// Task is the object as answers show it; Input and Result only where one task is read.
type Task struct {
	ID               ids.ID         `json:"id"`
	QueueID          ids.ID         `json:"queue_id"`
	State            State          `json:"state"`
	Revision         ids.Counter    `json:"revision"`
	RetrySafety      RetrySafety    `json:"retry_safety"`
	Priority         int            `json:"priority"`
	Attempts         int            `json:"attempts"`
	MaxAttempts      int            `json:"max_attempts"`
	RunAt            time.Time      `json:"run_at"`
	EffectUncertain  bool           `json:"effect_uncertain"`
	CancelRequested  bool           `json:"cancel_requested"`
	CurrentAttemptID *ids.ID        `json:"current_attempt_id,omitzero"`
	Error            *Failure       `json:"error,omitzero"`
	CreatedAt        time.Time      `json:"created_at"`
	UpdatedAt        time.Time      `json:"updated_at"`
	FinishedAt       *time.Time     `json:"finished_at,omitzero"`
	Labels           strictjson.Raw `json:"-"` // an object of strings, or nil
	Input            strictjson.Raw `json:"-"`
	Result           strictjson.Raw `json:"-"`
}

// AppendJSON appends the object; input and result, where present, byte for byte.
func (t *Task) AppendJSON(b []byte) ([]byte, error) {
	head, err := json.Marshal(t)
	if err != nil {
		return b, fmt.Errorf("encode task %s: %w", t.ID, err)
	}
	b = append(b, head[:len(head)-1]...)
	if t.Labels != nil {
		b = append(append(b, `,"labels":`...), t.Labels...)
	}
	if t.Input != nil {
		b = append(append(b, `,"input":`...), t.Input...)
	}
	if t.Result != nil {
		b = append(append(b, `,"result":`...), t.Result...)
	}
	return append(b, '}'), nil
}

// Cancel is the body of :cancel.
type Cancel struct {
	ExpectedRevision *ids.Counter `json:"expected_revision"`
	Reason           string       `json:"reason"`
}

// Validate returns INVALID_ARGUMENT naming the field.
func (c Cancel) Validate() error {
	if c.ExpectedRevision == nil {
		return errs.Invalid("expected_revision", "is required")
	}
	if err := ids.CheckText(c.Reason, 1024); err != nil {
		return errs.Invalid("reason", "%v", err)
	}
	return nil
}

// Resolve is the body of :resolve (R8.2): what a person found out about a NEEDS_REVIEW task.
type Resolve struct {
	ExpectedRevision *ids.Counter   `json:"expected_revision"`
	Outcome          string         `json:"outcome"`
	Result           strictjson.Raw `json:"result"`
	Reason           string         `json:"reason"`
}

// ResolveCommands are the outcomes a person may decide on.
var ResolveCommands = map[string]Command{"succeeded": ResolveSucceeded, "failed": ResolveFailed, "requeue": ResolveRequeue}

// Validate returns INVALID_ARGUMENT naming the field.
func (r Resolve) Validate() error {
	if r.ExpectedRevision == nil {
		return errs.Invalid("expected_revision", "is required")
	}
	if _, ok := ResolveCommands[r.Outcome]; !ok {
		return errs.Invalid("outcome", "must be succeeded, failed or requeue")
	}
	if r.Result != nil && r.Outcome != "succeeded" {
		return errs.Invalid("result", "is only for the outcome succeeded")
	}
	if len(r.Result) > MaxJSON {
		return errs.Invalid("result", "must be at most %d bytes, has %d", MaxJSON, len(r.Result))
	}
	if err := ids.CheckText(r.Reason, 1024); err != nil {
		return errs.Invalid("reason", "%v", err)
	}
	return nil
}

// ParseState accepts one of the six states.
func ParseState(s string) (State, error) {
	if slices.Contains(States, State(s)) {
		return State(s), nil
	}
	return "", errs.Invalid("state", "must be QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED or NEEDS_REVIEW")
}

// Attempt is one leased execution.
type Attempt struct {
	ID         ids.ID      `json:"id"`
	TaskID     ids.ID      `json:"task_id"`
	Number     int         `json:"number"`
	Epoch      ids.Counter `json:"epoch"`
	LeaseUntil time.Time   `json:"lease_until"`
	StartedAt  time.Time   `json:"started_at"`
}

// AttemptState is RUNNING or how the attempt ended.
type AttemptState string

// AttemptRecord is an attempt as history shows it; LeaseUntil only while RUNNING, EndedAt after.
type AttemptRecord struct {
	ID         ids.ID       `json:"id"`
	TaskID     ids.ID       `json:"task_id"`
	Number     int          `json:"number"`
	Epoch      ids.Counter  `json:"epoch"`
	State      AttemptState `json:"state"`
	Worker     string       `json:"worker"`
	StartedAt  time.Time    `json:"started_at"`
	LeaseUntil *time.Time   `json:"lease_until,omitzero"`
	EndedAt    *time.Time   `json:"ended_at,omitzero"`
	Error      *Failure     `json:"error,omitzero"`
}

// Proof is the right to decide an attempt.
type Proof struct {
	AttemptID ids.ID
	Epoch     ids.Counter
	Digest    [32]byte
}
