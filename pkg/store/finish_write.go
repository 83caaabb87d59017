package store

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// write puts the decided batch down, in the lock order: tasks, ready rows, permits and attempts,
// and the log last.
func (f *finisher) write(ctx context.Context, tx *sqlx.Tx) (head uint64, err error) {
	if len(f.freed)+len(f.late) == 0 {
		return 0, nil
	}
	if err := f.writeSucceeded(ctx, tx); err != nil {
		return 0, err
	}
	for _, done := range f.others {
		if err := f.writeOther(ctx, tx, done); err != nil {
			return 0, err
		}
	}
	for i := range f.unqueue {
		if err := deleteReady(ctx, tx, f.namespace, &f.unqueue[i]); err != nil {
			return 0, err
		}
	}
	if err := insertReady(ctx, tx, f.namespace, f.now, f.requeued); err != nil {
		return 0, err
	}
	if err := deletePermits(ctx, tx, f.namespace, f.queue, f.freed); err != nil {
		return 0, err
	}
	if err := insertAttempts(ctx, tx, f.namespace, f.closed); err != nil {
		return 0, err
	}
	for _, a := range f.late {
		if err := updateLateAttempt(ctx, tx, f.namespace, a); err != nil {
			return 0, err
		}
	}
	if len(f.events) == 0 {
		return 0, nil
	}
	return appendEvents(ctx, tx, f.namespace, f.events)
}

// writeSucceeded is the common case in one statement: nothing in it differs from task to task.
func (f *finisher) writeSucceeded(ctx context.Context, tx *sqlx.Tx) error {
	n := len(f.succeeded)
	if n == 0 {
		return nil
	}
	res, err := tx.ExecContext(ctx, `
UPDATE tasks SET state = 'SUCCEEDED', revision = revision + 1, error_code = NULL, error_message = NULL, updated_at = ?
WHERE namespace_id = ? AND id IN (`+marks(n)+`) AND state IN ('RUNNING', 'QUEUED')`, append([]any{f.now, f.namespace}, f.succeeded...)...)
	return changed(res, err, n, "finish tasks")
}

const finishOtherSQL = `
UPDATE tasks SET state = ?, revision = ?, attempts = ?, effect_uncertain = ?, run_at = ?, error_code = ?, error_message = ?, updated_at = ?
WHERE namespace_id = ? AND id = ? AND state = ? AND revision = ?`

func (f *finisher) writeOther(ctx context.Context, tx *sqlx.Tx, done finishedTask) error {
	t := done.row
	res, err := tx.ExecContext(ctx, finishOtherSQL, t.State, t.Revision, t.Attempts, t.EffectUncertain, t.RunAt, bytesOf(t.ErrorCode), bytesOf(t.ErrorMessage),
		t.UpdatedAt, f.namespace, t.ID, done.from.State, done.from.Revision)
	return changed(res, err, 1, "finish task "+t.ID.String())
}

func bytesOf(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}

// lockTasks reads the tasks for update, in key order.
func lockTasks(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, set map[ids.ID]bool) (map[ids.ID]*taskRow, error) {
	out := make(map[ids.ID]*taskRow, len(set))
	if len(set) == 0 {
		return out, nil
	}
	args := []any{namespace}
	for id := range set {
		args = append(args, id)
	}
	var rows []taskRow
	err := tx.SelectContext(ctx, &rows, "SELECT "+taskColumns+" FROM tasks WHERE namespace_id = ? AND id IN ("+marks(len(set))+") ORDER BY id FOR UPDATE", args...)
	if err != nil {
		return nil, fmt.Errorf("lock %d tasks: %w", len(set), err)
	}
	for i := range rows {
		out[rows[i].ID] = &rows[i]
	}
	return out, nil
}
