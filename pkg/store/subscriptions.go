package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/result"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

type subscriptionRow struct {
	ID              ids.ID     `db:"id"`
	QueueID         ids.ID     `db:"queue_id"`
	CredentialID    ids.ID     `db:"credential_id"`
	Name            string     `db:"name"`
	Revision        uint64     `db:"revision"`
	Enabled         bool       `db:"enabled"`
	Types           uint8      `db:"types"`
	CursorSequence  uint64     `db:"cursor_sequence"`
	PendingCount    int        `db:"pending_count"`
	MaxPending      int        `db:"max_pending"`
	MaxAttempts     int        `db:"max_attempts"`
	CreatedAt       time.Time  `db:"created_at"`
	UpdatedAt       time.Time  `db:"updated_at"`
	RetiredAt       *time.Time `db:"retired_at"`
	RetiredSequence *uint64    `db:"retired_sequence"`
}

const subscriptionColumns = `id, queue_id, credential_id, name, revision, enabled, types, cursor_sequence, pending_count, max_pending, max_attempts, created_at, updated_at, retired_at, retired_sequence`

func (r *subscriptionRow) subscription() *subscription.Subscription {
	return &subscription.Subscription{
		ID: r.ID, QueueID: r.QueueID, CredentialID: r.CredentialID, Name: r.Name, Revision: ids.Counter(r.Revision), Enabled: r.Enabled,
		Types: result.Types(r.Types).List(), CursorSequence: ids.Counter(r.CursorSequence), PendingCount: r.PendingCount,
		MaxPending: r.MaxPending, MaxAttempts: r.MaxAttempts, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
		RetiredAt: r.RetiredAt, RetiredSequence: (*ids.Counter)(r.RetiredSequence),
	}
}

func readSubscription(ctx context.Context, q sqlx.QueryerContext, namespace, id ids.ID, lock string) (*subscriptionRow, error) {
	var row subscriptionRow
	err := sqlx.GetContext(ctx, q, &row, "SELECT "+subscriptionColumns+" FROM subscriptions WHERE namespace_id = ? AND id = ?"+lock, namespace, id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errSubscriptionNotFound(id)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("read subscription %s: %w", id, err))
	}
	return &row, nil
}

func errSubscriptionNotFound(id ids.ID) error {
	return errs.New(errs.NotFound, "subscription %s does not exist here", id)
}

// ownSubscription reads a subscription that the caller owns and whose queue is in its scope; a
// missing one, another credential's and another namespace's answer alike (R2.7).
func ownSubscription(ctx context.Context, q sqlx.QueryerContext, c *access.Caller, id ids.ID, lock string) (*subscriptionRow, error) {
	row, err := readSubscription(ctx, q, c.NamespaceID, id, lock)
	if err != nil {
		return nil, err
	}
	if row.CredentialID != c.CredentialID || !c.MayUse(row.QueueID) {
		return nil, errSubscriptionNotFound(id)
	}
	return row, nil
}

// GetSubscription returns a subscription of the caller, else NOT_FOUND.
func (s *Store) GetSubscription(ctx context.Context, c *access.Caller, id ids.ID) (*subscription.Subscription, error) {
	row, err := ownSubscription(ctx, s.db, c, id, "")
	if err != nil {
		return nil, err
	}
	return row.subscription(), nil
}

const insertSubscriptionSQL = `
INSERT INTO subscriptions (namespace_id, id, queue_id, application_id, credential_id, name, revision, enabled, types,
  cursor_sequence, pending_count, max_pending, max_attempts, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, 1, 1, ?, ?, 0, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))`

// CreateSubscription makes a subscription. The log's head is read under the stream lock, so that
// every later event is above the cursor and no earlier one is (R5.1); the same lock makes the count
// against the limit serial (R5.3).
func (s *Store) CreateSubscription(ctx context.Context, w Write, n subscription.New) (Receipt, error) {
	fingerprint, err := Fingerprint("subscription.create", n)
	if err != nil {
		return Receipt{}, err
	}
	check := func(tx *sqlx.Tx) error {
		_, err := scopedQueue(ctx, tx, w.Caller, n.QueueID)
		return err
	}
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		namespace := w.Caller.NamespaceID
		if _, err := liveQueue(ctx, tx, namespace, n.QueueID, forShare); err != nil {
			return nil, auditRow{}, err
		}
		cursor, err := startCursor(ctx, tx, namespace, n.FromSequence)
		if err != nil {
			return nil, auditRow{}, err
		}
		if err := checkActive(ctx, tx, namespace); err != nil {
			return nil, auditRow{}, err
		}
		id := ids.New()
		_, err = tx.ExecContext(ctx, insertSubscriptionSQL, namespace, id, n.QueueID, w.Caller.ApplicationID, w.Caller.CredentialID,
			[]byte(n.Name), uint8(n.Types), cursor, n.MaxPending, n.MaxAttempts)
		if isDuplicate(err) {
			return nil, auditRow{}, errs.New(errs.StateConflict, "name: a subscription named %q exists or existed in this namespace", n.Name)
		}
		if err != nil {
			return nil, auditRow{}, fmt.Errorf("insert subscription: %w", err)
		}
		row, err := readSubscription(ctx, tx, namespace, id, "")
		if err != nil {
			return nil, auditRow{}, err
		}
		snapshot, err := json.Marshal(row.subscription())
		return snapshot, auditRow{Action: "subscription.create", ResourceKind: "subscription", ResourceID: id}, err
	})
}

