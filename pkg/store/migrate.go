package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/golang-migrate/migrate/v4"
	migratemysql "github.com/golang-migrate/migrate/v4/database/mysql"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"git.yuntuo.hk/k2safe/orbit/migrations"
)

// Migrate brings the database to the newest version and returns it. Any number may run at once: one
// works, the others wait for it. A migration that was killed half-way is run again, which every
// migration allows (its statements are IF NOT EXISTS).
func Migrate(ctx context.Context, dsn string) (uint, error) {
	var version uint
	err := withMigrator(ctx, dsn, func(m *migrate.Migrate) error {
		v, dirty, err := m.Version()
		switch latest := migrations.Latest(); {
		case err == nil && v > latest:
			return fmt.Errorf("the database is at schema version %d, this binary knows versions up to %d: %s", v, latest, schemaAdvice(v, latest))
		case err == nil && dirty:
			if err := m.Force(before(v)); err != nil {
				return fmt.Errorf("resume half-applied migration %d: %w", v, err)
			}
		}
		if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
			return fmt.Errorf("migrate up: %w", err)
		}
		version, _, err = m.Version()
		return err
	})
	return version, err
}

// before returns the version that precedes v in the embedded files, −1 (none) for the first.
func before(v uint) int {
	prev := -1
	names, _ := fs.Glob(migrations.Files, "*.up.sql") // the pattern is well formed
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		if n, err := strconv.Atoi(number); err == nil && n < int(v) && n > prev {
			prev = n
		}
	}
	return prev
}

// SchemaVersion returns the applied version (0 for an empty database) and whether it is half applied.
func SchemaVersion(ctx context.Context, dsn string) (version uint, dirty bool, err error) {
	err = withMigrator(ctx, dsn, func(m *migrate.Migrate) error {
		var err error
		version, dirty, err = m.Version()
		if errors.Is(err, migrate.ErrNilVersion) {
			return nil
		}
		return err
	})
	return version, dirty, err
}

func withMigrator(ctx context.Context, dsn string, fn func(*migrate.Migrate) error) error {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return fmt.Errorf("parse the database DSN: %w", err)
	}
	cfg.MultiStatements = true // a migration file may hold several statements
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return fmt.Errorf("prepare migration connection: %w", err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return classify(err)
	}
	release, err := migrationLock(ctx, db)
	if err != nil {
		return err
	}
	defer release()
	target, err := migratemysql.WithConnection(ctx, conn, &migratemysql.Config{DatabaseName: cfg.DBName})
	if err != nil {
		return fmt.Errorf("open schema_migrations: %w", err)
	}
	files, err := iofs.New(migrations.Files, ".")
	if err != nil {
		return fmt.Errorf("read embedded migrations: %w", err)
	}
	m, err := migrate.NewWithInstance("iofs", files, "mysql", target)
	if err != nil {
		return fmt.Errorf("prepare migrations: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { m.GracefulStop <- true })
	defer stop()
	defer m.Close()
	return fn(m)
}

// migrationLock waits for the turn of this process on a connection of its own; golang-migrate's own
// lock gives up after seconds and does not cover the look at a half-applied version.
func migrationLock(ctx context.Context, db *sql.DB) (release func(), err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, classify(err)
	}
	for {
		var got sql.NullInt64
		err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(CONCAT('orbit_migrate_', DATABASE()), 5)").Scan(&got)
		if err != nil {
			_ = conn.Close() // the first error is the one to report
			return nil, fmt.Errorf("wait for other migrations: %w", classify(err))
		}
		if got.Int64 == 1 {
			return func() { _ = conn.Close() }, nil // the lock ends with the pool's connections
		}
	}
}
