package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
)

// UpdateSchedule makes a new draft version; what is published goes on as it is. Another revision than
// the expected one is STATE_CONFLICT.
func (s *Store) UpdateSchedule(ctx context.Context, w Write, id ids.ID, cmd schedule.Update) (Receipt, error) {
	parts := append(specParts(&cmd.Spec), id, cmd.Command)
	return s.scheduleCommand(ctx, w, schedule.MoveUpdate, id, cmd.Command, parts, func(tx *sqlx.Tx, row *scheduleRow, now time.Time) error {
		row.LastVersion++
		row.DraftVersion = row.LastVersion
		return insertVersion(ctx, tx, w, id, row.DraftVersion, &cmd.Spec, now)
	})
}

const publishVersionSQL = `
UPDATE schedule_versions SET published_at = ? WHERE namespace_id = ? AND schedule_id = ? AND version = ? AND published_at IS NULL`

// PublishSchedule makes the draft what fires, from the next fire time after now on; what was due before
// still fires as it was. A DRAFT becomes ENABLED, a PAUSED schedule stays so. The tasks are from now on the
// caller's. Without a draft, or at another revision, STATE_CONFLICT; on a retired queue RESOURCE_RETIRED.
func (s *Store) PublishSchedule(ctx context.Context, w Write, id ids.ID, cmd schedule.Command) (Receipt, error) {
	return s.scheduleCommand(ctx, w, schedule.MovePublish, id, cmd, []any{id, cmd}, func(tx *sqlx.Tx, row *scheduleRow, now time.Time) error {
		if row.DraftVersion == 0 {
			return errs.New(errs.StateConflict, "schedule %s has no draft to publish; :update makes one", id)
		}
		if err := s.settleNow(ctx, tx, w.Caller.NamespaceID, row, now); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, publishVersionSQL, now, w.Caller.NamespaceID, id, row.DraftVersion)
		if err := changed(res, err, 1, "publish schedule "+id.String()); err != nil {
			return err
		}
		row.Version, row.DraftVersion = row.DraftVersion, 0
		row.ApplicationID, row.CredentialID = w.Caller.ApplicationID, w.Caller.CredentialID
		if row.State != string(schedule.Enabled) {
			return nil
		}
		row.NextAt, err = nextAfter(ctx, tx, w.Caller.NamespaceID, row, now)
		return err
	})
}

// PauseSchedule stops a schedule: once this has answered, it makes no more tasks. Fire times that have
// passed and were not yet fired are recorded as skipped. Pausing a PAUSED one is a command like any other.
func (s *Store) PauseSchedule(ctx context.Context, w Write, id ids.ID, cmd schedule.Command) (Receipt, error) {
	return s.scheduleCommand(ctx, w, schedule.MovePause, id, cmd, []any{id, cmd}, func(tx *sqlx.Tx, row *scheduleRow, now time.Time) error {
		err := skipDue(ctx, tx, w.Caller.NamespaceID, row, now)
		row.NextAt = nil
		return err
	})
}

// ResumeSchedule lets a PAUSED schedule fire again, from the next fire time after now on. Resuming an
// ENABLED one is a command like any other. On a retired queue RESOURCE_RETIRED.
func (s *Store) ResumeSchedule(ctx context.Context, w Write, id ids.ID, cmd schedule.Command) (Receipt, error) {
	return s.scheduleCommand(ctx, w, schedule.MoveResume, id, cmd, []any{id, cmd}, func(tx *sqlx.Tx, row *scheduleRow, now time.Time) (err error) {
		if row.NextAt != nil {
			return nil // it was ENABLED, and what is due stays due
		}
		row.NextAt, err = nextAfter(ctx, tx, w.Caller.NamespaceID, row, now)
		return err
	})
}

// liveOnly are the commands that a retired queue refuses (R7.2); the others only take away.
var liveOnly = map[schedule.Move]bool{schedule.MovePublish: true, schedule.MoveResume: true}

const updateScheduleSQL = `
UPDATE schedules SET revision = revision + 1, state = ?, version = ?, draft_version = ?, last_version = ?, next_at = ?, application_id = ?, credential_id = ?, updated_at = ?
WHERE namespace_id = ? AND id = ? AND revision = ?`