// streamRow is the namespace's log as a locked or plain read sees it.
type streamRow struct {
	Head     uint64    `db:"head"`
	Boundary uint64    `db:"boundary"`
	Now      time.Time `db:"now"`
}

func readStream(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, lock string) (streamRow, error) {
	var row streamRow
	err := tx.GetContext(ctx, &row, "SELECT head, boundary, UTC_TIMESTAMP(6) AS now FROM result_streams WHERE namespace_id = ?"+lock, namespace)
	if err != nil {
		return row, fmt.Errorf("read stream of namespace %s: %w", namespace, err)
	}
	return row, nil
}

func startCursor(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, from *ids.Counter) (uint64, error) {
	stream, err := readStream(ctx, tx, namespace, forUpdate)
	if err != nil {
		return 0, err
	}
	switch {
	case from == nil:
		return stream.Head, nil
	case *from == 0:
		return stream.Boundary, nil
	case uint64(*from) > stream.Head:
		return 0, errs.Invalid("from_sequence", "is %s, above the committed head %d", *from, stream.Head)
	case uint64(*from) < stream.Boundary:
		return 0, errs.New(errs.EventHistoryExpired, "from_sequence: events up to %d were removed by retention, %s is before that", stream.Boundary, *from)
	}
	return uint64(*from), nil
}

func checkActive(ctx context.Context, tx *sqlx.Tx, namespace ids.ID) error {
	var n int
	if err := tx.GetContext(ctx, &n, "SELECT COUNT(*) FROM subscriptions FORCE INDEX (subscriptions_active) WHERE namespace_id = ? AND retired_at IS NULL", namespace); err != nil {
		return fmt.Errorf("count subscriptions: %w", err)
	}
	if n >= subscription.MaxActive {
		return errs.New(errs.SubscriptionLimit, "the namespace has %d subscriptions that are not retired, paused ones included; the limit is %d", n, subscription.MaxActive)
	}
	return nil
}

// Page is one page of a list in descending order; After continues below a position.
type Page struct {
	Limit int
	After *Position
}

// Position is where a page ended.
type Position struct {
	CreatedAt time.Time
	ID        ids.ID
	Sequence  uint64
}

const listSubscriptionsSQL = `
SELECT ` + subscriptionColumns + ` FROM subscriptions
WHERE namespace_id = ? AND credential_id = ? AND queue_id = ?`

// ListSubscriptions returns the caller's subscriptions of one queue, newest first (R5.4), and where
// the next page begins, if there may be one.
func (s *Store) ListSubscriptions(ctx context.Context, c *access.Caller, queue ids.ID, page Page) ([]*subscription.Subscription, *Position, error) {
	if _, err := scopedQueue(ctx, s.db, c, queue); err != nil {
		return nil, nil, err
	}
	query, args := listSubscriptionsSQL, []any{c.NamespaceID, c.CredentialID, queue}
	if page.After != nil {
		query += " AND (created_at < ? OR (created_at = ? AND id < ?))"
		args = append(args, page.After.CreatedAt, page.After.CreatedAt, page.After.ID)
	}
	var rows []subscriptionRow
	if err := s.db.SelectContext(ctx, &rows, query+" ORDER BY created_at DESC, id DESC LIMIT ?", append(args, page.Limit+1)...); err != nil {
		return nil, nil, classify(fmt.Errorf("list subscriptions: %w", err))
	}
	var next *Position
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		last := rows[page.Limit-1]
		next = &Position{CreatedAt: last.CreatedAt, ID: last.ID}
	}
	out := make([]*subscription.Subscription, len(rows))
	for i := range rows {
		out[i] = rows[i].subscription()
	}
	return out, next, nil
}
