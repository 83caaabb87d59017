package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/result"
)

// SessionWant is a connection that can take deliveries, and how many it may hold.
type SessionWant struct {
	SessionID ids.ID
	Capacity  int
}

// Claimed is a committed lease, with its event and the only copy of its secret.
type Claimed struct {
	SessionID ids.ID
	Delivery  *delivery.Delivery
	Event     *result.Event
	Secret    ids.Secret
}

// Turn is what one claim turn left behind.
type Turn struct {
	Claimed []Claimed
	Enabled bool
	Cursor  uint64     // materialised up to here
	Head    uint64     // as this turn saw it
	Waiting bool       // un-acked deliveries are left that no one holds
	NextDue *time.Time // when a lease ends or a delayed delivery becomes available
	Now     time.Time  // the database clock
}

// ClaimDeliveries is one claim turn (R6.4) for all sessions of one subscription on this node, in
// one transaction under the subscription's lock: recover lapsed leases, materialise the log up to
// the backlog limit, lease in sequence order within each session's capacity (R6.3). Everything
// returned is committed. A retention gap is EVENT_HISTORY_EXPIRED, a retired subscription RESOURCE_RETIRED.
func (s *Store) ClaimDeliveries(ctx context.Context, namespace, subscription ids.ID, wants []SessionWant) (Turn, error) {
	var out Turn
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		sub, err := readSubscription(ctx, tx, namespace, subscription, forUpdate)
		if err != nil {
			return err
		}
		leased, err := readLeases(ctx, tx, namespace, subscription)
		if err != nil {
			return err
		}
		before := *sub
		if out, err = claim(ctx, tx, namespace, sub, leased, wants); err != nil {
			return err
		}
		return writeUsage(ctx, tx, namespace, &before, sub)
	})
	if err != nil {
		return Turn{}, err
	}
	return out, nil
}

// claim is a turn on a locked subscription; leased are its LEASED deliveries. The caller writes sub's usage.
func claim(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, sub *subscriptionRow, leased []*deliveryRow, wants []SessionWant) (Turn, error) {
	if err := sub.subscription().Refuse(); err != nil {
		return Turn{}, err
	}
	stream, err := readStream(ctx, tx, namespace, "")
	if err != nil {
		return Turn{}, err
	}
	t := claimTurn{namespace: namespace, sub: sub, stream: stream, now: stream.Now}
	if sub.Enabled {
		err = t.run(ctx, tx, leased, wants)
	}
	return Turn{
		Claimed: t.claimed, Enabled: sub.Enabled, Cursor: sub.CursorSequence, Head: stream.Head,
		Waiting: sub.PendingCount > len(t.leased)+len(t.claimed), NextDue: t.nextDue, Now: t.now,
	}, err
}

// writeUsage writes what a transaction changed of a locked subscription's usage.
func writeUsage(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, before, sub *subscriptionRow) error {
	if before.CursorSequence == sub.CursorSequence && before.PendingCount == sub.PendingCount {
		return nil
	}
	res, err := tx.ExecContext(ctx, "UPDATE subscriptions SET cursor_sequence = ?, pending_count = ? WHERE namespace_id = ? AND id = ?",
		sub.CursorSequence, sub.PendingCount, namespace, sub.ID)
	return changed(res, err, 1, "write usage of subscription "+sub.ID.String())
}

// leaseColumns are what a settlement and a turn need of a delivery that they may change.
const leaseColumns = `id, event_id, sequence, state, session_id, lease_until, lease_epoch, attempts, attempt_budget, acknowledged_at, lease_digest, UTC_TIMESTAMP(6) AS now`

func readLeases(ctx context.Context, tx *sqlx.Tx, namespace, subscription ids.ID) ([]*deliveryRow, error) {
	var rows []*deliveryRow
	err := tx.SelectContext(ctx, &rows, "SELECT "+leaseColumns+` FROM deliveries FORCE INDEX (deliveries_state)
WHERE namespace_id = ? AND subscription_id = ? AND state = 'LEASED'`, namespace, subscription)
	if err != nil {
		return nil, fmt.Errorf("read leases of subscription %s: %w", subscription, err)
	}
	return rows, nil
}

// The index is named in the hot reads because the table's statistics lag behind its growth, and with
// old ones the optimizer reads every delivery that the subscription ever had.

// claimTurn is the state of one turn; every row it touches is guarded by the subscription's lock.
type claimTurn struct {
	namespace ids.ID
	sub       *subscriptionRow
	stream    streamRow
	now       time.Time

	leased  []*deliveryRow // live leases of all sessions
	fresh   []*deliveryRow
	events  map[uint64]*result.Event // of what is claimed, by sequence
	claimed []Claimed
	nextDue *time.Time
}

