package store

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

const resolveTaskSQL = `
UPDATE tasks SET state = ?, revision = revision + 1, effect_uncertain = 0, result = ?, run_at = ?, max_attempts = ?, cancel_requested_at = ?, updated_at = ?
WHERE namespace_id = ? AND id = ? AND state = 'NEEDS_REVIEW' AND revision = ?`

// ResolveTask decides a NEEDS_REVIEW task (R8.3): it ends, with its event, or goes back to its queue
// with at least one attempt left. Another state or revision is STATE_CONFLICT.
func (s *Store) ResolveTask(ctx context.Context, w Write, id ids.ID, cmd task.Resolve) (Receipt, error) {
	fingerprint, err := Fingerprint("task.resolve", id, cmd.ExpectedRevision, cmd.Outcome, string(cmd.Result), cmd.Reason)
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
		if err := resolve(ctx, tx, w.Caller.NamespaceID, row, cmd); err != nil {
			return nil, auditRow{}, err
		}
		snapshot, err := row.task().AppendJSON(nil)
		if err != nil {
			return nil, auditRow{}, err
		}
		detail, err := json.Marshal(map[string]string{"outcome": cmd.Outcome, "reason": cmd.Reason}, json.Deterministic(true))
		return snapshot, auditRow{Action: "task.resolve", ResourceKind: "task", ResourceID: id, Detail: detail}, err
	})
}

func resolve(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, row *taskRow, cmd task.Resolve) error {
	move, ok := task.Next(task.State(row.State), task.ResolveCommands[cmd.Outcome])
	if !ok {
		return errs.New(errs.StateConflict, "task %s is %s; only NEEDS_REVIEW can be resolved", row.ID, row.State)
	}
	now, err := dbNow(ctx, tx)
	if err != nil {
		return err
	}
	from := row.Revision
	row.State, row.Revision, row.EffectUncertain, row.UpdatedAt = string(move.To), from+1, false, now
	if !move.To.Final() {
		row.RunAt, row.CancelRequestedAt = now, nil            // whoever asked for the cancel was overruled
		row.MaxAttempts = max(row.MaxAttempts, row.Attempts+1) // the person's word is worth one more try
	}
	var result []byte
	if cmd.Result != nil {
		result = cmd.Result
	}
	res, err := tx.ExecContext(ctx, resolveTaskSQL, row.State, result, row.RunAt, row.MaxAttempts, row.CancelRequestedAt, now, namespace, row.ID, from)
	if err := changed(res, err, 1, "resolve task "+row.ID.String()); err != nil {
		return err
	}
	if move.To == task.Queued {
		if err := insertReady(ctx, tx, namespace, now, []*taskRow{row}); err != nil {
			return err
		}
	}
	snapshot := row.snapshot()
	snapshot.Result = result
	_, err = appendEvents(ctx, tx, namespace, []newEvent{{Type: move.Event, Snapshot: snapshot, Details: task.Details{State: move.To, Reason: task.ReasonResolved}}})
	return err
}
