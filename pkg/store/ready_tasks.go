package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// A ready row's key follows from its task: lane 0 ordered by rank and due time, lane 1 by due time.
const (
	laneReady   = 0
	laneWaiting = 1
)

func readyRank(priority int) int { return task.MaxPriority - priority }

const insertReadySQL = `
INSERT INTO ready_tasks (namespace_id, queue_id, lane, ready_rank, due_at, task_id, application_id, priority) VALUES `

const readyTuple = "(?, ?, ?, ?, ?, ?, ?, ?)"

// insertReady makes QUEUED tasks claimable, now or at their run_at.
func insertReady(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, now time.Time, rows []*taskRow) error {
	if len(rows) == 0 {
		return nil
	}
	args := make([]any, 0, 8*len(rows))
	for _, r := range rows {
		lane, rank := laneReady, readyRank(r.Priority)
		if r.RunAt.After(now) {
			lane, rank = laneWaiting, 0
		}
		args = append(args, namespace, r.QueueID, lane, rank, r.RunAt, r.ID, r.ApplicationID, r.Priority)
	}
	if _, err := tx.ExecContext(ctx, insertReadySQL+tuples(readyTuple, len(rows)), args...); err != nil {
		return fmt.Errorf("queue %d tasks: %w", len(rows), err)
	}
	return nil
}

// deleteReady removes the ready row of a QUEUED task, whichever lane it is in.
func deleteReady(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, r *taskRow) error {
	res, err := tx.ExecContext(ctx, `
DELETE FROM ready_tasks WHERE namespace_id = ? AND queue_id = ?
  AND ((lane = 0 AND ready_rank = ? AND due_at = ? AND task_id = ?) OR (lane = 1 AND ready_rank = 0 AND due_at = ? AND task_id = ?))`,
		namespace, r.QueueID, readyRank(r.Priority), r.RunAt, r.ID, r.RunAt, r.ID)
	return changed(res, err, 1, "unqueue task "+r.ID.String())
}

// readyRow is one claimable task.
type readyRow struct {
	Rank          int       `db:"ready_rank"`
	DueAt         time.Time `db:"due_at"`
	TaskID        ids.ID    `db:"task_id"`
	ApplicationID ids.ID    `db:"application_id"`
	Priority      int       `db:"priority"`
}

const maxPromote = 500

// promoteDue moves waiting tasks whose time has come into the order of claiming.
func promoteDue(ctx context.Context, tx *sqlx.Tx, namespace, queue ids.ID) error {
	var due []readyRow
	err := tx.SelectContext(ctx, &due, `
SELECT ready_rank, due_at, task_id, application_id, priority FROM ready_tasks
WHERE namespace_id = ? AND queue_id = ? AND lane = 1 AND ready_rank = 0 AND due_at <= UTC_TIMESTAMP(6)
ORDER BY due_at, task_id LIMIT ? FOR UPDATE SKIP LOCKED`, namespace, queue, maxPromote)
	if err != nil {
		return fmt.Errorf("read due tasks: %w", err)
	}
	if len(due) == 0 {
		return nil
	}
	if err := deleteReadyRows(ctx, tx, namespace, queue, laneWaiting, due); err != nil {
		return err
	}
	args := make([]any, 0, 8*len(due))
	for _, r := range due {
		args = append(args, namespace, queue, laneReady, readyRank(r.Priority), r.DueAt, r.TaskID, r.ApplicationID, r.Priority)
	}
	if _, err := tx.ExecContext(ctx, insertReadySQL+tuples(readyTuple, len(due)), args...); err != nil {
		return fmt.Errorf("promote %d due tasks: %w", len(due), err)
	}
	return nil
}

func deleteReadyRows(ctx context.Context, tx *sqlx.Tx, namespace, queue ids.ID, lane int, rows []readyRow) error {
	args := make([]any, 0, 3+3*len(rows))
	args = append(args, namespace, queue, lane)
	for _, r := range rows {
		args = append(args, r.Rank, r.DueAt, r.TaskID)
	}
	res, err := tx.ExecContext(ctx, "DELETE FROM ready_tasks WHERE namespace_id = ? AND queue_id = ? AND lane = ? AND (ready_rank, due_at, task_id) IN ("+
		tuples("(?, ?, ?)", len(rows))+")", args...)
	return changed(res, err, len(rows), "take ready tasks")
}
