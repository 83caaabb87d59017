package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/result"
)

type deliveryRow struct {
	ID             ids.ID    `db:"id"`
	SubscriptionID ids.ID    `db:"subscription_id"`
	EventID        ids.ID    `db:"event_id"`
	Sequence       uint64    `db:"sequence"`
	Revision       uint64    `db:"revision"`
	State          string    `db:"state"`
	LeaseEpoch     uint64    `db:"lease_epoch"`
	Attempts       int       `db:"attempts"`
	AttemptBudget  int       `db:"attempt_budget"`
	CreatedAt      time.Time `db:"created_at"`
	AvailableAt    time.Time `db:"available_at"`
	LeaseUntil     time.Time `db:"lease_until"`     // while LEASED
	AcknowledgedAt time.Time `db:"acknowledged_at"` // when ACKED
	SessionID      ids.ID    `db:"session_id"`      // while LEASED
	LeaseDigest    []byte    `db:"lease_digest"`
	Now            time.Time `db:"now"` // the database clock, where leaseColumns are read
}

const deliveryColumns = `id, subscription_id, event_id, sequence, revision, state, lease_epoch, attempts, attempt_budget,
created_at, available_at, lease_until, acknowledged_at, session_id, lease_digest`

func (r *deliveryRow) delivery() *delivery.Delivery {
	d := &delivery.Delivery{
		ID: r.ID, SubscriptionID: r.SubscriptionID, EventID: r.EventID, Sequence: ids.Counter(r.Sequence), Revision: ids.Counter(r.Revision),
		State: delivery.State(r.State), CreatedAt: r.CreatedAt, AvailableAt: r.AvailableAt, LeaseEpoch: ids.Counter(r.LeaseEpoch),
		Attempts: r.Attempts, AttemptBudget: r.AttemptBudget,
	}
	switch d.State {
	case delivery.Leased:
		d.LeaseUntil = &r.LeaseUntil
	case delivery.Acked:
		d.AcknowledgedAt = &r.AcknowledgedAt
	}
	return d
}

type eventRow struct {
	ID                ids.ID    `db:"id"`
	Sequence          uint64    `db:"sequence"`
	Type              string    `db:"type"`
	AggregateID       ids.ID    `db:"aggregate_id"`
	AggregateRevision uint64    `db:"aggregate_revision"`
	OccurredAt        time.Time `db:"occurred_at"`
	Details           []byte    `db:"details"`
	Snapshot          []byte    `db:"snapshot"`
}

const eventColumns = `id, sequence, type, aggregate_id, aggregate_revision, occurred_at, details, snapshot`

func (r *eventRow) event() *result.Event {
	return &result.Event{
		ID: r.ID, Sequence: ids.Counter(r.Sequence), Type: result.Type(r.Type), AggregateID: r.AggregateID,
		AggregateRevision: ids.Counter(r.AggregateRevision), OccurredAt: r.OccurredAt, Details: r.Details, Snapshot: r.Snapshot,
	}
}

// ListDeliveries returns a page of a subscription's deliveries, newest first, all states when state
// is empty (R5.6). Within a subscription the order of sequences is the order of creation and ids.
func (s *Store) ListDeliveries(ctx context.Context, c *access.Caller, subscription ids.ID, state delivery.State, page Page) ([]*delivery.Delivery, *Position, error) {
	if _, err := ownSubscription(ctx, s.db, c, subscription, ""); err != nil {
		return nil, nil, err
	}
	query := "SELECT " + deliveryColumns + " FROM deliveries WHERE namespace_id = ? AND subscription_id = ?"
	args := []any{c.NamespaceID, subscription}
	if state != "" {
		query += " AND state = ?"
		args = append(args, string(state))
	}
	if page.After != nil {
		query += " AND sequence < ?"
		args = append(args, page.After.Sequence)
	}
	var rows []deliveryRow
	if err := s.db.SelectContext(ctx, &rows, query+" ORDER BY sequence DESC LIMIT ?", append(args, page.Limit+1)...); err != nil {
		return nil, nil, classify(fmt.Errorf("list deliveries of subscription %s: %w", subscription, err))
	}
	var next *Position
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = &Position{Sequence: rows[page.Limit-1].Sequence}
	}
	out := make([]*delivery.Delivery, len(rows))
	for i := range rows {
		out[i] = rows[i].delivery()
	}
	return out, next, nil
}

// GetDelivery returns a delivery and its event. A delivery whose event retention has removed is
// EVENT_HISTORY_EXPIRED.
func (s *Store) GetDelivery(ctx context.Context, c *access.Caller, subscription, id ids.ID) (*delivery.Delivery, *result.Event, error) {
	if _, err := ownSubscription(ctx, s.db, c, subscription, ""); err != nil {
		return nil, nil, err
	}
	row, err := readDelivery(ctx, s.db, c.NamespaceID, subscription, id)
	if err != nil {
		return nil, nil, err
	}
	var event eventRow
	err = s.db.GetContext(ctx, &event, "SELECT "+eventColumns+" FROM result_events WHERE namespace_id = ? AND sequence = ?", c.NamespaceID, row.Sequence)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil, errs.New(errs.EventHistoryExpired, "event %s at sequence %d was removed by retention", row.EventID, row.Sequence)
	}
	if err != nil {
		return nil, nil, classify(fmt.Errorf("read event at sequence %d: %w", row.Sequence, err))
	}
	return row.delivery(), event.event(), nil
}

func readDelivery(ctx context.Context, q sqlx.QueryerContext, namespace, subscription, id ids.ID) (*deliveryRow, error) {
	var row deliveryRow
	err := sqlx.GetContext(ctx, q, &row, "SELECT "+deliveryColumns+" FROM deliveries WHERE namespace_id = ? AND subscription_id = ? AND sequence = ? AND id = ?",
		namespace, subscription, id.Number(), id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errs.New(errs.NotFound, "delivery %s does not exist here", id)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("read delivery %s: %w", id, err))
	}
	return &row, nil
}