func (t *claimTurn) run(ctx context.Context, tx *sqlx.Tx, leased []*deliveryRow, wants []SessionWant) error {
	if t.sub.CursorSequence < t.stream.Boundary {
		return errs.New(errs.EventHistoryExpired, "subscription %s has read up to %d, events up to %d were removed by retention",
			t.sub.ID, t.sub.CursorSequence, t.stream.Boundary)
	}
	if err := t.recover(ctx, tx, leased); err != nil {
		return err
	}
	places := t.places(wants)
	pending, err := t.pending(ctx, tx, len(places))
	if err != nil {
		return err
	}
	if err := t.materialise(ctx, tx, len(places)-len(pending)); err != nil {
		return err
	}
	return t.lease(ctx, tx, pending, places)
}

// recover returns lapsed leases to PENDING, or to EXPIRED at the end of their budget.
func (t *claimTurn) recover(ctx context.Context, tx *sqlx.Tx, leased []*deliveryRow) error {
	var again, spent []any
	for _, r := range leased {
		switch {
		case r.State != string(delivery.Leased): // settled in this transaction
		case r.LeaseUntil.After(t.now):
			t.leased = append(t.leased, r)
			t.due(r.LeaseUntil)
		case r.Attempts < r.AttemptBudget:
			again = append(again, r.Sequence)
		default:
			spent = append(spent, r.Sequence)
		}
	}
	if err := t.lapse(ctx, tx, "PENDING", again); err != nil {
		return err
	}
	return t.lapse(ctx, tx, "EXPIRED", spent)
}

func (t *claimTurn) lapse(ctx context.Context, tx *sqlx.Tx, to string, sequences []any) error {
	if len(sequences) == 0 {
		return nil
	}
	res, err := tx.ExecContext(ctx, `
UPDATE deliveries SET state = ?, revision = revision + 1
WHERE namespace_id = ? AND subscription_id = ? AND sequence IN (`+marks(len(sequences))+`) AND state = 'LEASED'`,
		append([]any{to, t.namespace, t.sub.ID}, sequences...)...)
	return changed(res, err, len(sequences), "recover lapsed leases")
}

func (t *claimTurn) due(at time.Time) {
	if t.nextDue == nil || at.Before(*t.nextDue) {
		t.nextDue = &at
	}
}

// places lists a session once for each delivery it may still take, dealt out in turn.
func (t *claimTurn) places(wants []SessionWant) []ids.ID {
	held := make(map[ids.ID]int, len(wants))
	for _, r := range t.leased {
		held[r.SessionID]++
	}
	var out []ids.ID
	for more, round := true, 1; more; round++ {
		more = false
		for _, w := range wants {
			if w.Capacity-held[w.SessionID] >= round {
				out, more = append(out, w.SessionID), true
			}
		}
	}
	return out
}

// pending reads the oldest available deliveries; what is not yet available sets the next due time.
func (t *claimTurn) pending(ctx context.Context, tx *sqlx.Tx, n int) ([]*deliveryRow, error) {
	if n == 0 || t.sub.PendingCount == len(t.leased) {
		return nil, nil
	}
	var rows []*deliveryRow
	err := tx.SelectContext(ctx, &rows, `
SELECT `+deliveryColumns+` FROM deliveries FORCE INDEX (deliveries_state)
WHERE namespace_id = ? AND subscription_id = ? AND state = 'PENDING' AND available_at <= ? ORDER BY sequence LIMIT ?`,
		t.namespace, t.sub.ID, t.now, n)
	if err != nil {
		return nil, fmt.Errorf("read pending deliveries: %w", err)
	}
	if len(rows) < n {
		var at *time.Time
		err := tx.GetContext(ctx, &at, `
SELECT MIN(available_at) FROM deliveries FORCE INDEX (deliveries_state)
WHERE namespace_id = ? AND subscription_id = ? AND state = 'PENDING' AND available_at > ?`, t.namespace, t.sub.ID, t.now)
		if err != nil {
			return nil, fmt.Errorf("read next due delivery: %w", err)
		}
		if at != nil {
			t.due(*at)
		}
	}
	return rows, nil
}

// materialise turns the log after the cursor into deliveries, as far as the backlog limit allows.
// A snapshot that shows the head shows every event below it, since sequences commit in order.
// Where all of it goes out at once, whole events are read, else only what identifies them.
func (t *claimTurn) materialise(ctx context.Context, tx *sqlx.Tx, free int) error {
	room := t.sub.MaxPending - t.sub.PendingCount
	if room <= 0 || t.sub.CursorSequence >= t.stream.Head {
		return nil
	}
	types := result.Types(t.sub.Types).List()
	args := []any{t.namespace, t.sub.QueueID, t.sub.CursorSequence, t.stream.Head}
	for _, name := range types {
		args = append(args, string(name))
	}
	columns, whole := "id, sequence", room <= free
	if whole {
		columns = eventColumns
	}
	var events []eventRow
	err := tx.SelectContext(ctx, &events, `
SELECT `+columns+` FROM result_events FORCE INDEX (result_events_queue)
WHERE namespace_id = ? AND queue_id = ? AND sequence > ? AND sequence <= ? AND type IN (`+marks(len(types))+`)
ORDER BY sequence LIMIT ?`, append(args, room)...)
	if err != nil {
		return fmt.Errorf("read log after %d: %w", t.sub.CursorSequence, err)
	}
	if whole {
		t.keep(events)
	}
	for _, e := range events {
		t.fresh = append(t.fresh, &deliveryRow{
			ID: ids.NewNumbered(e.Sequence), SubscriptionID: t.sub.ID, EventID: e.ID, Sequence: e.Sequence, Revision: 1, State: string(delivery.Pending),
			AttemptBudget: t.sub.MaxAttempts, CreatedAt: t.now, AvailableAt: t.now, LeaseUntil: neverLeased,
		})
	}
	cursor := t.stream.Head
	if len(events) == room {
		cursor = events[room-1].Sequence
	}
	t.sub.CursorSequence = cursor
	t.sub.PendingCount += len(events)
	return nil
}

