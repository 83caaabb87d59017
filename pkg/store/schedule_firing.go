package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// Bounds of one transaction of the fire loop; the first schedule is always taken whole.
const (
	maxFiringTasks = 1000
	maxFiringBytes = 8 << 20
)

// firing gathers what settles the due fire times of some locked schedules of one namespace: tasks,
// history and the schedules' next fire times, written together.
type firing struct {
	namespace ids.ID
	now       time.Time
	bytes     int
	fires     []fireRow
	moves     []move
	batches   map[payerKey]*taskBatch
	order     []payerKey // of batches
	tasks     int
}

type payerKey struct{ Application, Credential ids.ID }

type taskBatch struct {
	subs []task.Submit
	rows []*taskRow
}

// move is one schedule's step from a fire time to the next that is not due.
type move struct {
	id   ids.ID
	from time.Time
	to   *time.Time
	last *time.Time
}

func newFiring(namespace ids.ID, now time.Time) *firing {
	return &firing{namespace: namespace, now: now, batches: map[payerKey]*taskBatch{}}
}

// full says that the transaction is large enough.
func (f *firing) full() bool { return f.tasks >= maxFiringTasks || f.bytes >= maxFiringBytes }

// add settles one schedule. room is how many more tasks its application may queue; what has no room is
// skipped and says so.
func (f *firing) add(row *scheduleRow, v *schedule.Version, timing *schedule.Timing, retired bool, room *int) {
	if retired {
		f.skipAll(row, v, timing, schedule.ReasonRetired)
		return
	}
	plan := timing.Due(*row.NextAt, f.now, v.Spec.CatchUp)
	if plan.Skipped > 0 {
		f.skip(row, schedule.ReasonMissed, plan.Skipped, plan.FirstSkipped, plan.LastSkipped)
	}
	last := row.LastFireAt
	n := min(len(plan.Fire), *room)
	for _, at := range plan.Fire[:n] {
		id := f.addTask(row, v, at)
		f.fires = append(f.fires, fireRow{ScheduleID: row.ID, FireAt: at, Version: row.Version, TaskID: &id, CreatedAt: f.now})
		last = &at
	}
	*room -= n
	if rest := plan.Fire[n:]; len(rest) > 0 {
		f.skip(row, schedule.ReasonCapacity, len(rest), rest[0], rest[len(rest)-1])
	}
	f.moves = append(f.moves, move{id: row.ID, from: *row.NextAt, to: orNil(plan.Next), last: last})
}

// skipAll settles one schedule without any task.
func (f *firing) skipAll(row *scheduleRow, v *schedule.Version, timing *schedule.Timing, reason string) {
	plan := timing.Due(*row.NextAt, f.now, v.Spec.CatchUp)
	first, last := plan.FirstSkipped, plan.LastSkipped
	if n := len(plan.Fire); n > 0 {
		last = plan.Fire[n-1]
		if plan.Skipped == 0 {
			first = plan.Fire[0]
		}
	}
	f.skip(row, reason, plan.Skipped+len(plan.Fire), first, last)
	f.moves = append(f.moves, move{id: row.ID, from: *row.NextAt, to: orNil(plan.Next), last: row.LastFireAt})
}

func (f *firing) skip(row *scheduleRow, reason string, n int, first, last time.Time) {
	f.fires = append(f.fires, fireRow{
		ScheduleID: row.ID, FireAt: last, Version: row.Version, Reason: &reason, Skipped: min(n, math.MaxInt32), FirstAt: &first, CreatedAt: f.now,
	})
}

// addTask makes a task whose run_at is the fire time, so that its worker knows what it is for.
func (f *firing) addTask(row *scheduleRow, v *schedule.Version, at time.Time) ids.ID {
	key := payerKey{row.ApplicationID, row.CredentialID}
	batch := f.batches[key]
	if batch == nil {
		batch = &taskBatch{}
		f.batches[key] = batch
		f.order = append(f.order, key)
	}
	sub := v.Spec.Submit(row.QueueID)
	t := newTaskRow(&sub, ids.New(), f.now)
	t.ApplicationID, t.RunAt = row.ApplicationID, at
	batch.subs, batch.rows = append(batch.subs, sub), append(batch.rows, t)
	f.tasks++
	f.bytes += len(sub.Input)
	return t.ID
}

// insert writes the tasks and the history. A fire time that has an entry already is an error: the
// caller did not hold the schedule.
func (f *firing) insert(ctx context.Context, tx *sqlx.Tx) error {
	for _, key := range f.order {
		b := f.batches[key]
		w := Write{Caller: &access.Caller{NamespaceID: f.namespace, ApplicationID: key.Application, CredentialID: key.Credential}}
		if err := queueTasks(ctx, tx, w, f.now, b.subs, b.rows); err != nil {
			return err
		}
	}
	return insertFires(ctx, tx, f.namespace, f.fires)
}

// queueTasks inserts QUEUED tasks of one application, claimable now or at their run_at, with their labels.
func queueTasks(ctx context.Context, tx *sqlx.Tx, w Write, now time.Time, subs []task.Submit, rows []*taskRow) error {
	if err := insertTasks(ctx, tx, w, subs, rows); err != nil {
		return err
	}
	if err := insertReady(ctx, tx, w.Caller.NamespaceID, now, rows); err != nil {
		return err
	}
	return insertLabels(ctx, tx, w.Caller.NamespaceID, subs, rows)
}

// advance moves the schedules on, all in one statement guarded by where they were.
func (f *firing) advance(ctx context.Context, tx *sqlx.Tx) error {
	if len(f.moves) == 0 {
		return nil
	}
	next, last, where := "", "", ""
	var nextArgs, lastArgs, whereArgs []any
	for i, m := range f.moves {
		next, last = next+" WHEN ? THEN ?", last+" WHEN ? THEN ?"
		nextArgs, lastArgs = append(nextArgs, m.id, m.to), append(lastArgs, m.id, m.last)
		if i > 0 {
			where += " OR "
		}
		where += "(id = ? AND next_at = ?)"
		whereArgs = append(whereArgs, m.id, m.from)
	}
	args := append(append(append(nextArgs, lastArgs...), f.namespace), whereArgs...)
	res, err := tx.ExecContext(ctx, "UPDATE schedules FORCE INDEX (PRIMARY) SET next_at = CASE id"+next+" END, last_fire_at = CASE id"+last+
		" END WHERE namespace_id = ? AND state = 'ENABLED' AND ("+where+")", args...)
	return changed(res, err, len(f.moves), fmt.Sprintf("advance %d schedules", len(f.moves)))
}