// scheduleCommand runs a command on the locked schedule, already in its next state, and saves what it
// made of the row. The queue's row is locked first, shared: that makes it serial with the queue's
// retirement.
func (s *Store) scheduleCommand(ctx context.Context, w Write, move schedule.Move, id ids.ID, cmd schedule.Command, parts []any,
	apply func(tx *sqlx.Tx, row *scheduleRow, now time.Time) error,
) (Receipt, error) {
	operation := "schedule." + string(move)
	fingerprint, err := Fingerprint(operation, parts...)
	if err != nil {
		return Receipt{}, err
	}
	namespace := w.Caller.NamespaceID
	var seen *scheduleRow
	check := func(tx *sqlx.Tx) error {
		var err error
		if seen, err = scopedSchedule(ctx, tx, w.Caller, id, ""); err != nil || move != schedule.MovePublish {
			return err
		}
		_, err = lockQueuedQuota(ctx, tx, payer(namespace, seen)) // first in the lock order; a publish may fire what is due
		return err
	}
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		queue, err := readQueue(ctx, tx, namespace, seen.QueueID, forShare)
		if err != nil {
			return nil, auditRow{}, err
		}
		if err := queue.queue().Refuse(); err != nil && liveOnly[move] {
			return nil, auditRow{}, err
		}
		row, err := scopedSchedule(ctx, tx, w.Caller, id, forUpdate)
		if err != nil {
			return nil, auditRow{}, err
		}
		if row.Revision != uint64(*cmd.ExpectedRevision) {
			return nil, auditRow{}, errRevision("schedule", id, row.Revision, *cmd.ExpectedRevision)
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return nil, auditRow{}, err
		}
		if err := moveSchedule(row, move); err != nil {
			return nil, auditRow{}, err
		}
		if err := apply(tx, row, now); err != nil {
			return nil, auditRow{}, err
		}
		res, err := tx.ExecContext(ctx, updateScheduleSQL, row.State, row.Version, row.DraftVersion, row.LastVersion, row.NextAt,
			row.ApplicationID, row.CredentialID, now, namespace, id, row.Revision)
		if err := changed(res, err, 1, operation+" "+id.String()); err != nil {
			return nil, auditRow{}, err
		}
		snapshot, err := scheduleSnapshot(ctx, tx, w.Caller, id)
		return snapshot, auditRow{Action: operation, ResourceKind: "schedule", ResourceID: id, Detail: reasonDetail(cmd.Reason)}, err
	})
}

func moveSchedule(row *scheduleRow, move schedule.Move) error {
	to, ok := schedule.Next(schedule.State(row.State), move)
	if !ok {
		return errs.New(errs.StateConflict, "schedule %s is %s; publish it before %s", row.ID, row.State, move)
	}
	row.State = string(to)
	return nil
}

// payer is who a schedule's tasks belong to.
func payer(namespace ids.ID, row *scheduleRow) *access.Caller {
	return &access.Caller{NamespaceID: namespace, ApplicationID: row.ApplicationID, CredentialID: row.CredentialID}
}

func nextAfter(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, row *scheduleRow, now time.Time) (*time.Time, error) {
	timing, _, err := publishedTiming(ctx, tx, namespace, row)
	if err != nil {
		return nil, err
	}
	return orNil(timing.Next(now)), nil
}

func publishedTiming(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, row *scheduleRow) (*schedule.Timing, *schedule.Version, error) {
	versions, err := readVersions(ctx, tx, namespace, []versionKey{row.published()}, true)
	if err != nil {
		return nil, nil, err
	}
	v := versions[row.published()]
	timing, err := v.Spec.Timing()
	if err != nil {
		return nil, nil, fmt.Errorf("schedule %s, version %d: %w", row.ID, row.Version, err)
	}
	return timing, v, nil
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// settleNow fires what is due of one locked schedule, as the loop would have a moment later.
func (s *Store) settleNow(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, row *scheduleRow, now time.Time) error {
	if row.NextAt == nil || row.NextAt.After(now) {
		return nil
	}
	timing, version, err := publishedTiming(ctx, tx, namespace, row)
	if err != nil {
		return err
	}
	room, err := queuedRoom(ctx, tx, payer(namespace, row))
	if err != nil {
		return err
	}
	f := newFiring(namespace, now)
	f.add(row, version, timing, false, &room)
	if err := f.insert(ctx, tx); err != nil {
		return err
	}
	row.LastFireAt = f.moves[0].last
	return f.advance(ctx, tx)
}

// skipDue records what is due of one locked schedule as skipped.
func skipDue(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, row *scheduleRow, now time.Time) error {
	if row.NextAt == nil || row.NextAt.After(now) {
		return nil
	}
	timing, version, err := publishedTiming(ctx, tx, namespace, row)
	if err != nil {
		return err
	}
	f := newFiring(namespace, now)
	f.skipAll(row, version, timing, schedule.ReasonPaused)
	return f.insert(ctx, tx)
}