// lease gives the oldest deliveries to the free places: waiting rows first, then fresh ones, which
// is the order of sequences. Fresh rows are written once, in their final state.
func (t *claimTurn) lease(ctx context.Context, tx *sqlx.Tx, pending []*deliveryRow, places []ids.ID) error {
	until := t.now.Add(delivery.LeaseDuration)
	for i, row := range slices.Concat(pending, t.fresh) {
		if i == len(places) {
			break
		}
		secret := ids.NewSecret()
		digest := secret.Digest()
		row.State, row.Revision, row.LeaseEpoch, row.Attempts = string(delivery.Leased), row.Revision+1, row.LeaseEpoch+1, row.Attempts+1
		row.LeaseUntil, row.SessionID, row.LeaseDigest = until, places[i], digest[:]
		t.claimed = append(t.claimed, Claimed{SessionID: places[i], Delivery: row.delivery(), Secret: secret})
		t.due(until)
	}
	if err := t.write(ctx, tx, pending); err != nil {
		return err
	}
	return t.loadEvents(ctx, tx)
}

// The upsert names every column of a fresh row and changes in a waiting one what a lease changes.
// Its rows are guarded by the subscription's lock, under which they were read.
const upsertDeliveriesSQL = `
INSERT INTO deliveries (namespace_id, subscription_id, sequence, id, event_id, revision, state, lease_epoch, attempts, attempt_budget,
  created_at, available_at, lease_until, session_id, lease_digest)
VALUES %s ON DUPLICATE KEY UPDATE revision = VALUES(revision), state = VALUES(state), lease_epoch = VALUES(lease_epoch), attempts = VALUES(attempts),
  lease_until = VALUES(lease_until), session_id = VALUES(session_id), lease_digest = VALUES(lease_digest)`

// write puts down the leases of waiting rows, and the fresh rows once in their final state.
func (t *claimTurn) write(ctx context.Context, tx *sqlx.Tx, leased []*deliveryRow) error {
	rows := slices.Concat(leased, t.fresh)
	if len(rows) == 0 {
		return nil
	}
	args := make([]any, 0, 15*len(rows))
	for _, r := range rows {
		digest := r.LeaseDigest
		if digest == nil {
			digest = noDigest[:]
		}
		args = append(args, t.namespace, r.SubscriptionID, r.Sequence, r.ID, r.EventID, r.Revision, r.State, r.LeaseEpoch, r.Attempts, r.AttemptBudget,
			r.CreatedAt, r.AvailableAt, r.LeaseUntil, r.SessionID, digest)
	}
	res, err := tx.ExecContext(ctx, fmt.Sprintf(upsertDeliveriesSQL, tuples("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", len(rows))), args...)
	return changed(res, err, 2*len(leased)+len(t.fresh), "lease deliveries") // an updated row counts twice
}

// What a delivery has before its first lease.
var (
	noDigest    [32]byte
	neverLeased = time.Unix(0, 0).UTC()
)

func (t *claimTurn) keep(rows []eventRow) {
	if t.events == nil {
		t.events = make(map[uint64]*result.Event, len(rows))
	}
	for i := range rows {
		t.events[rows[i].Sequence] = rows[i].event()
	}
}

// loadEvents gives every claimed delivery its event.
func (t *claimTurn) loadEvents(ctx context.Context, tx *sqlx.Tx) error {
	if len(t.claimed) == 0 {
		return nil
	}
	args := []any{t.namespace}
	for _, c := range t.claimed {
		if t.events[uint64(c.Delivery.Sequence)] == nil {
			args = append(args, uint64(c.Delivery.Sequence))
		}
	}
	if len(args) > 1 {
		var rows []eventRow
		err := tx.SelectContext(ctx, &rows, "SELECT "+eventColumns+" FROM result_events WHERE namespace_id = ? AND sequence IN ("+marks(len(args)-1)+")", args...)
		if err != nil {
			return fmt.Errorf("read %d events: %w", len(args)-1, err)
		}
		t.keep(rows)
	}
	for i, c := range t.claimed {
		if t.claimed[i].Event = t.events[uint64(c.Delivery.Sequence)]; t.claimed[i].Event == nil {
			return errs.New(errs.EventHistoryExpired, "subscription %s: the event at sequence %s of delivery %s was removed by retention", t.sub.ID, c.Delivery.Sequence, c.Delivery.ID)
		}
	}
	return nil
}
