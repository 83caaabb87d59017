package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/result"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

type taskRow struct {
	ID                ids.ID     `db:"id"`
	QueueID           ids.ID     `db:"queue_id"`
	ApplicationID     ids.ID     `db:"application_id"`
	State             string     `db:"state"`
	Revision          uint64     `db:"revision"`
	Priority          int        `db:"priority"`
	RetrySafety       string     `db:"retry_safety"`
	Attempts          int        `db:"attempts"`
	MaxAttempts       int        `db:"max_attempts"`
	LeaseEpoch        uint64     `db:"lease_epoch"`
	EffectUncertain   bool       `db:"effect_uncertain"`
	RunAt             time.Time  `db:"run_at"`
	CancelRequestedAt *time.Time `db:"cancel_requested_at"`
	CurrentAttemptID  ids.ID     `db:"current_attempt_id"` // zero before the first
	ErrorCode         *string    `db:"error_code"`
	ErrorMessage      *string    `db:"error_message"`
	CreatedAt         time.Time  `db:"created_at"`
	UpdatedAt         time.Time  `db:"updated_at"`
	Labels            []byte     `db:"labels"`
}

const taskColumns = `id, queue_id, application_id, state, revision, priority, retry_safety, attempts, max_attempts, lease_epoch, effect_uncertain,
run_at, cancel_requested_at, current_attempt_id, error_code, error_message, created_at, updated_at, labels`

func (r *taskRow) task() *task.Task {
	t := &task.Task{
		ID: r.ID, QueueID: r.QueueID, State: task.State(r.State), Revision: ids.Counter(r.Revision),
		RetrySafety: task.RetrySafety(r.RetrySafety), Priority: r.Priority, Attempts: r.Attempts, MaxAttempts: r.MaxAttempts,
		RunAt: r.RunAt, EffectUncertain: r.EffectUncertain, CancelRequested: r.CancelRequestedAt != nil,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, Labels: r.Labels,
	}
	if !r.CurrentAttemptID.IsZero() {
		t.CurrentAttemptID = &r.CurrentAttemptID
	}
	if t.State.Final() { // nothing changes it any more
		t.FinishedAt = &r.UpdatedAt
	}
	if r.ErrorCode != nil {
		t.Error = &task.Failure{Code: *r.ErrorCode}
		if r.ErrorMessage != nil {
			t.Error.Message = *r.ErrorMessage
		}
	}
	return t
}

// snapshot is the event's view of the row after a move.
func (r *taskRow) snapshot() task.Snapshot {
	return task.Snapshot{
		TaskID: r.ID, QueueID: r.QueueID, State: task.State(r.State), Revision: ids.Counter(r.Revision), EffectUncertain: r.EffectUncertain,
		CurrentAttemptID: r.CurrentAttemptID,
	}
}

// GetTask returns one task with its input and result, NOT_FOUND outside the caller's scope.
func (s *Store) GetTask(ctx context.Context, c *access.Caller, id ids.ID) (*task.Task, error) {
	var row struct {
		taskRow
		Input  []byte `db:"input"`
		Result []byte `db:"result"`
	}
	err := s.db.GetContext(ctx, &row, "SELECT "+prefixed("t", taskColumns)+`, t.input, COALESCE(t.result, a.result) AS result
FROM tasks t LEFT JOIN attempts a ON a.namespace_id = t.namespace_id AND a.id = t.current_attempt_id WHERE t.namespace_id = ? AND t.id = ?`, c.NamespaceID, id)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !c.MayUse(row.QueueID) {
		return nil, errTaskNotFound(id)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("read task %s: %w", id, err))
	}
	t := row.task()
	t.Input, t.Result = row.Input, row.Result
	return t, nil
}

func errTaskNotFound(id ids.ID) error {
	return errs.New(errs.NotFound, "task %s does not exist here", id)
}

// lockTask reads one task for update, NOT_FOUND outside the caller's scope.
func lockTask(ctx context.Context, tx *sqlx.Tx, c *access.Caller, id ids.ID, lock string) (*taskRow, error) {
	var row taskRow
	err := tx.GetContext(ctx, &row, "SELECT "+taskColumns+" FROM tasks WHERE namespace_id = ? AND id = ?"+lock, c.NamespaceID, id)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !c.MayUse(row.QueueID) {
		return nil, errTaskNotFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("read task %s: %w", id, err)
	}
	return &row, nil
}

const (
	cancelQueuedSQL = `
UPDATE tasks SET state = 'CANCELLED', revision = revision + 1, cancel_requested_at = ?, updated_at = ?
WHERE namespace_id = ? AND id = ? AND state = 'QUEUED' AND revision = ?`
	requestCancelSQL = `
UPDATE tasks SET revision = revision + 1, cancel_requested_at = ?, updated_at = ?
WHERE namespace_id = ? AND id = ? AND state = 'RUNNING' AND revision = ?`
)

// CancelTask ends a QUEUED task at once and asks the worker of a RUNNING one (R8.5).
func (s *Store) CancelTask(ctx context.Context, w Write, id ids.ID, cmd task.Cancel) (Receipt, error) {
	fingerprint, err := Fingerprint("task.cancel", id, cmd)
	if err != nil {
		return Receipt{}, err
	}
	check := func(tx *sqlx.Tx) error {
		_, err := lockTask(ctx, tx, w.Caller, id, "")
		return err
	}
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		row, err := lockTask(ctx, tx, w.Caller, id, forUpdate)
		if err != nil {
			return nil, auditRow{}, err
		}
		if row.Revision != uint64(*cmd.ExpectedRevision) {
			return nil, auditRow{}, errRevision("task", id, row.Revision, *cmd.ExpectedRevision)
		}
		if err := s.cancel(ctx, tx, w.Caller.NamespaceID, row); err != nil {
			return nil, auditRow{}, err
		}
		snapshot, err := row.task().AppendJSON(nil)
		return snapshot, auditRow{Action: "task.cancel", ResourceKind: "task", ResourceID: id, Detail: reasonDetail(cmd.Reason)}, err
	})
}

func (s *Store) cancel(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, row *taskRow) error {
	now, err := dbNow(ctx, tx)
	if err != nil {
		return err
	}
	state, revision := task.State(row.State), row.Revision
	if move, ok := task.Next(state, task.CancelQueued); ok {
		if err := deleteReady(ctx, tx, namespace, row); err != nil {
			return err
		}
		row.State, row.Revision, row.CancelRequestedAt, row.UpdatedAt = string(move.To), revision+1, &now, now
		res, err := tx.ExecContext(ctx, cancelQueuedSQL, now, now, namespace, row.ID, revision)
		if err := changed(res, err, 1, "cancel task "+row.ID.String()); err != nil {
			return err
		}
		_, err = appendEvents(ctx, tx, namespace, []newEvent{{
			Type: result.TaskCancelled, Snapshot: row.snapshot(), Details: task.Details{State: task.Cancelled, Reason: task.ReasonCancelRequested},
		}})
		return err
	}
	if _, ok := task.Next(state, task.CancelRunning); ok {
		row.Revision, row.CancelRequestedAt, row.UpdatedAt = revision+1, &now, now
		res, err := tx.ExecContext(ctx, requestCancelSQL, now, now, namespace, row.ID, revision)
		if err := changed(res, err, 1, "request cancel of task "+row.ID.String()); err != nil {
			return err
		}
		return wake(ctx, tx, namespace) // the gateway that holds its worker tells it
	}
	return errs.New(errs.StateConflict, "task %s is %s and can no longer be cancelled", row.ID, row.State)
}
