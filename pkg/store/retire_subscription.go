package store

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/result"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

const retireSubscriptionSQL = `
UPDATE subscriptions SET enabled = 0, cursor_sequence = ?, retired_sequence = ?, retired_at = UTC_TIMESTAMP(6), revision = revision + 1,
  updated_at = UTC_TIMESTAMP(6)
WHERE namespace_id = ? AND id = ? AND revision = ? AND retired_at IS NULL AND pending_count = 0`

// RetireSubscription ends a subscription of the caller for good (R7.1). Under the locks of the log's
// head and of the subscription, everything up to the head must have been delivered and acknowledged:
// else RESOURCE_BUSY, naming kinds and counts, or EVENT_HISTORY_EXPIRED where that can no longer be
// known. Retired already is RESOURCE_RETIRED, another revision STATE_CONFLICT. A refusal changes
// nothing. Success frees one of the namespace's active places; its connections are told.
func (s *Store) RetireSubscription(ctx context.Context, w Write, id ids.ID, cmd subscription.Retire) (Receipt, error) {
	fingerprint, err := Fingerprint("subscription.retire", id, cmd)
	if err != nil {
		return Receipt{}, err
	}
	check := func(tx *sqlx.Tx) error {
		_, err := ownSubscription(ctx, tx, w.Caller, id, "")
		return err
	}
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		head, row, err := lockSettled(ctx, tx, w, id, cmd)
		if err != nil {
			return nil, auditRow{}, err
		}
		namespace := w.Caller.NamespaceID
		res, err := tx.ExecContext(ctx, retireSubscriptionSQL, head, head, namespace, id, row.Revision)
		if err := changed(res, err, 1, "retire subscription "+id.String()); err != nil {
			return nil, auditRow{}, err
		}
		if err := wake(ctx, tx, namespace); err != nil {
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
			Reason          string      `json:"reason"`
			RetiredSequence ids.Counter `json:"retired_sequence"`
		}{cmd.Reason, ids.Counter(head)})
		return snapshot, auditRow{Action: "subscription.retire", ResourceKind: "subscription", ResourceID: id, Detail: detail}, err
	})
}

// lockSettled returns the committed head and the subscription, both locked, once nothing up to the
// head is owed. The log only grows, so the long look at it happens before the locks, and under them
// only what came meanwhile is looked at: no writer waits for a long read, or for a refusal as busy.
func lockSettled(ctx context.Context, tx *sqlx.Tx, w Write, id ids.ID, cmd subscription.Retire) (head uint64, row *subscriptionRow, err error) {
	namespace := w.Caller.NamespaceID
	if row, err = retirable(ctx, tx, w, id, cmd, ""); err != nil {
		return 0, nil, err
	}
	stream, err := readStream(ctx, tx, namespace, "") // after the cursor, which is never above it
	if err != nil {
		return 0, nil, err
	}
	first := owed{namespace: namespace, sub: row, stream: stream, from: row.CursorSequence}
	seen := stream.Head
	if err := first.refuse(ctx, tx); errs.Is(err, errs.EventHistoryExpired) {
		seen = 0 // retention may have moved on between the reads; the locked look decides
	} else if err != nil {
		return 0, nil, err
	}
	if stream, err = readStream(ctx, tx, namespace, forUpdate); err != nil {
		return 0, nil, err
	}
	if row, err = retirable(ctx, tx, w, id, cmd, forUpdate); err != nil {
		return 0, nil, err
	}
	rest := owed{namespace: namespace, sub: row, stream: stream, from: max(row.CursorSequence, seen)}
	return stream.Head, row, rest.refuse(ctx, tx)
}

// retirable reads a subscription of the caller that is live and at the expected revision.
func retirable(ctx context.Context, tx *sqlx.Tx, w Write, id ids.ID, cmd subscription.Retire, lock string) (*subscriptionRow, error) {
	row, err := ownSubscription(ctx, tx, w.Caller, id, lock)
	if err != nil {
		return nil, err
	}
	if err := row.subscription().Refuse(); err != nil {
		return nil, err
	}
	if row.Revision != uint64(*cmd.ExpectedRevision) {
		return nil, errRevision("subscription", id, row.Revision, *cmd.ExpectedRevision)
	}
	return row, nil
}

// owed looks for what a subscription has not yet had.
type owed struct {
	namespace ids.ID
	sub       *subscriptionRow
	stream    streamRow
	from      uint64 // the log up to here was looked at before
}

