package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// RunFilter narrows a list of runs; zero fields do not.
type RunFilter struct {
	FlowID ids.ID
	State  flow.State
}

// ListRuns returns a flow's runs, newest first, without inputs and steps, and where the next page
// begins. Runs of versions that use a queue outside the caller's scope are left out.
func (s *Store) ListRuns(ctx context.Context, c *access.Caller, f RunFilter, page Page) ([]*flow.RunRecord, *Position, error) {
	if _, err := readFlow(ctx, s.db, c, f.FlowID, ""); err != nil {
		return nil, nil, err
	}
	query, args := listRunsQuery(c, f, page)
	var rows []flowRunRow
	if err := s.db.SelectContext(ctx, &rows, query, args...); err != nil {
		return nil, nil, classify(fmt.Errorf("list runs of flow %s: %w", f.FlowID, err))
	}
	var next *Position
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = &Position{ID: rows[page.Limit-1].ID}
	}
	out := make([]*flow.RunRecord, len(rows))
	for i := range rows {
		out[i] = rows[i].record()
	}
	return out, next, nil
}

func listRunsQuery(c *access.Caller, f RunFilter, page Page) (string, []any) {
	index, where, args := "flow_runs_flow", "namespace_id = ? AND flow_id = ?", []any{c.NamespaceID, f.FlowID}
	if f.State != "" {
		index, where, args = "flow_runs_state", where+" AND state = ?", append(args, string(f.State))
	}
	if page.After != nil {
		where, args = where+" AND id < ?", append(args, page.After.ID)
	}
	if !c.AllQueues {
		where += ` AND NOT EXISTS (SELECT 1 FROM flow_version_queues v FORCE INDEX (flow_version_queues_version)
WHERE v.namespace_id = flow_runs.namespace_id AND v.flow_id = flow_runs.flow_id AND v.version = flow_runs.version`
		if len(c.Queues) > 0 {
			where += " AND v.queue_id NOT IN (" + marks(len(c.Queues)) + ")"
		}
		where += ")"
		for _, id := range c.Queues {
			args = append(args, id)
		}
	}
	return "SELECT " + flowRunColumns + " FROM flow_runs FORCE INDEX (" + index + ") WHERE " + where + " ORDER BY id DESC LIMIT ?", append(args, page.Limit+1)
}

// GetRun returns a run with its input and its steps as they stand, NOT_FOUND outside the caller's scope.
func (s *Store) GetRun(ctx context.Context, c *access.Caller, id ids.ID) (*flow.RunRecord, error) {
	row, err := readRun(ctx, s.db, c, id)
	if err != nil {
		return nil, err
	}
	return s.wholeRun(ctx, c.NamespaceID, row)
}

func (s *Store) wholeRun(ctx context.Context, namespace ids.ID, row *flowRunRow) (*flow.RunRecord, error) {
	plan, err := s.plan(ctx, s.db, namespace, row.FlowID, row.Version)
	if err != nil {
		return nil, err
	}
	// One statement, so one moment: the run, its steps and their tasks agree.
	steps, err := readSteps(ctx, s.db, namespace, row.ID)
	if err != nil {
		return nil, err
	}
	var input []byte
	if err := s.db.GetContext(ctx, &input, "SELECT input FROM flow_runs WHERE namespace_id = ? AND id = ?", namespace, row.ID); err != nil {
		return nil, classify(fmt.Errorf("read input of run %s: %w", row.ID, err))
	}
	record := row.record()
	if len(steps) > 0 {
		record = steps[0].record()
	}
	record.Input = input
	record.Steps = stepRecords(plan, record, steps)
	return record, nil
}

// stepRow is a try of a step with its task and queue.
type stepRow struct {
	flowRunRow
	Step         int        `db:"step"`
	StepState    string     `db:"step_state"`
	Try          int        `db:"try_number"`
	SubmittedAt  *time.Time `db:"submitted_at"`
	StepFinished *time.Time `db:"step_finished"`
	FailCode     *string    `db:"fail_code"`
	FailMessage  *string    `db:"fail_message"`
	TaskID       *ids.ID    `db:"task_id"`
	TaskTry      *int       `db:"task_try"`
	TaskState    *string    `db:"task_state"`
	TaskCode     *string    `db:"task_code"`
	TaskMessage  *string    `db:"task_message"`
	QueuePaused  *bool      `db:"paused"`
}

