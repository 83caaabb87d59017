package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
)

// maxTries bounds the re-runs of one transaction; with the pauses below that is about 2 s.
const maxTries = 12

type retryCounter struct{ n atomic.Int64 }

// Retries is the number of transactions re-run after a deadlock or lock timeout.
func (s *Store) Retries() int64 { return s.retries.n.Load() }

// InTx runs fn in one READ COMMITTED transaction and commits. A deadlock or lock timeout anywhere,
// COMMIT included, re-runs the whole of fn, so fn must hold only SQL and assign its results anew
// each time. Faults of the connection come back as UNAVAILABLE.
func (s *Store) InTx(ctx context.Context, fn func(tx *sqlx.Tx) error) error {
	for try := 1; ; try++ {
		err := s.once(ctx, fn)
		if err == nil || !isConflict(err) || try == maxTries {
			return classify(err)
		}
		s.retries.n.Add(1)
		pause := time.Duration(rand.Int64N(int64(min(try*try, 50)))+1) * 4 * time.Millisecond
		select {
		case <-ctx.Done():
			return classify(ctx.Err())
		case <-time.After(pause):
		}
	}
}

func (s *Store) once(ctx context.Context, fn func(tx *sqlx.Tx) error) error {
	tx, err := s.db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		_ = tx.Rollback() // the reason to roll back is the error to report
		return err
	}
	return tx.Commit()
}

// changed fails unless an UPDATE or DELETE found exactly want rows: the guards in its WHERE no
// longer held, though the lock order promised that they would.
func changed(res interface{ RowsAffected() (int64, error) }, err error, want int, what string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	got, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if got != int64(want) {
		return fmt.Errorf("%s: %d rows instead of %d", what, got, want)
	}
	return nil
}

// dbNow reads the database clock, which decides leases and order (R1.3).
func dbNow(ctx context.Context, tx *sqlx.Tx) (time.Time, error) {
	var now time.Time
	if err := tx.GetContext(ctx, &now, "SELECT UTC_TIMESTAMP(6)"); err != nil {
		return now, fmt.Errorf("read database clock: %w", err)
	}
	return now, nil
}

// marks returns "?,?,?" for n values.
func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?,", n), ",") }

// tuples returns "(row),(row),(row)" for a multi-row INSERT.
func tuples(row string, n int) string { return strings.TrimSuffix(strings.Repeat(row+",", n), ",") }

// prefixed names the columns of a list by their table's alias.
func prefixed(alias, columns string) string {
	return alias + "." + strings.ReplaceAll(strings.Join(strings.Fields(columns), " "), ", ", ", "+alias+".")
}
