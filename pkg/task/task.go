// Package task is a unit of work and its state machine (§8).
package task

import (
	"fmt"
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
	if t.Input != nil {
		b = append(append(b, `,"input":`...), t.Input...)
	}
	if t.Result != nil {
		b = append(append(b, `,"result":`...), t.Result...)
	}
	return append(b, '}'), nil
}

// Submit is the body of POST /v1/tasks.
type Submit struct {
	QueueID     *ids.ID        `json:"queue_id"`
	Input       strictjson.Raw `json:"input"`
	RetrySafety string         `json:"retry_safety"`
	MaxAttempts int            `json:"max_attempts"`
	RunAt       *time.Time     `json:"run_at"`
	Priority    int            `json:"priority"`
}

// Normalise applies defaults and checks limits; errors are INVALID_ARGUMENT and name the field.
func (s *Submit) Normalise() error {
	if s.QueueID == nil {
		return errs.Invalid("queue_id", "is required")
	}
	if s.Input == nil {
		return errs.Invalid("input", "is required (any JSON value)")
	}
	if len(s.Input) > MaxJSON {
		return errs.Invalid("input", "must be at most %d bytes, has %d", MaxJSON, len(s.Input))
	}
	if s.RetrySafety == "" {
		s.RetrySafety = string(Unsafe)
	}
	if s.RetrySafety != string(Safe) && s.RetrySafety != string(Unsafe) {
		return errs.Invalid("retry_safety", "must be safe or unsafe")
	}
	if s.MaxAttempts == 0 {
		s.MaxAttempts = DefaultMaxAttempts
	}
	if s.MaxAttempts < 1 || s.MaxAttempts > LimitMaxAttempts {
		return errs.Invalid("max_attempts", "must be 0 (default %d) or 1…%d, is %d", DefaultMaxAttempts, LimitMaxAttempts, s.MaxAttempts)
	}
	if s.Priority < -MaxPriority || s.Priority > MaxPriority {
		return errs.Invalid("priority", "must be %d…%d, is %d", -MaxPriority, MaxPriority, s.Priority)
	}
	if s.RunAt != nil && (s.RunAt.Year() < 1970 || s.RunAt.Year() > 9998) {
		return errs.Invalid("run_at", "must be a year 1970…9998")
	}
	return nil
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

// Attempt is one leased execution.
type Attempt struct {
	ID         ids.ID      `json:"id"`
	TaskID     ids.ID      `json:"task_id"`
	Number     int         `json:"number"`
	Epoch      ids.Counter `json:"epoch"`
	LeaseUntil time.Time   `json:"lease_until"`
	StartedAt  time.Time   `json:"started_at"`
}

// Proof is the right to decide an attempt.
type Proof struct {
	AttemptID ids.ID
	Epoch     ids.Counter
	Digest    [32]byte
}
