package rivals

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"time"
)

// tableBroker is what teams write first: a table, SKIP LOCKED, a flag.
type tableBroker struct{ db *sql.DB }

func openTable(ctx context.Context, h Host) (Broker, error) {
	db, err := openDB(h)
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `CREATE TABLE jobs (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, done TINYINT NOT NULL DEFAULT 0,
payload BLOB NOT NULL, done_at DATETIME(6) NULL, KEY jobs_todo (done, id))`)
	return &tableBroker{db}, err
}

func (b *tableBroker) Publish(ctx context.Context, n int, payload []byte) error {
	const each = 100
	var left atomic.Int64
	left.Store(int64(n))
	return shared(8, func() error {
		for {
			take := min(int(left.Add(-each))+each, each)
			if take <= 0 {
				return nil
			}
			args := make([]any, take)
			for i := range args {
				args[i] = payload
			}
			if _, err := b.db.ExecContext(ctx, "INSERT INTO jobs (payload) VALUES "+strings.TrimSuffix(strings.Repeat("(?),", take), ","), args...); err != nil {
				return err
			}
		}
	})
}

func (b *tableBroker) PublishOne(ctx context.Context, payload []byte) error {
	_, err := b.db.ExecContext(ctx, "INSERT INTO jobs (payload) VALUES (?)", payload)
	return err
}

func (b *tableBroker) Consume(ctx context.Context, n int, seen func([]byte)) error {
	var left atomic.Int64
	left.Store(int64(n))
	return shared(8, func() error {
		for left.Load() > 0 {
			payload, err := b.take(ctx)
			if errors.Is(err, sql.ErrNoRows) {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(10 * time.Millisecond):
				}
				continue
			}
			if err != nil {
				return err
			}
			seen(payload)
			left.Add(-1)
		}
		return nil
	})
}

func (b *tableBroker) take(ctx context.Context) ([]byte, error) {
	tx, err := b.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	var id uint64
	var payload []byte
	if err := tx.QueryRowContext(ctx, "SELECT id, payload FROM jobs WHERE done = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED").Scan(&id, &payload); err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE jobs SET done = 1, done_at = UTC_TIMESTAMP(6) WHERE id = ?", id); err != nil {
		return nil, err
	}
	return payload, tx.Commit()
}

func (b *tableBroker) Close() error { return b.db.Close() }
