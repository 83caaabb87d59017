package store

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
)

const configureQueueSQL = `
UPDATE queues SET paused = ?, max_running = ?, lease_duration_ms = ?, revision = revision + 1, updated_at = UTC_TIMESTAMP(6)
WHERE namespace_id = ? AND id = ? AND revision = ?`

// ConfigureQueue changes a queue in the caller's scope (R8.1). Another revision than the expected
// one is STATE_CONFLICT, a retired queue RESOURCE_RETIRED. A pause stops new attempts at once, since claims hold the queue's row.
func (s *Store) ConfigureQueue(ctx context.Context, w Write, id ids.ID, cmd queue.Configure) (Receipt, error) {
	fingerprint, err := Fingerprint("queue.configure", id, cmd)
	if err != nil {
		return Receipt{}, err
	}
	check := func(tx *sqlx.Tx) error {
		_, err := scopedQueue(ctx, tx, w.Caller, id)
		return err
	}
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		namespace := w.Caller.NamespaceID
		row, err := liveQueue(ctx, tx, namespace, id, forUpdate)
		if err != nil {
			return nil, auditRow{}, err
		}
		if row.Revision != uint64(*cmd.ExpectedRevision) {
			return nil, auditRow{}, errRevision("queue", id, row.Revision, *cmd.ExpectedRevision)
		}
		if cmd.Paused != nil {
			row.Paused = *cmd.Paused
		}
		if cmd.MaxRunning != nil {
			row.MaxRunning = *cmd.MaxRunning
		}
		if cmd.LeaseDurationMS != nil {
			row.LeaseDurationMS = *cmd.LeaseDurationMS
		}
		res, err := tx.ExecContext(ctx, configureQueueSQL, row.Paused, row.MaxRunning, row.LeaseDurationMS, namespace, id, row.Revision)
		if err := changed(res, err, 1, "configure queue "+id.String()); err != nil {
			return nil, auditRow{}, err
		}
		if row, err = readQueue(ctx, tx, namespace, id, ""); err != nil {
			return nil, auditRow{}, err
		}
		snapshot, err := json.Marshal(row.queue())
		if err != nil {
			return nil, auditRow{}, err
		}
		detail, err := json.Marshal(cmd)
		return snapshot, auditRow{Action: "queue.configure", ResourceKind: "queue", ResourceID: id, Detail: detail}, err
	})
}
