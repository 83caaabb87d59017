package store

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// The digest of the last lease stays, so that a late ack still counts until a newer epoch.
const retryDeliverySQL = `
UPDATE deliveries SET state = 'PENDING', revision = revision + 1, attempt_budget = attempt_budget + ?, available_at = UTC_TIMESTAMP(6)
WHERE namespace_id = ? AND subscription_id = ? AND sequence = ? AND state = 'EXPIRED' AND revision = ?`

// RetryDelivery gives an EXPIRED delivery of the caller's subscription more attempts, available at
// once, and wakes every gateway (R5.7). Any other state, another revision or a budget over the limit
// is STATE_CONFLICT. The backlog place, attempts, epoch and identity stay.
func (s *Store) RetryDelivery(ctx context.Context, w Write, subscription, id ids.ID, cmd delivery.Retry) (Receipt, error) {
	fingerprint, err := Fingerprint("delivery.retry", subscription, id, cmd)
	if err != nil {
		return Receipt{}, err
	}
	check := func(tx *sqlx.Tx) error {
		if _, err := ownSubscription(ctx, tx, w.Caller, subscription, ""); err != nil {
			return err
		}
		_, err := readDelivery(ctx, tx, w.Caller.NamespaceID, subscription, id)
		return err
	}
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		namespace := w.Caller.NamespaceID
		if err := wake(ctx, tx, namespace); err != nil {
			return nil, auditRow{}, err
		}
		// Every change of a delivery happens under its subscription's lock.
		sub, err := ownSubscription(ctx, tx, w.Caller, subscription, forUpdate)
		if err != nil {
			return nil, auditRow{}, err
		}
		if err := sub.subscription().Refuse(); err != nil {
			return nil, auditRow{}, err
		}
		row, err := readDelivery(ctx, tx, namespace, subscription, id)
		if err != nil {
			return nil, auditRow{}, err
		}
		if err := mayRetry(row, cmd); err != nil {
			return nil, auditRow{}, err
		}
		res, err := tx.ExecContext(ctx, retryDeliverySQL, cmd.AdditionalAttempts, namespace, subscription, row.Sequence, row.Revision)
		if err := changed(res, err, 1, "retry delivery "+id.String()); err != nil {
			return nil, auditRow{}, err
		}
		if row, err = readDelivery(ctx, tx, namespace, subscription, id); err != nil {
			return nil, auditRow{}, err
		}
		detail, err := json.Marshal(struct {
			SubscriptionID     ids.ID `json:"subscription_id"`
			AdditionalAttempts int    `json:"additional_attempts"`
			Reason             string `json:"reason"`
		}{subscription, cmd.AdditionalAttempts, cmd.Reason})
		return row.delivery().AppendJSON(nil), auditRow{Action: "delivery.retry", ResourceKind: "delivery", ResourceID: id, Detail: detail}, err
	})
}

func mayRetry(row *deliveryRow, cmd delivery.Retry) error {
	switch {
	case row.Revision != uint64(*cmd.ExpectedRevision):
		return errs.New(errs.StateConflict, "delivery %s is at revision %d, expected_revision is %s", row.ID, row.Revision, *cmd.ExpectedRevision)
	case row.State != string(delivery.Expired):
		return errs.New(errs.StateConflict, "delivery %s is %s, only an EXPIRED one can be retried", row.ID, row.State)
	case row.AttemptBudget+cmd.AdditionalAttempts > delivery.MaxBudget:
		return errs.New(errs.StateConflict, "additional_attempts: delivery %s would have a budget of %d, the limit is %d",
			row.ID, row.AttemptBudget+cmd.AdditionalAttempts, delivery.MaxBudget)
	}
	return nil
}
