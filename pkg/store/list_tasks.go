package store

import (
	"context"
	"fmt"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// TaskFilter narrows a list; zero fields do not.
type TaskFilter struct {
	QueueID    ids.ID
	State      task.State
	LabelName  string
	LabelValue string
}

// ListTasks returns a page of a queue's tasks, newest first (ids are time-ordered), without inputs
// and results, and where the next page begins. With a label, its index leads and the state is
// looked up per task.
func (s *Store) ListTasks(ctx context.Context, c *access.Caller, f TaskFilter, page Page) ([]*task.Task, *Position, error) {
	if _, err := scopedQueue(ctx, s.db, c, f.QueueID); err != nil {
		return nil, nil, err
	}
	query, args := listTasksQuery(c.NamespaceID, f, page)
	var rows []taskRow
	if err := s.db.SelectContext(ctx, &rows, query, args...); err != nil {
		return nil, nil, classify(fmt.Errorf("list tasks of queue %s: %w", f.QueueID, err))
	}
	var next *Position
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = &Position{ID: rows[page.Limit-1].ID}
	}
	out := make([]*task.Task, len(rows))
	for i := range rows {
		out[i] = rows[i].task()
	}
	return out, next, nil
}

func listTasksQuery(namespace ids.ID, f TaskFilter, page Page) (string, []any) {
	columns, id, args := taskColumns, "id", []any{namespace, f.QueueID}
	var query string
	switch {
	case f.LabelName != "":
		id = "l.task_id" // both tables have a queue_id
		columns = prefixed("t", taskColumns)
		query = "SELECT " + columns + ` FROM task_labels l STRAIGHT_JOIN tasks t ON t.namespace_id = l.namespace_id AND t.id = l.task_id
WHERE l.namespace_id = ? AND l.queue_id = ? AND l.name = ? AND l.value = ?`
		args = append(args, []byte(f.LabelName), []byte(f.LabelValue))
		if f.State != "" {
			query += " AND t.state = ?"
			args = append(args, string(f.State))
		}
	case f.State != "":
		query = "SELECT " + columns + " FROM tasks FORCE INDEX (tasks_state) WHERE namespace_id = ? AND queue_id = ? AND state = ?"
		args = append(args, string(f.State))
	default:
		query = "SELECT " + columns + " FROM tasks FORCE INDEX (tasks_queue) WHERE namespace_id = ? AND queue_id = ?"
	}
	if page.After != nil {
		query += " AND " + id + " < ?"
		args = append(args, page.After.ID)
	}
	return query + " ORDER BY " + id + " DESC LIMIT ?", append(args, page.Limit+1)
}

// ListAttempts returns a page of a task's attempts in order, the running one last; positions are
// epochs.
func (s *Store) ListAttempts(ctx context.Context, c *access.Caller, id ids.ID, page Page) ([]task.AttemptRecord, *Position, error) {
	t, err := s.GetTask(ctx, c, id)
	if err != nil {
		return nil, nil, err
	}
	var after uint64
	if page.After != nil {
		after = page.After.Sequence
	}
	var rows []struct {
		ID           ids.ID     `db:"id"`
		Number       int        `db:"number"`
		Epoch        uint64     `db:"epoch"`
		State        string     `db:"state"`
		Worker       string     `db:"worker"`
		StartedAt    time.Time  `db:"started_at"`
		LeaseUntil   *time.Time `db:"lease_until"`
		EndedAt      *time.Time `db:"ended_at"`
		ErrorCode    *string    `db:"error_code"`
		ErrorMessage *string    `db:"error_message"`
	}
	err = s.db.SelectContext(ctx, &rows, `
SELECT id, number, epoch, outcome AS state, worker, started_at, NULL AS lease_until, ended_at, error_code, error_message
FROM attempts FORCE INDEX (attempts_task) WHERE namespace_id = ? AND task_id = ? AND epoch > ?
UNION ALL
SELECT attempt_id, number, epoch, 'RUNNING', worker, started_at, lease_until, NULL, NULL, NULL
FROM permits WHERE namespace_id = ? AND queue_id = ? AND attempt_id = ? AND epoch > ?
ORDER BY epoch LIMIT ?`, c.NamespaceID, id, after, c.NamespaceID, t.QueueID, t.CurrentAttemptID, after, page.Limit+1)
	if err != nil {
		return nil, nil, classify(fmt.Errorf("list attempts of task %s: %w", id, err))
	}
	var next *Position
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = &Position{Sequence: rows[page.Limit-1].Epoch}
	}
	out := make([]task.AttemptRecord, len(rows))
	for i, r := range rows {
		out[i] = task.AttemptRecord{
			ID: r.ID, TaskID: id, Number: r.Number, Epoch: ids.Counter(r.Epoch), State: task.AttemptState(r.State), Worker: r.Worker,
			StartedAt: r.StartedAt, LeaseUntil: r.LeaseUntil, EndedAt: r.EndedAt,
		}
		if r.ErrorCode != nil {
			out[i].Error = &task.Failure{Code: *r.ErrorCode}
			if r.ErrorMessage != nil {
				out[i].Error.Message = *r.ErrorMessage
			}
		}
	}
	return out, next, nil
}
