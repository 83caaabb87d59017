package task

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

// Limits of a submit beyond R8.2's own.
const (
	MaxBatch      = 500
	MaxLabels     = 16
	MaxLabelName  = 64
	MaxLabelValue = 128 // Unicode characters
)

// Submit is the body of POST /v1/tasks.
type Submit struct {
	QueueID     *ids.ID           `json:"queue_id"`
	Input       strictjson.Raw    `json:"input"`
	RetrySafety string            `json:"retry_safety"`
	MaxAttempts int               `json:"max_attempts"`
	RunAt       *time.Time        `json:"run_at"`
	Priority    int               `json:"priority"`
	Labels      map[string]string `json:"labels"`
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
	return s.checkLabels()
}

// checkLabels allows up to MaxLabels names (1–64 characters of R1.6) with values of 1–128 characters.
func (s *Submit) checkLabels() error {
	if len(s.Labels) > MaxLabels {
		return errs.Invalid("labels", "must have at most %d, has %d", MaxLabels, len(s.Labels))
	}
	for name, value := range s.Labels {
		if err := ids.CheckName(name); err != nil || len(name) > MaxLabelName {
			return errs.Invalid("labels", "a name must be 1…%d characters, letters, digits, '.', '_' and '-', first a letter or digit", MaxLabelName)
		}
		if err := ids.CheckText(value, MaxLabelValue); err != nil {
			return errs.Invalid("labels."+name, "%v", err)
		}
	}
	return nil
}

// LabelsJSON is the stored form: an object with sorted names, nil without labels.
func (s *Submit) LabelsJSON() []byte {
	if len(s.Labels) == 0 {
		return nil
	}
	b, err := json.Marshal(s.Labels, json.Deterministic(true))
	if err != nil { // checked strings always encode
		return nil
	}
	return b
}

// Batch is the body of POST /v1/tasks:batch.
type Batch struct {
	Tasks []Submit `json:"tasks"`
}

// Normalise checks every task; an error names the item and the field.
func (b *Batch) Normalise() error {
	if n := len(b.Tasks); n < 1 || n > MaxBatch {
		return errs.Invalid("tasks", "must have 1…%d items, has %d", MaxBatch, n)
	}
	for i := range b.Tasks {
		if err := b.Tasks[i].Normalise(); err != nil {
			return errs.Invalid(fmt.Sprintf("tasks.%d", i), "%s", errs.MessageOf(err))
		}
	}
	return nil
}
