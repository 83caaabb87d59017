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
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
)

type queueRow struct {
	ID              ids.ID     `db:"id"`
	Name            string     `db:"name"`
	Revision        uint64     `db:"revision"`
	Paused          bool       `db:"paused"`
	MaxRunning      int        `db:"max_running"`
	LeaseDurationMS int        `db:"lease_duration_ms"`
	CreatedAt       time.Time  `db:"created_at"`
	UpdatedAt       time.Time  `db:"updated_at"`
	RetiredAt       *time.Time `db:"retired_at"`
}

func (r *queueRow) queue() *queue.Queue {
	return &queue.Queue{
		ID: r.ID, Name: r.Name, Revision: ids.Counter(r.Revision), Paused: r.Paused, MaxRunning: r.MaxRunning,
		LeaseDurationMS: r.LeaseDurationMS, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, RetiredAt: r.RetiredAt,
	}
}

const queueColumns = `id, name, revision, paused, max_running, lease_duration_ms, created_at, updated_at, retired_at`

const readQueueSQL = `SELECT ` + queueColumns + `
FROM queues WHERE namespace_id = ? AND id = ?`

func readQueue(ctx context.Context, q sqlx.QueryerContext, namespace, id ids.ID, lock string) (*queueRow, error) {
	var row queueRow
	err := sqlx.GetContext(ctx, q, &row, readQueueSQL+lock, namespace, id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errs.New(errs.NotFound, "queue %s does not exist here", id)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("read queue %s: %w", id, err))
	}
	return &row, nil
}

// liveQueue is readQueue for what a retired queue refuses: RESOURCE_RETIRED.
func liveQueue(ctx context.Context, q sqlx.QueryerContext, namespace, id ids.ID, lock string) (*queueRow, error) {
	row, err := readQueue(ctx, q, namespace, id, lock)
	if err != nil {
		return nil, err
	}
	return row, row.queue().Refuse()
}

// Row locks, spelled so that MySQL and MariaDB both take them.
const (
	forShare  = " LOCK IN SHARE MODE"
	forUpdate = " FOR UPDATE"
)

// GetQueue returns a queue in the caller's scope, else NOT_FOUND.
func (s *Store) GetQueue(ctx context.Context, c *access.Caller, id ids.ID) (*queue.Queue, error) {
	row, err := scopedQueue(ctx, s.db, c, id)
	if err != nil {
		return nil, err
	}
	return row.queue(), nil
}

func scopedQueue(ctx context.Context, q sqlx.QueryerContext, c *access.Caller, id ids.ID) (*queueRow, error) {
	if !c.MayUse(id) { // out of scope looks the same as missing (R2.7)
		return nil, errs.New(errs.NotFound, "queue %s does not exist here", id)
	}
	return readQueue(ctx, q, c.NamespaceID, id, "")
}

const insertQueueSQL = `
INSERT INTO queues (namespace_id, id, name, revision, paused, max_running, lease_duration_ms, created_at, updated_at)
VALUES (?, ?, ?, 1, 0, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))`

// CreateQueue makes a queue and puts it into its creator's scope. A name that was ever used in the
// namespace is STATE_CONFLICT.
func (s *Store) CreateQueue(ctx context.Context, w Write, create queue.Create) (Receipt, error) {
	fingerprint, err := Fingerprint("queue.create", create)
	if err != nil {
		return Receipt{}, err
	}
	noCheck := func(*sqlx.Tx) error { return nil }
	return s.idempotent(ctx, w, fingerprint, noCheck, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		id := ids.New()
		if err := insertQueue(ctx, tx, w.Caller.NamespaceID, id, create); err != nil {
			return nil, auditRow{}, err
		}
		if !w.Caller.AllQueues {
			if err := joinScope(ctx, tx, w.Caller.CredentialID, id); err != nil {
				return nil, auditRow{}, err
			}
		}
		row, err := readQueue(ctx, tx, w.Caller.NamespaceID, id, "")
		if err != nil {
			return nil, auditRow{}, err
		}
		snapshot, err := json.Marshal(row.queue())
		return snapshot, auditRow{Action: "queue.create", ResourceKind: "queue", ResourceID: id}, err
	})
}

func insertQueue(ctx context.Context, tx *sqlx.Tx, namespace, id ids.ID, create queue.Create) error {
	_, err := tx.ExecContext(ctx, insertQueueSQL, namespace, id, []byte(create.Name), create.MaxRunning, create.LeaseDurationMS)
	if isDuplicate(err) {
		return errs.New(errs.StateConflict, "name: a queue named %q exists or existed in this namespace", create.Name)
	}
	if err != nil {
		return fmt.Errorf("insert queue: %w", err)
	}
	return nil
}
