package store

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
)

// RunSchedule submits the published version's task now, as a submit of the caller: its quota counts,
// CAPACITY_EXCEEDED refuses. It may be PAUSED; fire times and the revision stay as they are. The snapshot
// is the entry of the history.
func (s *Store) RunSchedule(ctx context.Context, w Write, id ids.ID, cmd schedule.Command) (Receipt, error) {
	fingerprint, err := Fingerprint("schedule.run", id, cmd)
	if err != nil {
		return Receipt{}, err
	}
	namespace := w.Caller.NamespaceID
	var seen *scheduleRow
	quota := 0
	check := func(tx *sqlx.Tx) (err error) {
		if seen, err = scopedSchedule(ctx, tx, w.Caller, id, ""); err != nil {
			return err
		}
		quota, err = lockQueuedQuota(ctx, tx, w.Caller)
		return err
	}
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		if _, err := liveQueue(ctx, tx, namespace, seen.QueueID, forShare); err != nil {
			return nil, auditRow{}, err
		}
		row, err := scopedSchedule(ctx, tx, w.Caller, id, forUpdate)
		if err != nil {
			return nil, auditRow{}, err
		}
		if row.Revision != uint64(*cmd.ExpectedRevision) {
			return nil, auditRow{}, errRevision("schedule", id, row.Revision, *cmd.ExpectedRevision)
		}
		if err := moveSchedule(row, schedule.MoveRun); err != nil {
			return nil, auditRow{}, err
		}
		if err := checkQueued(ctx, tx, w.Caller, quota, 1); err != nil {
			return nil, auditRow{}, err
		}
		_, version, err := publishedTiming(ctx, tx, namespace, row)
		if err != nil {
			return nil, auditRow{}, err
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return nil, auditRow{}, err
		}
		row.ApplicationID, row.CredentialID = w.Caller.ApplicationID, w.Caller.CredentialID
		f := newFiring(namespace, now)
		taskID := f.addTask(row, version, now)
		entry := fireRow{ScheduleID: id, FireAt: now, Run: taskID, Version: row.Version, TaskID: &taskID, CreatedAt: now}
		f.fires = append(f.fires, entry)
		if err := f.insert(ctx, tx); err != nil {
			return nil, auditRow{}, err
		}
		snapshot, err := json.Marshal(entry.fire())
		if err != nil {
			return nil, auditRow{}, err
		}
		detail, err := json.Marshal(map[string]string{"reason": cmd.Reason, "task_id": taskID.String()}, json.Deterministic(true))
		return snapshot, auditRow{Action: "schedule.run", ResourceKind: "schedule", ResourceID: id, Detail: detail}, err
	})
}
