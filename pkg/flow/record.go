package flow

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// Flow is the object as answers show it; its definitions are its versions 1…Version.
type Flow struct {
	ID        ids.ID      `json:"id"`
	Name      string      `json:"name"`
	Revision  ids.Counter `json:"revision"`
	Version   int         `json:"version"` // the newest
	CreatedAt time.Time   `json:"created_at"`
	UpdatedAt time.Time   `json:"updated_at"`
}

// Version is one published definition.
type Version struct {
	FlowID    ids.ID         `json:"flow_id"`
	Version   int            `json:"version"`
	CreatedAt time.Time      `json:"created_at"`
	Steps     strictjson.Raw `json:"-"`
}

// AppendJSON appends the object; the steps' inputs keep their bytes.
func (v *Version) AppendJSON(b []byte) ([]byte, error) {
	head, err := json.Marshal(v)
	if err != nil {
		return b, fmt.Errorf("encode version: %w", err)
	}
	b = append(append(append(b, head[:len(head)-1]...), `,"steps":`...), v.Steps...)
	return append(b, '}'), nil
}

// RunRecord is a run as answers show it. Ending is set while a run that is not final lets nothing more
// begin, and says how it will end. Steps and Input only where one run is read.
type RunRecord struct {
	ID         ids.ID         `json:"id"`
	FlowID     ids.ID         `json:"flow_id"`
	Version    int            `json:"version"`
	State      State          `json:"state"`
	Ending     State          `json:"ending,omitzero"`
	Revision   ids.Counter    `json:"revision"`
	CreatedAt  time.Time      `json:"created_at"`
	UpdatedAt  time.Time      `json:"updated_at"`
	FinishedAt *time.Time     `json:"finished_at,omitzero"`
	Steps      []StepRecord   `json:"steps,omitempty"`
	Labels     strictjson.Raw `json:"-"` // an object of strings, or nil
	Input      strictjson.Raw `json:"-"`
}

// AppendJSON appends the object; the input, where present, byte for byte.
func (r *RunRecord) AppendJSON(b []byte) ([]byte, error) {
	head, err := json.Marshal(r)
	if err != nil {
		return b, fmt.Errorf("encode run %s: %w", r.ID, err)
	}
	b = append(b, head[:len(head)-1]...)
	if r.Labels != nil {
		b = append(append(b, `,"labels":`...), r.Labels...)
	}
	if r.Input != nil {
		b = append(append(b, `,"input":`...), r.Input...)
	}
	return append(b, '}'), nil
}

// Waiting is what a step that is not finished waits for.
type Waiting string

// Why a step is where it is.
const (
	ForSteps   Waiting = "STEPS"   // that it depends on
	ForResume  Waiting = "RESUME"  // of the run
	ForQuota   Waiting = "QUOTA"   // the application's queued tasks are at their limit; tried again every second
	ForQueue   Waiting = "QUEUE"   // it is paused
	ForWorker  Waiting = "WORKER"  // the task is queued
	ForOutcome Waiting = "OUTCOME" // a worker has the task
	ForReview  Waiting = "REVIEW"  // of the task, by :resolve
)

// StepRecord is the current try of a step. TaskID is absent until it is submitted; EarlierTaskIDs are
// those of the tries before, oldest first.
type StepRecord struct {
	Name           string        `json:"name"`
	State          StepState     `json:"state"`
	WaitingFor     Waiting       `json:"waiting_for,omitzero"`
	Try            int           `json:"try"`
	QueueID        ids.ID        `json:"queue_id"`
	DependsOn      []string      `json:"depends_on,omitempty"`
	TaskID         *ids.ID       `json:"task_id,omitzero"`
	EarlierTaskIDs []ids.ID      `json:"earlier_task_ids,omitempty"`
	Error          *task.Failure `json:"error,omitzero"`
	SubmittedAt    *time.Time    `json:"submitted_at,omitzero"`
	FinishedAt     *time.Time    `json:"finished_at,omitzero"`
}

// Waiting says why a step has no task yet: "" unless it is WAITING.
func (p *Plan) Waiting(r *Run, step int) Waiting {
	switch {
	case r.Steps[step].State != StepWaiting:
		return ""
	case !p.met(r, step):
		return ForSteps
	case r.State == Paused:
		return ForResume
	}
	return ForQuota
}

// Create is the body of POST /v1/flows.
type Create struct {
	Name  string `json:"name"`
	Steps []Step `json:"steps"`
}

// Plan checks the whole body.
func (c *Create) Plan() (*Plan, error) {
	if err := ids.CheckName(c.Name); err != nil {
		return nil, errs.Invalid("name", "%v", err)
	}
	d := Definition{Steps: c.Steps}
	return d.Plan()
}

// Publish is the body of :publish.
type Publish struct {
	ExpectedRevision *ids.Counter `json:"expected_revision"`
	Reason           string       `json:"reason"`
	Steps            []Step       `json:"steps"`
}

// Plan checks the whole body.
func (c *Publish) Plan() (*Plan, error) {
	if c.ExpectedRevision == nil {
		return nil, errs.Invalid("expected_revision", "is required")
	}
	if err := ids.CheckText(c.Reason, 1024); err != nil {
		return nil, errs.Invalid("reason", "%v", err)
	}
	d := Definition{Steps: c.Steps}
	return d.Plan()
}

// MaxVersion of a flow.
const MaxVersion = 1_000_000

// Start is the body of POST /v1/flows/{id}/runs.
type Start struct {
	Version int               `json:"version"` // 0: the newest
	Input   strictjson.Raw    `json:"input"`   // omitted: null
	Labels  map[string]string `json:"labels"`
}

// Normalise applies defaults and checks limits; errors are INVALID_ARGUMENT and name the field.
func (s *Start) Normalise() error {
	if s.Version < 0 || s.Version > MaxVersion {
		return errs.Invalid("version", "must be 0 (the newest) or 1…%d, is %d", MaxVersion, s.Version)
	}
	if s.Input == nil {
		s.Input = strictjson.Raw("null")
	}
	sub := task.Submit{QueueID: &ids.ID{}, Input: s.Input, Labels: s.Labels}
	return sub.Normalise()
}

// LabelsJSON is the stored form, nil without labels.
func (s *Start) LabelsJSON() []byte {
	sub := task.Submit{Labels: s.Labels}
	return sub.LabelsJSON()
}

// Command is the body of a run's :pause, :resume and :cancel, and of a step's :retry. ExpectedRevision
// is optional: without it the command holds for whatever the run has come to.
type Command struct {
	ExpectedRevision *ids.Counter `json:"expected_revision"`
	Reason           string       `json:"reason"`
}

// Validate returns INVALID_ARGUMENT naming the field.
func (c Command) Validate() error {
	if err := ids.CheckText(c.Reason, 1024); err != nil {
		return errs.Invalid("reason", "%v", err)
	}
	return nil
}

// ParseState accepts one of the six states.
func ParseState(s string) (State, error) {
	if slices.Contains(States, State(s)) {
		return State(s), nil
	}
	return "", errs.Invalid("state", "must be RUNNING, PAUSED, WAITING_REVIEW, SUCCEEDED, FAILED or CANCELLED")
}