func (o *owed) refuse(ctx context.Context, tx *sqlx.Tx) error {
	if err := o.checkHistory(ctx, tx); err != nil {
		return err
	}
	var busy blockers
	if err := o.unacknowledged(ctx, tx, &busy); err != nil {
		return err
	}
	if err := o.undelivered(ctx, tx, &busy); err != nil {
		return err
	}
	return busy.refuse("subscription "+o.sub.ID.String(), "consume and acknowledge them, retry EXPIRED ones, resume it if it is paused")
}

// checkHistory proves that the log after the cursor is whole: what retention or anything else removed
// could have been an event of this subscription.
func (o *owed) checkHistory(ctx context.Context, tx *sqlx.Tx) error {
	cursor, head := o.sub.CursorSequence, o.stream.Head
	if cursor < o.stream.Boundary {
		return errs.New(errs.EventHistoryExpired, "subscription %s has read up to %d, events up to %d were removed by retention: whether it had them all cannot be verified",
			o.sub.ID, cursor, o.stream.Boundary)
	}
	if cursor > head {
		return errs.New(errs.EventHistoryExpired, "subscription %s has read up to %d, the log ends at %d: it was restored from before", o.sub.ID, cursor, head)
	}
	var n uint64
	if o.from < head {
		err := tx.GetContext(ctx, &n, "SELECT COUNT(*) FROM result_events FORCE INDEX (PRIMARY) WHERE namespace_id = ? AND sequence > ? AND sequence <= ?", o.namespace, o.from, head)
		if err != nil {
			return fmt.Errorf("count events after %d: %w", o.from, err)
		}
		if want := head - o.from; n != want {
			return errs.New(errs.EventHistoryExpired, "subscription %s: %d of the %d events in (%d, %d] are missing from the log: whether they were its own cannot be verified",
				o.sub.ID, want-n, want, o.from, head)
		}
	}
	var lost int
	err := tx.GetContext(ctx, &lost, `
SELECT COUNT(*) FROM deliveries d FORCE INDEX (deliveries_state)
LEFT JOIN result_events e ON e.namespace_id = d.namespace_id AND e.sequence = d.sequence
WHERE d.namespace_id = ? AND d.subscription_id = ? AND d.state IN ('PENDING', 'LEASED', 'EXPIRED') AND e.sequence IS NULL`, o.namespace, o.sub.ID)
	if err != nil {
		return fmt.Errorf("look for events of deliveries: %w", err)
	}
	if lost > 0 {
		return errs.New(errs.EventHistoryExpired, "subscription %s: the events of %d of its un-acknowledged deliveries are missing from the log", o.sub.ID, lost)
	}
	return nil
}

// unacknowledged counts the rows themselves; the subscription's own count must agree that there are none.
func (o *owed) unacknowledged(ctx context.Context, tx *sqlx.Tx, busy *blockers) error {
	var rows []struct {
		State string `db:"state"`
		N     int    `db:"n"`
	}
	err := tx.SelectContext(ctx, &rows, `
SELECT state, COUNT(*) AS n FROM deliveries FORCE INDEX (deliveries_state)
WHERE namespace_id = ? AND subscription_id = ? AND state IN ('PENDING', 'LEASED', 'EXPIRED') GROUP BY state`, o.namespace, o.sub.ID)
	if err != nil {
		return fmt.Errorf("count un-acknowledged deliveries: %w", err)
	}
	total := 0
	for _, r := range rows {
		busy.add(r.N, r.State+" delivery", r.State+" deliveries")
		total += r.N
	}
	if total == 0 {
		busy.add(o.sub.PendingCount, "delivery by its pending_count", "deliveries by its pending_count, with none in the table (an operator must look)")
	}
	return nil
}

// undelivered counts the events of its queue and types that no delivery was made of.
func (o *owed) undelivered(ctx context.Context, tx *sqlx.Tx, busy *blockers) error {
	if o.from >= o.stream.Head {
		return nil
	}
	types := result.Types(o.sub.Types).List()
	args := []any{o.namespace, o.sub.QueueID, o.from, o.stream.Head}
	for _, name := range types {
		args = append(args, string(name))
	}
	var n int
	err := tx.GetContext(ctx, &n, `
SELECT COUNT(*) FROM (SELECT 1 FROM result_events FORCE INDEX (result_events_queue)
WHERE namespace_id = ? AND queue_id = ? AND sequence > ? AND sequence <= ? AND type IN (`+marks(len(types))+`) LIMIT ?) e`, append(args, CountLimit)...)
	if err != nil {
		return fmt.Errorf("count events not yet delivered: %w", err)
	}
	upTo := fmt.Sprintf(" of its queue and types up to sequence %d not yet delivered", o.stream.Head)
	busy.add(n, "event"+upTo, "events"+upTo)
	return nil
}
