package store

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// AckResult answers one ack; Err is DELIVERY_LEASE_LOST or NOT_FOUND.
type AckResult struct {
	EventID        ids.ID
	AcknowledgedAt time.Time
	Deduplicated   bool
	Err            error
}

// AckDeliveries acknowledges many deliveries of one subscription in one transaction (R6.5), paused
// or not. An ack counts while its epoch is the newest, whatever became of the lease; repeated with
// the same proof it returns the first time and writes nothing.
func (s *Store) AckDeliveries(ctx context.Context, namespace, subscription, credential ids.ID, proofs []delivery.Proof) ([]AckResult, error) {
	var out []AckResult
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		out = make([]AckResult, len(proofs))
		if _, err := readSubscription(ctx, tx, namespace, subscription, forUpdate); err != nil {
			return err
		}
		rows, err := ackable(ctx, tx, namespace, subscription, proofs)
		if err != nil {
			return err
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return err
		}
		var sequences []any
		var acked []ids.ID
		for i, p := range proofs {
			row := rows[p.DeliveryID]
			out[i] = judgeAck(row, p, now)
			if out[i].Err == nil && !out[i].Deduplicated {
				row.State, row.AcknowledgedAt = string(delivery.Acked), &now
				sequences, acked = append(sequences, row.Sequence), append(acked, row.ID)
			}
		}
		if len(acked) == 0 {
			return nil
		}
		return writeAcks(ctx, tx, namespace, subscription, credential, now, sequences, acked)
	})
	return out, err
}

func ackable(ctx context.Context, tx *sqlx.Tx, namespace, subscription ids.ID, proofs []delivery.Proof) (map[ids.ID]*deliveryRow, error) {
	args := []any{namespace, subscription}
	for _, p := range proofs {
		args = append(args, p.DeliveryID)
	}
	var rows []*deliveryRow
	err := tx.SelectContext(ctx, &rows, `
SELECT id, event_id, sequence, state, lease_epoch, acknowledged_at, lease_digest FROM deliveries
WHERE namespace_id = ? AND subscription_id = ? AND id IN (`+marks(len(proofs))+")", args...)
	if err != nil {
		return nil, fmt.Errorf("read %d deliveries to acknowledge: %w", len(proofs), err)
	}
	out := make(map[ids.ID]*deliveryRow, len(rows))
	for _, r := range rows {
		out[r.ID] = r
	}
	return out, nil
}

func judgeAck(row *deliveryRow, p delivery.Proof, now time.Time) AckResult {
	switch {
	case row == nil:
		return AckResult{Err: errs.New(errs.NotFound, "delivery %s does not exist in this subscription", p.DeliveryID)}
	case row.LeaseEpoch != uint64(p.Epoch) || !bytes.Equal(row.LeaseDigest, p.Digest[:]):
		return AckResult{Err: errs.New(errs.DeliveryLeaseLost, "delivery %s: the proof is not that of its newest lease", p.DeliveryID)}
	case row.State == string(delivery.Acked):
		return AckResult{EventID: row.EventID, AcknowledgedAt: *row.AcknowledgedAt, Deduplicated: true}
	}
	return AckResult{EventID: row.EventID, AcknowledgedAt: now}
}

func writeAcks(ctx context.Context, tx *sqlx.Tx, namespace, subscription, credential ids.ID, now time.Time, sequences []any, acked []ids.ID) error {
	n := len(acked)
	res, err := tx.ExecContext(ctx, "UPDATE subscriptions SET pending_count = pending_count - ? WHERE namespace_id = ? AND id = ?", n, namespace, subscription)
	if err := changed(res, err, 1, "lower backlog of subscription "+subscription.String()); err != nil {
		return err
	}
	res, err = tx.ExecContext(ctx, `
UPDATE deliveries SET state = 'ACKED', revision = revision + 1, acknowledged_at = ?, lease_until = NULL, session_id = NULL
WHERE namespace_id = ? AND subscription_id = ? AND sequence IN (`+marks(n)+`) AND state <> 'ACKED'`,
		append([]any{now, namespace, subscription}, sequences...)...)
	if err := changed(res, err, n, "acknowledge deliveries"); err != nil {
		return err
	}
	return insertAckAudits(ctx, tx, namespace, credential, acked)
}
