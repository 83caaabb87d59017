package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
)

type fireRow struct {
	ScheduleID ids.ID     `db:"schedule_id"`
	FireAt     time.Time  `db:"fire_at"`
	Run        ids.ID     `db:"run"` // zero, or the task of a run-now
	Version    int        `db:"version"`
	TaskID     *ids.ID    `db:"task_id"`
	Reason     *string    `db:"reason"`
	Skipped    int        `db:"skipped"`
	FirstAt    *time.Time `db:"first_at"`
	CreatedAt  time.Time  `db:"created_at"`
}

func (r *fireRow) fire() *schedule.Fire {
	f := &schedule.Fire{
		ScheduleID: r.ScheduleID, FireAt: r.FireAt, State: schedule.Fired, Manual: !r.Run.IsZero(), Version: r.Version, TaskID: r.TaskID,
		Skipped: r.Skipped, FirstFireAt: r.FirstAt, CreatedAt: r.CreatedAt,
	}
	if r.Reason != nil {
		f.State, f.Reason = schedule.Skipped, *r.Reason
	}
	return f
}

func insertFires(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, rows []fireRow) error {
	if len(rows) == 0 {
		return nil
	}
	args := make([]any, 0, 10*len(rows))
	for i := range rows {
		r := &rows[i]
		args = append(args, namespace, r.ScheduleID, r.FireAt, r.Run, r.Version, r.TaskID, r.Reason, r.Skipped, r.FirstAt, r.CreatedAt)
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO schedule_fires (namespace_id, schedule_id, fire_at, run, version, task_id, reason, skipped, first_at, created_at) VALUES "+
		tuples("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", len(rows)), args...)
	if err != nil {
		return fmt.Errorf("record %d fire times: %w", len(rows), err)
	}
	return nil
}

const listFiresSQL = `
SELECT schedule_id, fire_at, run, version, task_id, reason, skipped, first_at, created_at
FROM schedule_fires FORCE INDEX (PRIMARY) WHERE namespace_id = ? AND schedule_id = ?`

// ListScheduleFires returns a page of a schedule's history, newest fire time first, and where the next
// page begins, if there may be one.
func (s *Store) ListScheduleFires(ctx context.Context, c *access.Caller, id ids.ID, page Page) ([]*schedule.Fire, *Position, error) {
	if _, err := scopedSchedule(ctx, s.db, c, id, ""); err != nil {
		return nil, nil, err
	}
	query, args := listFiresSQL, []any{c.NamespaceID, id}
	if page.After != nil {
		query += " AND fire_at <= ? AND (fire_at < ? OR run < ?)"
		args = append(args, page.After.CreatedAt, page.After.CreatedAt, page.After.ID)
	}
	var rows []fireRow
	if err := s.db.SelectContext(ctx, &rows, query+" ORDER BY fire_at DESC, run DESC LIMIT ?", append(args, page.Limit+1)...); err != nil {
		return nil, nil, classify(fmt.Errorf("list fire times of schedule %s: %w", id, err))
	}
	var next *Position
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = &Position{CreatedAt: rows[page.Limit-1].FireAt, ID: rows[page.Limit-1].Run}
	}
	out := make([]*schedule.Fire, len(rows))
	for i := range rows {
		out[i] = rows[i].fire()
	}
	return out, next, nil
}

const oldFiresSQL = `
SELECT namespace_id, schedule_id, fire_at, run FROM schedule_fires FORCE INDEX (schedule_fires_created)
WHERE created_at < UTC_TIMESTAMP(6) - INTERVAL ? SECOND
ORDER BY created_at LIMIT ?`

// SweepScheduleFires removes up to limit entries of history older than age, by primary key in one
// transaction, and returns how many. A fire time that was removed never fires again: schedules only go
// forward.
func (s *Store) SweepScheduleFires(ctx context.Context, age time.Duration, limit int) (int, error) {
	var rows []struct {
		NamespaceID ids.ID    `db:"namespace_id"`
		ScheduleID  ids.ID    `db:"schedule_id"`
		FireAt      time.Time `db:"fire_at"`
		Run         ids.ID    `db:"run"`
	}
	if err := s.db.SelectContext(ctx, &rows, oldFiresSQL, int64(age/time.Second), limit); err != nil {
		return 0, classify(fmt.Errorf("look for old fire times: %w", err))
	}
	if len(rows) == 0 {
		return 0, nil
	}
	args := make([]any, 0, 4*len(rows))
	for _, r := range rows {
		args = append(args, r.NamespaceID, r.ScheduleID, r.FireAt, r.Run)
	}
	keys := strings.TrimSuffix(strings.Repeat("(namespace_id = ? AND schedule_id = ? AND fire_at = ? AND run = ?) OR ", len(rows)), " OR ")
	var n int64
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		res, err := tx.ExecContext(ctx, "DELETE FROM schedule_fires WHERE "+keys, args...)
		if err != nil {
			return fmt.Errorf("remove %d old fire times: %w", len(rows), err)
		}
		n, err = res.RowsAffected()
		return err
	})
	return int(n), err
}
