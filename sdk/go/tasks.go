package orbit

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// TaskState is the state of a task (R8.3).
type TaskState = string

// The task states. NEEDS_REVIEW waits for ResolveTask.
const (
	TaskStateQueued      TaskState = "QUEUED"
	TaskStateRunning     TaskState = "RUNNING"
	TaskStateSucceeded   TaskState = "SUCCEEDED"
	TaskStateFailed      TaskState = "FAILED"
	TaskStateCancelled   TaskState = "CANCELLED"
	TaskStateNeedsReview TaskState = "NEEDS_REVIEW"
)

// RetrySafety says whether an attempt that was lost may be repeated (R8.4).
type RetrySafety = string

// A lost attempt of a safe task is retried; that of an unsafe one makes it NEEDS_REVIEW.
const (
	Safe   RetrySafety = "safe"
	Unsafe RetrySafety = "unsafe"
)

// Task is a unit of work (§8). Input and Result are the JSON text byte for byte, present only in GetTask.
type Task struct {
	ID               string            `json:"id"`
	QueueID          string            `json:"queue_id"`
	State            TaskState         `json:"state"`
	Revision         Counter           `json:"revision"`
	RetrySafety      RetrySafety       `json:"retry_safety"`
	Priority         int               `json:"priority"`
	Attempts         int               `json:"attempts"`
	MaxAttempts      int               `json:"max_attempts"`
	RunAt            time.Time         `json:"run_at"`
	EffectUncertain  bool              `json:"effect_uncertain"`
	CancelRequested  bool              `json:"cancel_requested"`
	CurrentAttemptID string            `json:"current_attempt_id,omitempty"`
	Labels           map[string]string `json:"labels,omitempty"`
	Input            json.RawMessage   `json:"input,omitempty"`
	Result           json.RawMessage   `json:"result,omitempty"`
	Error            *TaskFailure      `json:"error,omitempty"`
	CreatedAt        time.Time         `json:"created_at"`
	UpdatedAt        time.Time         `json:"updated_at"`
	FinishedAt       *time.Time        `json:"finished_at,omitempty"`
}

// TaskFailure is why the last attempt failed.
type TaskFailure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// TaskAttempt is one leased execution in a task's history. LeaseUntil is set while it is RUNNING, EndedAt
// afterwards.
type TaskAttempt struct {
	ID         string       `json:"id"`
	TaskID     string       `json:"task_id"`
	Number     int          `json:"number"`
	Epoch      Counter      `json:"epoch"`
	State      string       `json:"state"` // RUNNING, SUCCEEDED, FAILED, LOST or CANCELLED
	Worker     string       `json:"worker"`
	StartedAt  time.Time    `json:"started_at"`
	LeaseUntil *time.Time   `json:"lease_until,omitempty"`
	EndedAt    *time.Time   `json:"ended_at,omitempty"`
	Error      *TaskFailure `json:"error,omitempty"`
}

// TaskResult answers a command: the task as the first execution of the key left it.
type TaskResult struct {
	Task         Task `json:"task"`
	Deduplicated bool `json:"deduplicated"`
}

// TasksResult answers SubmitTasks, in the order of the requests.
type TasksResult struct {
	Tasks        []Task `json:"tasks"`
	Deduplicated bool   `json:"deduplicated"`
}

// GetTask reads a task with input and result.
func (c *Client) GetTask(ctx context.Context, id string) (*Task, error) {
	out := new(Task)
	return result(out, c.one(ctx, "tasks", id, "", nil, out))
}

// ListTasksRequest selects a queue's tasks.
type ListTasksRequest struct {
	QueueID string    // required
	State   TaskState // "": all
	Label   string    // name:value; "": all
	Limit   int       // 1–100 (0: 20)
	Cursor  string
}

// ListTasks reads one page, without inputs and results.
func (c *Client) ListTasks(ctx context.Context, r ListTasksRequest) (*Page[Task], error) {
	q := ListOptions{Limit: r.Limit, Cursor: r.Cursor}.query()
	set(q, "queue_id", r.QueueID)
	set(q, "state", r.State)
	set(q, "label", r.Label)
	out := new(Page[Task])
	return result(out, c.get(ctx, "/v1/tasks", q, out))
}

// AllTasks reads page after page. A failure is yielded once and ends the sequence.
func (c *Client) AllTasks(ctx context.Context, r ListTasksRequest) iter.Seq2[Task, error] {
	start := ListOptions{Limit: r.Limit, Cursor: r.Cursor}
	return all(ctx, start, func(ctx context.Context, o ListOptions) (*Page[Task], error) {
		r.Limit, r.Cursor = o.Limit, o.Cursor
		return c.ListTasks(ctx, r)
	})
}

// ListTaskAttempts reads one page of a task's attempts.
func (c *Client) ListTaskAttempts(ctx context.Context, taskID string, o ListOptions) (*Page[TaskAttempt], error) {
	out := new(Page[TaskAttempt])
	return result(out, c.one(ctx, "tasks", taskID, "/attempts", o.query(), out))
}

// AllTaskAttempts reads page after page. A failure is yielded once and ends the sequence.
func (c *Client) AllTaskAttempts(ctx context.Context, taskID string) iter.Seq2[TaskAttempt, error] {
	return all(ctx, ListOptions{}, func(ctx context.Context, o ListOptions) (*Page[TaskAttempt], error) {
		return c.ListTaskAttempts(ctx, taskID, o)
	})
}
