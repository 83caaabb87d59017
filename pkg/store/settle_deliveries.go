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

// Settled answers one command; At is acknowledged_at, available_at or lease_until. Err is
// DELIVERY_LEASE_LOST or NOT_FOUND.
type Settled struct {
	EventID      ids.ID
	At           time.Time
	Deduplicated bool
	Err          error
}

// SettleDeliveries decides many leases of one subscription in one transaction, paused or not.
//
// An ack counts while its epoch is the newest, whatever became of the lease; repeated with the same
// proof it returns the first time and writes nothing (R6.5). Release and extend need the lease to be
// held still (R6.10); a release without refund at the end of the budget expires the delivery.
func (s *Store) SettleDeliveries(ctx context.Context, namespace, subscription, credential ids.ID, commands []delivery.Command) ([]Settled, error) {
	var out []Settled
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		t := settlement{namespace: namespace, subscription: subscription, credential: credential}
		var err error
		out, err = t.run(ctx, tx, commands)
		return err
	})
	return out, err
}

type settlement struct {
	namespace, subscription, credential ids.ID
	now                                 time.Time
	rows                                map[ids.ID]*deliveryRow
	acked                               []*deliveryRow
	extended                            []any
	released                            []*deliveryRow
}

func (t *settlement) run(ctx context.Context, tx *sqlx.Tx, commands []delivery.Command) ([]Settled, error) {
	for _, c := range commands {
		if c.Kind == delivery.Release { // other nodes may have room for it; the stream comes first in the lock order
			if err := wake(ctx, tx, t.namespace); err != nil {
				return nil, err
			}
			break
		}
	}
	if _, err := readSubscription(ctx, tx, t.namespace, t.subscription, forUpdate); err != nil {
		return nil, err
	}
	if err := t.load(ctx, tx, commands); err != nil {
		return nil, err
	}
	out := make([]Settled, len(commands))
	for i, c := range commands {
		out[i] = t.judge(t.rows[c.Proof.DeliveryID], c)
	}
	return out, t.write(ctx, tx)
}

func (t *settlement) load(ctx context.Context, tx *sqlx.Tx, commands []delivery.Command) error {
	args := []any{t.namespace, t.subscription}
	for _, c := range commands {
		args = append(args, c.Proof.DeliveryID)
	}
	var rows []*struct {
		deliveryRow
		Now time.Time `db:"now"` // the database clock, under the subscription's lock
	}
	err := tx.SelectContext(ctx, &rows, `
SELECT id, event_id, sequence, state, lease_epoch, attempts, attempt_budget, acknowledged_at, lease_digest, UTC_TIMESTAMP(6) AS now FROM deliveries
WHERE namespace_id = ? AND subscription_id = ? AND id IN (`+marks(len(commands))+")", args...)
	if err != nil {
		return fmt.Errorf("read %d deliveries to settle: %w", len(commands), err)
	}
	t.rows = make(map[ids.ID]*deliveryRow, len(rows))
	for _, r := range rows {
		t.rows[r.ID], t.now = &r.deliveryRow, r.Now
	}
	return nil
}

// judge decides one command and changes the row in memory, so that a batch may name it twice.
func (t *settlement) judge(row *deliveryRow, c delivery.Command) Settled {
	id := c.Proof.DeliveryID
	switch {
	case row == nil:
		return Settled{Err: errs.New(errs.NotFound, "delivery %s does not exist in this subscription", id)}
	case row.LeaseEpoch != uint64(c.Proof.Epoch) || !bytes.Equal(row.LeaseDigest, c.Proof.Digest[:]):
		return Settled{Err: errs.New(errs.DeliveryLeaseLost, "delivery %s: the proof is not that of its newest lease", id)}
	case c.Kind == delivery.Ack && row.State == string(delivery.Acked):
		return Settled{EventID: row.EventID, At: row.AcknowledgedAt, Deduplicated: true}
	case c.Kind == delivery.Ack:
		row.State, row.AcknowledgedAt = string(delivery.Acked), t.now
		t.acked = append(t.acked, row)
		return Settled{EventID: row.EventID, At: t.now}
	case row.State != string(delivery.Leased):
		return Settled{Err: errs.New(errs.DeliveryLeaseLost, "delivery %s is %s and no longer leased", id, row.State)}
	case c.Kind == delivery.Extend:
		t.extended = append(t.extended, row.Sequence)
		return Settled{EventID: row.EventID, At: t.now.Add(delivery.LeaseDuration)}
	}
	if c.Refund {
		row.Attempts--
	}
	row.State = string(delivery.Pending)
	if row.Attempts >= row.AttemptBudget {
		row.State = string(delivery.Expired)
	}
	row.AvailableAt = t.now.Add(c.Delay)
	t.released = append(t.released, row)
	return Settled{EventID: row.EventID, At: row.AvailableAt}
}

func (t *settlement) write(ctx context.Context, tx *sqlx.Tx) error {
	if len(t.extended) > 0 {
		_, err := tx.ExecContext(ctx, `
UPDATE deliveries SET lease_until = ? WHERE namespace_id = ? AND subscription_id = ? AND sequence IN (`+marks(len(t.extended))+`) AND state = 'LEASED'`,
			append([]any{t.now.Add(delivery.LeaseDuration), t.namespace, t.subscription}, t.extended...)...)
		if err != nil {
			return fmt.Errorf("extend %d leases: %w", len(t.extended), err)
		}
	}
	for _, row := range t.released {
		if err := t.release(ctx, tx, row); err != nil {
			return err
		}
	}
	return t.ack(ctx, tx)
}

func (t *settlement) release(ctx context.Context, tx *sqlx.Tx, row *deliveryRow) error {
	if row.State == string(delivery.Acked) { // acknowledged later in the same batch
		return nil
	}
	res, err := tx.ExecContext(ctx, `
UPDATE deliveries SET state = ?, revision = revision + 1, attempts = ?, available_at = ?
WHERE namespace_id = ? AND subscription_id = ? AND sequence = ? AND state = 'LEASED'`,
		row.State, row.Attempts, row.AvailableAt, t.namespace, t.subscription, row.Sequence)
	return changed(res, err, 1, "release delivery "+row.ID.String())
}

func (t *settlement) ack(ctx context.Context, tx *sqlx.Tx) error {
	n := len(t.acked)
	if n == 0 {
		return nil
	}
	res, err := tx.ExecContext(ctx, "UPDATE subscriptions SET pending_count = pending_count - ? WHERE namespace_id = ? AND id = ?", n, t.namespace, t.subscription)
	if err := changed(res, err, 1, "lower backlog of subscription "+t.subscription.String()); err != nil {
		return err
	}
	args, acked := []any{t.now, t.namespace, t.subscription}, make([]ids.ID, n)
	for i, row := range t.acked {
		args = append(args, row.Sequence)
		acked[i] = row.ID
	}
	res, err = tx.ExecContext(ctx, `
UPDATE deliveries SET state = 'ACKED', revision = revision + 1, acknowledged_at = ?
WHERE namespace_id = ? AND subscription_id = ? AND sequence IN (`+marks(n)+`) AND state <> 'ACKED'`, args...)
	if err := changed(res, err, n, "acknowledge deliveries"); err != nil {
		return err
	}
	return insertAckAudits(ctx, tx, t.namespace, t.credential, acked)
}
