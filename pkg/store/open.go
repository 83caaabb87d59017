// Package store is all of Orbit's SQL. Each method is one read or one transaction; errors are
// *errs.Error for what a caller can act on and anything else is internal.
package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/migrations"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
)

// Pool bounds the connections of one process.
type Pool struct {
	MaxOpen     int           // default 16
	MaxLifetime time.Duration // default 10 min, so that a switched primary is left soon
}

// Store is safe for concurrent use.
type Store struct {
	db      *sqlx.DB
	scan    *sqlx.DB // one connection for Streams: it waits for no busy pool
	retries retryCounter
	plans   plans
}

// Open prepares a pool; it does not connect. The DSN is go-sql-driver's; what correctness needs
// (UTC, found rows, strict mode, READ COMMITTED, deadlines) is set here whatever the DSN says.
func Open(dsn string, pool Pool) (*Store, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errs.Invalid("ORBIT_DSN", "not a DSN of the form user:password@tcp(host:port)/database")
	}
	cfg.ParseTime = true
	cfg.Loc = time.UTC
	cfg.ClientFoundRows = true
	cfg.InterpolateParams = true // one round trip a statement
	cfg.RejectReadOnly = true    // a demoted primary must not keep its connection
	cfg.Timeout = orDefault(cfg.Timeout, 5*time.Second)
	cfg.ReadTimeout = orDefault(cfg.ReadTimeout, 15*time.Second)
	cfg.WriteTimeout = orDefault(cfg.WriteTimeout, 10*time.Second)
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	cfg.Params["time_zone"] = "'+00:00'"
	cfg.Params["sql_mode"] = "'STRICT_ALL_TABLES,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'"
	cfg.Params["innodb_lock_wait_timeout"] = "6" // under the 8 s of a request
	// A process that is frozen or cut off in a transaction loses it after so long, and with it the locks
	// that keep every other replica waiting. It holds for idle pooled connections too: those end earlier.
	cfg.Params["wait_timeout"] = strconv.Itoa(int(silentLimit / time.Second))
	cfg.Logger = &mysql.NopLogger{} // every error is returned; the driver need not print it as well
	if pool.MaxOpen == 0 {
		pool.MaxOpen = 16
	}
	s := &Store{}
	if s.db, err = openPool(cfg, pool); err != nil {
		return nil, err
	}
	cfg = cfg.Clone()
	cfg.ReadTimeout, cfg.WriteTimeout = min(cfg.ReadTimeout, scanTimeout), min(cfg.WriteTimeout, scanTimeout)
	s.scan, err = openPool(cfg, Pool{MaxOpen: 1, MaxLifetime: pool.MaxLifetime})
	return s, err
}

func openPool(cfg *mysql.Config, pool Pool) (*sqlx.DB, error) {
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("prepare database connector: %w", err)
	}
	db := sql.OpenDB(readCommitted{connector})
	db.SetMaxOpenConns(pool.MaxOpen)
	db.SetMaxIdleConns(pool.MaxOpen)
	db.SetConnMaxIdleTime(silentLimit / 2)
	db.SetConnMaxLifetime(orDefault(pool.MaxLifetime, 10*time.Minute))
	return sqlx.NewDb(db, "mysql"), nil
}

// scanTimeout bounds a scan of the heads by its connection's deadlines.
const scanTimeout = 5 * time.Second

// silentLimit is how long the server keeps a connection, and its transaction, that sends nothing.
const silentLimit = 10 * time.Second

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// readCommitted sets the isolation level once per connection; the variable's name differs between
// MySQL and MariaDB, the statement does not.
type readCommitted struct{ driver.Connector }

func (c readCommitted) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.(driver.ExecerContext).ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", nil); err != nil {
		_ = conn.Close() // the first error is the one to report
		return nil, err
	}
	return conn, nil
}

// Close releases the connections.
func (s *Store) Close() error { return errors.Join(s.db.Close(), s.scan.Close()) }

// Ping asks the server for one round trip.
func (s *Store) Ping(ctx context.Context) error { return classify(s.db.PingContext(ctx)) }

// CheckSchema fails unless the database is at exactly the version this binary was built for (R7.4).
func (s *Store) CheckSchema(ctx context.Context) error {
	var row struct {
		Version uint `db:"version"`
		Dirty   bool `db:"dirty"`
	}
	want := migrations.Latest()
	err := s.db.GetContext(ctx, &row, "SELECT version, dirty FROM schema_migrations LIMIT 1")
	switch {
	case isNoTable(err) || err == sql.ErrNoRows: //nolint:errorlint // sqlx returns it bare
		return fmt.Errorf("the database has no schema; this binary needs version %d: run `orbit-management migrate up`", want)
	case err != nil:
		return classify(err)
	case row.Dirty:
		return fmt.Errorf("schema version %d is half applied; run `orbit-management migrate up` to finish it", row.Version)
	case row.Version != want:
		return fmt.Errorf("the database is at schema version %d, this binary needs %d: %s", row.Version, want, schemaAdvice(row.Version, want))
	}
	return nil
}

// AwaitSchema waits for the database to be reachable and then checks its version; it returns nil when
// ctx ends first. While the database is away the process lives and says so once, rather than ending
// in a crash loop.
func (s *Store) AwaitSchema(ctx context.Context, log *zap.Logger) error {
	for waiting := false; ; waiting = true {
		err := s.checkSchemaSoon(ctx)
		if !errs.Is(err, errs.Unavailable) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if !waiting {
			log.Warn("waiting for the database", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

func (s *Store) checkSchemaSoon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.CheckSchema(ctx)
}

func schemaAdvice(have, want uint) string {
	if have > want {
		return "deploy a newer binary"
	}
	return "stop the old writers, run `orbit-management migrate up`, then start this one"
}
