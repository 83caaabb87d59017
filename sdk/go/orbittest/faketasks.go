package orbittest

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

func (f *Fake) hasTask(r *request) error {
	if f.state.task(r.ids[0]) == nil {
		return missing("task", r.ids[0])
	}
	return nil
}

// taskText is the object without input and result, or with them byte for byte.
func taskText(t *task, whole bool) []byte {
	head := t.Task
	head.Input, head.Result = nil, nil
	text := encode(head)
	if whole {
		text = with(text, "input", t.Input)
		if t.Result != nil {
			text = with(text, "result", t.Result)
		}
	}
	return text
}

func taskData(t *task) []byte { return with([]byte("{}"), "task", taskText(t, false)) }

type submission struct {
	QueueID     string            `json:"queue_id"`
	Input       json.RawMessage   `json:"input"`
	RetrySafety string            `json:"retry_safety"`
	MaxAttempts int               `json:"max_attempts"`
	RunAt       *time.Time        `json:"run_at"`
	Priority    int               `json:"priority"`
	Labels      map[string]string `json:"labels"`
}

func (s *submission) check() error {
	if s.RetrySafety == "" {
		s.RetrySafety = orbit.Unsafe
	}
	if s.MaxAttempts == 0 {
		s.MaxAttempts = 3
	}
	switch {
	case !idForm.MatchString(s.QueueID):
		return refuse(orbit.ErrInvalidArgument, "queue_id: must be 32 lowercase hex characters")
	case s.Input == nil:
		return refuse(orbit.ErrInvalidArgument, "input: is required (any JSON value)")
	case len(s.Input) > orbit.MaxResult:
		return refuse(orbit.ErrInvalidArgument, "input: must be at most %d bytes, has %d", orbit.MaxResult, len(s.Input))
	case s.RetrySafety != orbit.Safe && s.RetrySafety != orbit.Unsafe:
		return refuse(orbit.ErrInvalidArgument, "retry_safety: must be safe or unsafe")
	case len(s.Labels) > 16:
		return refuse(orbit.ErrInvalidArgument, "labels: must have at most 16, has %d", len(s.Labels))
	}
	for name, value := range s.Labels {
		if !nameForm.MatchString(name) || len(name) > 64 || value == "" || len([]rune(value)) > 128 {
			return refuse(orbit.ErrInvalidArgument, "labels: names have 1…64 characters, values 1…128")
		}
	}
	return firstOf(checkRange("max_attempts", s.MaxAttempts, 1, 100), checkRange("priority", s.Priority, -100, 100))
}

// open finds the queue of a submit.
func (f *Fake) openQueue(id string) (*queue, error) {
	q := f.state.queue(id)
	if q == nil {
		return nil, missing("queue", id)
	}
	return q, live("queue", id, q.RetiredAt != nil)
}

func (f *Fake) enter(s *submission) (*task, error) {
	q, err := f.openQueue(s.QueueID)
	if err != nil {
		return nil, err
	}
	at := now()
	t := &task{due: at, Task: orbit.Task{ID: orbit.NewID(), QueueID: q.ID, State: orbit.TaskStateQueued, Revision: "1", RetrySafety: s.RetrySafety,
		Priority: s.Priority, MaxAttempts: s.MaxAttempts, RunAt: at, Labels: s.Labels, Input: s.Input, CreatedAt: at, UpdatedAt: at}}
	if s.RunAt != nil {
		t.RunAt, t.due = s.RunAt.UTC().Truncate(time.Microsecond), s.RunAt.UTC()
	}
	f.state.tasks = append(f.state.tasks, t)
	q.enqueue(t)
	return t, nil
}

func (f *Fake) submitTask(r *request) ([]byte, error) {
	var body submission
	if err := decode(r.body, &body); err != nil {
		return nil, err
	}
	if err := body.check(); err != nil {
		return nil, err
	}
	t, err := f.enter(&body)
	if err != nil {
		return nil, err
	}
	f.note(r, "task.submit", t.ID, nil)
	return taskData(t), nil
}

func (f *Fake) submitTasks(r *request) ([]byte, error) {
	var body struct {
		Tasks []submission `json:"tasks"`
	}
	if err := firstOf(decode(r.body, &body), checkRange("tasks", len(body.Tasks), 1, 500)); err != nil {
		return nil, err
	}
	for i := range body.Tasks { // all or none
		if err := body.Tasks[i].check(); err != nil {
			return nil, err
		}
		if _, err := f.openQueue(body.Tasks[i].QueueID); err != nil {
			return nil, err
		}
	}
	var texts [][]byte
	for i := range body.Tasks {
		t, err := f.enter(&body.Tasks[i])
		if err != nil {
			return nil, err
		}
		f.note(r, "task.submit", t.ID, nil)
		texts = append(texts, taskText(t, false))
	}
	list := append([]byte{'['}, slices.Concat(join(texts)...)...)
	return with([]byte("{}"), "tasks", append(list, ']')), nil
}

// join puts commas between texts.
func join(texts [][]byte) [][]byte {
	var out [][]byte
	for i, text := range texts {
		if i > 0 {
			out = append(out, []byte{','})
		}
		out = append(out, text)
	}
	return out
}

func (f *Fake) getTask(r *request) ([]byte, error) {
	if err := f.hasTask(r); err != nil {
		return nil, err
	}
	return taskText(f.state.task(r.ids[0]), true), nil
}

