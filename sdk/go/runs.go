package orbit

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// RunState is the state of a flow's run. SUCCEEDED, FAILED and CANCELLED are final, unless a step is retried.
type RunState = string

// The run states.
const (
	RunStateRunning       RunState = "RUNNING"
	RunStatePaused        RunState = "PAUSED"
	RunStateWaitingReview RunState = "WAITING_REVIEW"
	RunStateSucceeded     RunState = "SUCCEEDED"
	RunStateFailed        RunState = "FAILED"
	RunStateCancelled     RunState = "CANCELLED"
)

// Run is one execution of a flow's version. Ending says how a run that lets nothing more begin will end.
// Input, byte for byte, and Steps are present only in GetRun.
type Run struct {
	ID         string            `json:"id"`
	FlowID     string            `json:"flow_id"`
	Version    int               `json:"version"`
	State      RunState          `json:"state"`
	Ending     RunState          `json:"ending,omitempty"`
	Revision   Counter           `json:"revision"`
	CreatedAt  time.Time         `json:"created_at"`
	UpdatedAt  time.Time         `json:"updated_at"`
	FinishedAt *time.Time        `json:"finished_at,omitempty"`
	Steps      []RunStep         `json:"steps,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Input      json.RawMessage   `json:"input,omitempty"`
}

// RunStep is the current try of a step.
type RunStep struct {
	Name           string       `json:"name"`
	State          string       `json:"state"`                 // WAITING, SUBMITTED, RUNNING, SUCCEEDED, FAILED, CANCELLED, NEEDS_REVIEW or SKIPPED
	WaitingFor     string       `json:"waiting_for,omitempty"` // STEPS, RESUME, QUOTA, QUEUE, WORKER, OUTCOME or REVIEW
	Try            int          `json:"try"`
	QueueID        string       `json:"queue_id"`
	DependsOn      []string     `json:"depends_on,omitempty"`
	TaskID         string       `json:"task_id,omitempty"`
	EarlierTaskIDs []string     `json:"earlier_task_ids,omitempty"` // of the tries before, oldest first
	Error          *TaskFailure `json:"error,omitempty"`
	SubmittedAt    *time.Time   `json:"submitted_at,omitempty"`
	FinishedAt     *time.Time   `json:"finished_at,omitempty"`
}

// RunResult answers a command: the run as the first execution of the key left it.
type RunResult struct {
	Run          Run  `json:"run"`
	Deduplicated bool `json:"deduplicated"`
}

// StartFlowRequest begins a run.
type StartFlowRequest struct {
	Version int               `json:"version,omitempty"` // 0: the newest
	Input   json.RawMessage   `json:"input,omitempty"`   // nil: null; kept byte for byte
	Labels  map[string]string `json:"labels,omitempty"`
}

// RunCommandRequest pauses, resumes or cancels a run, or retries one of its steps.
type RunCommandRequest struct {
	ExpectedRevision *Counter `json:"expected_revision,omitempty"` // nil: whatever the run has come to
	Reason           string   `json:"reason"`                      // 1–1024 characters
}

// StartFlow starts a run of a version. A full quota is no error: the run waits for room.
func (c *Client) StartFlow(ctx context.Context, flowID, key string, r StartFlowRequest) (*RunResult, error) {
	var o object
	if r.Version != 0 {
		o.put("version", r.Version)
	}
	if r.Input != nil {
		if err := checkRaw("input", r.Input); err != nil {
			return nil, err
		}
		o.raw("input", r.Input)
	}
	if len(r.Labels) > 0 {
		o.put("labels", r.Labels)
	}
	out := new(RunResult)
	return result(out, c.command(ctx, "flows", flowID, "/runs", key, o.done(), out))
}

// GetRun reads a run with its input and its steps.
func (c *Client) GetRun(ctx context.Context, id string) (*Run, error) {
	out := new(Run)
	return result(out, c.one(ctx, "runs", id, "", nil, out))
}

// ListRunsRequest selects a flow's runs.
type ListRunsRequest struct {
	FlowID string   // required
	State  RunState // "": all
	Limit  int      // 1–100 (0: 20)
	Cursor string
}

// ListRuns reads one page, newest first, without inputs and steps.
func (c *Client) ListRuns(ctx context.Context, r ListRunsRequest) (*Page[Run], error) {
	q := ListOptions{Limit: r.Limit, Cursor: r.Cursor}.query()
	set(q, "state", r.State)
	out := new(Page[Run])
	return result(out, c.one(ctx, "flows", r.FlowID, "/runs", q, out))
}

// AllRuns reads page after page. A failure is yielded once and ends the sequence.
func (c *Client) AllRuns(ctx context.Context, r ListRunsRequest) iter.Seq2[Run, error] {
	start := ListOptions{Limit: r.Limit, Cursor: r.Cursor}
	return all(ctx, start, func(ctx context.Context, o ListOptions) (*Page[Run], error) {
		r.Limit, r.Cursor = o.Limit, o.Cursor
		return c.ListRuns(ctx, r)
	})
}

// PauseRun lets nothing more begin; what runs goes on.
func (c *Client) PauseRun(ctx context.Context, id, key string, r RunCommandRequest) (*RunResult, error) {
	return c.commandRun(ctx, id, ":pause", key, r)
}

// ResumeRun lets a paused run go on.
func (c *Client) ResumeRun(ctx context.Context, id, key string, r RunCommandRequest) (*RunResult, error) {
	return c.commandRun(ctx, id, ":resume", key, r)
}

// CancelRun cancels queued tasks and asks the workers of running ones; the run is CANCELLED once none is live.
func (c *Client) CancelRun(ctx context.Context, id, key string, r RunCommandRequest) (*RunResult, error) {
	return c.commandRun(ctx, id, ":cancel", key, r)
}

// RetryRunStep gives a FAILED or CANCELLED step another try, and with it what was cancelled or skipped.
func (c *Client) RetryRunStep(ctx context.Context, id, step, key string, r RunCommandRequest) (*RunResult, error) {
	if !isName(step) {
		return nil, invalid("step: must be 1–128 of A–Z a–z 0–9 . _ -")
	}
	return c.commandRun(ctx, id, "/steps/"+step+":retry", key, r)
}

func (c *Client) commandRun(ctx context.Context, id, rest, key string, r RunCommandRequest) (*RunResult, error) {
	out := new(RunResult)
	return result(out, c.command(ctx, "runs", id, rest, key, plain(r), out))
}