const readStepsSQL = `
SELECT r.id, r.flow_id, r.version, r.application_id, r.credential_id, r.state, r.ending, r.revision, r.due_at, r.created_at, r.updated_at, r.finished_at, r.labels,
  s.step, s.state AS step_state, s.try_number, s.submitted_at, s.finished_at AS step_finished, s.error_code AS fail_code, s.error_message AS fail_message,
  f.task_id, f.try_number AS task_try, t.state AS task_state, t.error_code AS task_code, t.error_message AS task_message, q.paused
FROM flow_runs r STRAIGHT_JOIN flow_steps s ON s.namespace_id = r.namespace_id AND s.run_id = r.id
LEFT JOIN flow_tasks f FORCE INDEX (flow_tasks_try) ON f.namespace_id = s.namespace_id AND f.run_id = s.run_id AND f.step = s.step
LEFT JOIN tasks t ON t.namespace_id = f.namespace_id AND t.id = f.task_id
LEFT JOIN queues q ON q.namespace_id = t.namespace_id AND q.id = t.queue_id
WHERE r.namespace_id = ? AND r.id = ?`

// readSteps returns one row per try that has a task, and one for a step that never had any, in order.
func readSteps(ctx context.Context, q sqlx.QueryerContext, namespace, run ids.ID) ([]stepRow, error) {
	var rows []stepRow
	if err := sqlx.SelectContext(ctx, q, &rows, readStepsSQL, namespace, run); err != nil {
		return nil, classify(fmt.Errorf("read steps of run %s: %w", run, err))
	}
	slices.SortFunc(rows, func(a, b stepRow) int { return cmp.Or(a.Step-b.Step, a.taskTry()-b.taskTry()) })
	return rows, nil
}

func (r *stepRow) taskTry() int {
	if r.TaskTry == nil {
		return 0
	}
	return *r.TaskTry
}

func stepRecords(plan *flow.Plan, record *flow.RunRecord, rows []stepRow) []flow.StepRecord {
	run := &flow.Run{State: record.State, Ending: record.Ending, Steps: make([]flow.Progress, len(plan.Steps))}
	for _, row := range rows {
		run.Steps[row.Step] = flow.Progress{State: flow.StepState(row.StepState), Try: row.Try}
	}
	out := make([]flow.StepRecord, len(plan.Steps))
	for i, step := range plan.Steps {
		out[i] = flow.StepRecord{
			Name: step.Name, State: run.Steps[i].State, Try: run.Steps[i].Try, QueueID: *step.QueueID, DependsOn: step.DependsOn, WaitingFor: plan.Waiting(run, i),
		}
	}
	for i := range rows {
		row := &rows[i]
		st := &out[row.Step]
		st.SubmittedAt, st.FinishedAt = row.SubmittedAt, row.StepFinished
		st.Error = failureOf(row.FailCode, row.FailMessage)
		switch {
		case row.TaskID == nil:
		case *row.TaskTry < row.Try:
			st.EarlierTaskIDs = append(st.EarlierTaskIDs, *row.TaskID)
		default:
			st.TaskID = row.TaskID
			row.current(st)
		}
	}
	return out
}

// current adds what the task of the current try tells.
func (r *stepRow) current(st *flow.StepRecord) {
	if r.TaskState == nil {
		return
	}
	if st.State == flow.StepFailed {
		st.Error = failureOf(r.TaskCode, r.TaskMessage)
	}
	switch st.State {
	case flow.StepNeedsReview:
		st.WaitingFor = flow.ForReview
	case flow.StepSubmitted:
		switch {
		case *r.TaskState == string(task.Running):
			st.State, st.WaitingFor = flow.StepRunning, flow.ForOutcome
		case *r.TaskState == string(task.Queued) && r.QueuePaused != nil && *r.QueuePaused:
			st.WaitingFor = flow.ForQueue
		case *r.TaskState == string(task.Queued):
			st.WaitingFor = flow.ForWorker
		default: // finished; the run learns of it in a moment
			st.WaitingFor = flow.ForOutcome
		}
	}
}

func failureOf(code, message *string) *task.Failure {
	if code == nil {
		return nil
	}
	f := &task.Failure{Code: *code}
	if message != nil {
		f.Message = *message
	}
	return f
}
