package store

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

const configureSubscriptionSQL = `
UPDATE subscriptions SET enabled = ?, revision = revision + 1, updated_at = UTC_TIMESTAMP(6)
WHERE namespace_id = ? AND id = ? AND revision = ?`

// ConfigureSubscription pauses or resumes a subscription of the caller and wakes every gateway
// (R5.5). Another revision than the expected one is STATE_CONFLICT, a retired one RESOURCE_RETIRED; the same boolean again is a
// command like any other.
func (s *Store) ConfigureSubscription(ctx context.Context, w Write, id ids.ID, cmd subscription.Configure) (Receipt, error) {
	fingerprint, err := Fingerprint("subscription.configure", id, cmd)
	if err != nil {
		return Receipt{}, err
	}
	check := func(tx *sqlx.Tx) error {
		_, err := ownSubscription(ctx, tx, w.Caller, id, "")
		return err
	}
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		namespace := w.Caller.NamespaceID
		if err := wake(ctx, tx, namespace); err != nil {
			return nil, auditRow{}, err
		}
		row, err := ownSubscription(ctx, tx, w.Caller, id, forUpdate)
		if err != nil {
			return nil, auditRow{}, err
		}
		if err := row.subscription().Refuse(); err != nil {
			return nil, auditRow{}, err
		}
		if row.Revision != uint64(*cmd.ExpectedRevision) {
			return nil, auditRow{}, errs.New(errs.StateConflict, "subscription %s is at revision %d, expected_revision is %s", id, row.Revision, *cmd.ExpectedRevision)
		}
		res, err := tx.ExecContext(ctx, configureSubscriptionSQL, *cmd.Enabled, namespace, id, row.Revision)
		if err := changed(res, err, 1, "configure subscription "+id.String()); err != nil {
			return nil, auditRow{}, err
		}
		if row, err = readSubscription(ctx, tx, namespace, id, ""); err != nil {
			return nil, auditRow{}, err
		}
		snapshot, err := json.Marshal(row.subscription())
		if err != nil {
			return nil, auditRow{}, err
		}
		detail, err := json.Marshal(struct {
			Enabled bool   `json:"enabled"`
			Reason  string `json:"reason"`
		}{*cmd.Enabled, cmd.Reason})
		return snapshot, auditRow{Action: "subscription.configure", ResourceKind: "subscription", ResourceID: id, Detail: detail}, err
	})
}
