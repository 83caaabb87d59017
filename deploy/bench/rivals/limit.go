package rivals

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// FsyncRate is how many 4 KiB appends a second the folder's disk makes durable, one after another.
func FsyncRate(dir string, d time.Duration) (float64, error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	page, n, began := make([]byte, 4096), 0, time.Now()
	for time.Since(began) < d {
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// SQLLimit moves n messages through narrow tables by SQL alone, append, lease and acknowledge in turn,
// 256 a transaction: what the database can do at best for anything that does these three durably.
func SQLLimit(ctx context.Context, h Host, n int, payload []byte) error {
	const batch = 256
	db, err := openDB(h)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, table := range []string{
		"CREATE TABLE lim_log (seq BIGINT UNSIGNED NOT NULL PRIMARY KEY, payload BLOB NOT NULL)",
		"CREATE TABLE lim_lease (seq BIGINT UNSIGNED NOT NULL PRIMARY KEY, lease_until DATETIME(6) NOT NULL, acked TINYINT NOT NULL)",
	} {
		if _, err := db.ExecContext(ctx, table); err != nil {
			return err
		}
	}
	rows := func(row string, n int) string { return strings.TrimSuffix(strings.Repeat(row+",", n), ",") }
	for first := 1; first <= n; first += batch {
		appended, leased, acked := make([]any, 0, 2*batch), make([]any, 0, 2*batch), make([]any, 0, batch)
		until := time.Now().UTC().Add(30 * time.Second)
		for seq := first; seq < first+batch; seq++ {
			appended, leased, acked = append(appended, seq, payload), append(leased, seq, until), append(acked, seq)
		}
		for _, step := range []struct {
			query string
			args  []any
		}{
			{"INSERT INTO lim_log VALUES " + rows("(?,?)", batch), appended},
			{"INSERT INTO lim_lease VALUES " + rows("(?,?,0)", batch), leased},
			{"UPDATE lim_lease SET acked = 1 WHERE seq IN (" + rows("?", batch) + ")", acked},
		} {
			if err := inTx(ctx, db, step.query, step.args); err != nil {
				return err
			}
		}
	}
	return nil
}

func inTx(ctx context.Context, db *sql.DB, query string, args []any) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		_ = tx.Rollback() // the first error is the one to report
		return err
	}
	return tx.Commit()
}