func (f *Fake) listTasks(r *request) ([]byte, error) {
	queueID, state, label := r.query.Get("queue_id"), r.query.Get("state"), r.query.Get("label")
	if !idForm.MatchString(queueID) {
		return nil, refuse(orbit.ErrInvalidArgument, "queue_id: is required, 32 lowercase hex characters")
	}
	if f.state.queue(queueID) == nil {
		return nil, missing("queue", queueID)
	}
	switch state {
	case "", orbit.TaskStateQueued, orbit.TaskStateRunning, orbit.TaskStateSucceeded, orbit.TaskStateFailed, orbit.TaskStateCancelled, orbit.TaskStateNeedsReview:
	default:
		return nil, refuse(orbit.ErrInvalidArgument, "state: must be one of a task's six")
	}
	name, value, labelled := strings.Cut(label, ":")
	if label != "" && !labelled {
		return nil, refuse(orbit.ErrInvalidArgument, "label: must be name:value")
	}
	var found []*task
	for _, t := range reversed(f.state.tasks) {
		if t.QueueID == queueID && (state == "" || t.State == state) && (!labelled || t.Labels[name] == value) {
			found = append(found, t)
		}
	}
	return page(r, "tasks "+queueID+state+label, found, func(t *task) []byte { return taskText(t, false) })
}

func (f *Fake) listAttempts(r *request) ([]byte, error) {
	if err := f.hasTask(r); err != nil {
		return nil, err
	}
	var found []*attempt
	for _, a := range f.state.attempts {
		if a.TaskID == r.ids[0] {
			found = append(found, a)
		}
	}
	slices.SortFunc(found, func(a, b *attempt) int { return strings.Compare(a.ID, b.ID) })
	return page(r, "attempts "+r.ids[0], found, func(a *attempt) []byte { return encode(a.TaskAttempt) })
}

func (f *Fake) cancelTask(r *request) ([]byte, error) {
	var body retirement
	if err := body.read(r); err != nil {
		return nil, err
	}
	t := f.state.task(r.ids[0])
	if err := checkRevision("task", t.ID, t.Revision, body.ExpectedRevision); err != nil {
		return nil, err
	}
	switch t.State {
	case orbit.TaskStateQueued:
		f.state.queue(t.QueueID).dequeue(t)
		t.CancelRequested = true
		f.state.move(t, orbit.TaskStateCancelled, orbit.TaskCancelled, "CANCEL_REQUESTED", nil, nil)
	case orbit.TaskStateRunning:
		t.CancelRequested, t.Revision, t.UpdatedAt = true, next(t.Revision), now()
	default:
		return nil, refuse(orbit.ErrStateConflict, "task %s is %s and can no longer be cancelled", t.ID, t.State)
	}
	f.note(r, "task.cancel", t.ID, map[string]string{"reason": body.Reason})
	return taskData(t), nil
}

func (f *Fake) resolveTask(r *request) ([]byte, error) {
	var body struct {
		ExpectedRevision *orbit.Counter  `json:"expected_revision"`
		Outcome          string          `json:"outcome"`
		Result           json.RawMessage `json:"result"`
		Reason           string          `json:"reason"`
	}
	if err := firstOf(decode(r.body, &body), checkCounter("expected_revision", body.ExpectedRevision), checkReason(body.Reason)); err != nil {
		return nil, err
	}
	switch {
	case body.Outcome != orbit.ResolveSucceeded && body.Outcome != orbit.ResolveFailed && body.Outcome != orbit.ResolveRequeue:
		return nil, refuse(orbit.ErrInvalidArgument, "outcome: must be succeeded, failed or requeue")
	case body.Result != nil && body.Outcome != orbit.ResolveSucceeded:
		return nil, refuse(orbit.ErrInvalidArgument, "result: is only for the outcome succeeded")
	case len(body.Result) > orbit.MaxResult:
		return nil, refuse(orbit.ErrInvalidArgument, "result: must be at most %d bytes, has %d", orbit.MaxResult, len(body.Result))
	}
	t := f.state.task(r.ids[0])
	if err := checkRevision("task", t.ID, t.Revision, body.ExpectedRevision); err != nil {
		return nil, err
	}
	if t.State != orbit.TaskStateNeedsReview {
		return nil, refuse(orbit.ErrStateConflict, "task %s is %s; only NEEDS_REVIEW can be resolved", t.ID, t.State)
	}
	t.EffectUncertain = false
	switch body.Outcome {
	case orbit.ResolveSucceeded:
		f.state.move(t, orbit.TaskStateSucceeded, orbit.TaskSucceeded, "RESOLVED", body.Result, nil)
	case orbit.ResolveFailed:
		f.state.move(t, orbit.TaskStateFailed, orbit.TaskFailed, "RESOLVED", nil, t.Error)
	default:
		t.RunAt, t.CancelRequested, t.MaxAttempts = now(), false, max(t.MaxAttempts, t.Attempts+1)
		t.due = t.RunAt
		f.state.move(t, orbit.TaskStateQueued, requeued, "RESOLVED", nil, t.Error)
		f.state.queue(t.QueueID).enqueue(t)
	}
	f.note(r, "task.resolve", t.ID, map[string]string{"outcome": body.Outcome, "reason": body.Reason})
	return taskData(t), nil
}

// requeued is in the log and never delivered (R8.3).
const requeued = "task.requeued"
