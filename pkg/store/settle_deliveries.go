package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
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
//
// With wants, the places that this makes are filled by a claim turn (ClaimDeliveries) in the same transaction.
func (s *Store) SettleDeliveries(ctx context.Context, namespace, subscription, credential ids.ID, commands []delivery.Command, wants []SessionWant) ([]Settled, Turn, error) {
	var out []Settled
	var turn Turn
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		t := settlement{namespace: namespace, subscription: subscription, credential: credential}
		var err error
		out, turn, err = t.run(ctx, tx, commands, wants)
		return err
	})
	if err != nil {
		return nil, Turn{}, err
	}
	return out, turn, nil
}

type settlement struct {
	namespace, subscription, credential ids.ID
	sub                                 *subscriptionRow
	now                                 time.Time
	rows                                map[ids.ID]*deliveryRow
	acked                               []*deliveryRow
	extended                            []*deliveryRow
	released                            []*deliveryRow
}

func (t *settlement) run(ctx context.Context, tx *sqlx.Tx, commands []delivery.Command, wants []SessionWant) ([]Settled, Turn, error) {
	if slices.ContainsFunc(commands, func(c delivery.Command) bool { return c.Kind == delivery.Release }) {
		// Other nodes may have room for it; the stream comes first in the lock order.
		if err := wake(ctx, tx, t.namespace); err != nil {
			return nil, Turn{}, err
		}
	}
	var err error
	if t.sub, err = readSubscription(ctx, tx, t.namespace, t.subscription, forUpdate); err != nil {
		return nil, Turn{}, err
	}
	before := *t.sub
	var leased []*deliveryRow
	if len(wants) > 0 {
		if leased, err = readLeases(ctx, tx, t.namespace, t.subscription); err != nil {
			return nil, Turn{}, err
		}
	}
	if err := t.load(ctx, tx, commands, leased); err != nil {
		return nil, Turn{}, err
	}
	out := make([]Settled, len(commands))
	for i, c := range commands {
		out[i] = t.judge(t.rows[c.Proof.DeliveryID], c)
	}
	if err := t.write(ctx, tx); err != nil {
		return nil, Turn{}, err
	}
	var turn Turn
	if len(wants) > 0 {
		if turn, err = claim(ctx, tx, t.namespace, t.sub, leased, wants); err != nil {
			return nil, Turn{}, err
		}
	}
	return out, turn, writeUsage(ctx, tx, t.namespace, &before, t.sub)
}

// load finds the deliveries of the commands, among the leases that were read for a turn or by their keys;
// both reads tell the database clock under the subscription's lock.
func (t *settlement) load(ctx context.Context, tx *sqlx.Tx, commands []delivery.Command, leased []*deliveryRow) error {
	t.rows = make(map[ids.ID]*deliveryRow, max(len(commands), len(leased)))
	for _, row := range leased {
		t.rows[row.ID], t.now = row, row.Now
	}
	args := []any{t.namespace, t.subscription}
	for _, c := range commands {
		if id := c.Proof.DeliveryID; t.rows[id] == nil {
			args = append(args, id.Number())
		}
	}
	if n := len(args) - 2; n > 0 {
		var rows []*deliveryRow
		err := tx.SelectContext(ctx, &rows, "SELECT "+leaseColumns+" FROM deliveries WHERE namespace_id = ? AND subscription_id = ? AND sequence IN ("+marks(n)+")", args...)
		if err != nil {
			return fmt.Errorf("read %d deliveries to settle: %w", n, err)
		}
		for _, row := range rows {
			t.rows[row.ID], t.now = row, row.Now
		}
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
		row.LeaseUntil = t.now.Add(delivery.LeaseDuration)
		t.extended = append(t.extended, row)
		return Settled{EventID: row.EventID, At: row.LeaseUntil}
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
		args := []any{t.now.Add(delivery.LeaseDuration), t.namespace, t.subscription}
		for _, row := range t.extended {
			args = append(args, row.Sequence)
		}
		_, err := tx.ExecContext(ctx, `
UPDATE deliveries SET lease_until = ? WHERE namespace_id = ? AND subscription_id = ? AND sequence IN (`+marks(len(t.extended))+`) AND state = 'LEASED'`, args...)
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
	t.sub.PendingCount -= n
	args, acked := []any{t.now, t.namespace, t.subscription}, make([]ids.ID, n)
	for i, row := range t.acked {
		args = append(args, row.Sequence)
		acked[i] = row.ID
	}
	res, err := tx.ExecContext(ctx, `
UPDATE deliveries SET state = 'ACKED', revision = revision + 1, acknowledged_at = ?
WHERE namespace_id = ? AND subscription_id = ? AND sequence IN (`+marks(n)+`) AND state <> 'ACKED'`, args...)
	if err := changed(res, err, n, "acknowledge deliveries"); err != nil {
		return err
	}
	return insertAckAudits(ctx, tx, t.namespace, t.credential, acked)
}
