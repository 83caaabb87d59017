package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/golang-migrate/migrate/v4"
	migratemysql "github.com/golang-migrate/migrate/v4/database/mysql"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"git.yuntuo.hk/k2safe/orbit/migrations"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// beforeRetirement is the last version without it that all installations can have.
const beforeRetirement = 17

// oldDatabase makes a database at a version and returns its DSN and a way in.
func oldDatabase(t *testing.T, version uint) (string, *sql.DB) {
	t.Helper()
	db := storetest.New(t)
	cfg, err := mysql.ParseDSN(db.OwnerDSN)
	must(t, err)
	cfg.DBName = "old_" + ids.New().String()
	execSQL(t, db, "CREATE DATABASE "+cfg.DBName)
	t.Cleanup(func() { execSQL(t, db, "DROP DATABASE "+cfg.DBName) })
	dsn := cfg.FormatDSN()
	cfg.MultiStatements, cfg.ParseTime = true, true
	connector, err := mysql.NewConnector(cfg)
	must(t, err)
	pool := sql.OpenDB(connector)
	t.Cleanup(func() { _ = pool.Close() })
	conn, err := pool.Conn(context.Background())
	must(t, err)
	target, err := migratemysql.WithConnection(context.Background(), conn, &migratemysql.Config{DatabaseName: cfg.DBName})
	must(t, err)
	files, err := iofs.New(migrations.Files, ".")
	must(t, err)
	m, err := migrate.NewWithInstance("iofs", files, "mysql", target)
	must(t, err)
	must(t, m.Migrate(version))
	must(t, conn.Close())
	return dsn, pool
}

// TestRetirementMigration: an installation of before goes on, across the gap in the numbers and after a
// kill at any point of it; everything it has starts not retired, and the schema has no foreign keys.
func TestRetirementMigration(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dsn, pool := oldDatabase(t, beforeRetirement)
	for _, insert := range []string{
		"INSERT INTO queues (namespace_id, id, name, revision, paused, max_running, lease_duration_ms, created_at, updated_at) VALUES ('0123456789abcdef', '0123456789abcdef', 'q', 7, 0, 0, 30000, '2026-01-01', '2026-01-02')",
		"INSERT INTO subscriptions (namespace_id, id, queue_id, application_id, credential_id, name, revision, enabled, types, cursor_sequence, pending_count, max_pending, max_attempts, created_at, updated_at) VALUES ('0123456789abcdef', '0123456789abcdef', '0123456789abcdef', '', '', 's', 9, 0, 15, 3, 2, 100, 20, '2026-01-01', '2026-01-02')",
	} {
		_, err := pool.Exec(insert)
		must(t, err)
	}
	s, err := store.Open(dsn, store.Pool{})
	must(t, err)
	defer s.Close()
	want := fmt.Sprintf("the database is at schema version %d, this binary needs %d: stop the old writers, run `orbit-management migrate up`, then start this one", beforeRetirement, migrations.Latest())
	if err := s.CheckSchema(ctx); err == nil || err.Error() != want {
		t.Errorf("on the old schema: %v, want %s", err, want)
	}
	up := func(what string) {
		t.Helper()
		if version, err := store.Migrate(ctx, dsn); err != nil || version != migrations.Latest() {
			t.Fatalf("%s: version %d, %v", what, version, err)
		}
		if err := s.CheckSchema(ctx); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		var columns int
		must(t, pool.QueryRow("SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND column_name IN ('retired_at', 'retired_sequence') AND table_name IN ('queues', 'subscriptions')").Scan(&columns))
		var retired, touched int
		must(t, pool.QueryRow("SELECT (SELECT COUNT(*) FROM queues WHERE retired_at IS NOT NULL) + (SELECT COUNT(*) FROM subscriptions WHERE retired_at IS NOT NULL OR retired_sequence IS NOT NULL), "+
			"(SELECT COUNT(*) FROM queues WHERE revision <> 7 OR paused <> 0 OR updated_at <> '2026-01-02') + (SELECT COUNT(*) FROM subscriptions WHERE revision <> 9 OR cursor_sequence <> 3 OR pending_count <> 2)").Scan(&retired, &touched))
		if columns != 3 || retired != 0 || touched != 0 {
			t.Errorf("%s: %d columns, %d rows retired, %d rows changed", what, columns, retired, touched)
		}
	}
	up("first")
	up("again")
	for what, undo := range map[string]string{
		"killed at its end": "DO 0",
		"killed half-way":   "ALTER TABLE subscriptions DROP CONSTRAINT subscriptions_settled, DROP CONSTRAINT subscriptions_retired, ADD KEY subscriptions_queue (namespace_id, queue_id), DROP KEY subscriptions_active, DROP COLUMN retired_sequence, DROP COLUMN retired_at",
		"killed before it":  "ALTER TABLE subscriptions DROP CONSTRAINT subscriptions_settled, DROP CONSTRAINT subscriptions_retired, ADD KEY subscriptions_queue (namespace_id, queue_id), DROP KEY subscriptions_active, DROP COLUMN retired_sequence, DROP COLUMN retired_at; ALTER TABLE queues DROP CONSTRAINT queues_retired, DROP COLUMN retired_at",
	} {
		_, err := pool.Exec(undo)
		must(t, err)
		_, err = pool.Exec("UPDATE schema_migrations SET version = 34, dirty = 1")
		must(t, err)
		if err := s.CheckSchema(ctx); err == nil || !strings.Contains(err.Error(), "version 34 is half applied; run `orbit-management migrate up`") {
			t.Errorf("%s: %v", what, err)
		}
		up(what)
	}
	var foreign int
	must(t, pool.QueryRow("SELECT COUNT(*) FROM information_schema.referential_constraints WHERE constraint_schema = DATABASE()").Scan(&foreign))
	if foreign != 0 {
		t.Errorf("the schema has %d foreign keys", foreign)
	}

	// A binary of before finds a version that it does not know: it neither starts nor migrates.
	_, err = pool.Exec("UPDATE schema_migrations SET version = version + 1")
	must(t, err)
	for what, err := range map[string]error{"start": s.CheckSchema(ctx), "migrate": func() error { _, err := store.Migrate(ctx, dsn); return err }()} {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the database is at schema version %d", migrations.Latest()+1)) || !strings.Contains(err.Error(), "deploy a newer binary") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestRetirementIsCheckedByTheTables too: a row that is half retired cannot be written.
func TestRetirementIsCheckedByTheTables(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	db.Subscribe(t, tenant, subscription.Create{})
	for _, query := range []string{
		"UPDATE queues SET retired_at = '2026-01-01'",
		"UPDATE subscriptions SET retired_at = '2026-01-01', enabled = 0",
		"UPDATE subscriptions SET retired_sequence = 0, enabled = 0",
		"UPDATE subscriptions SET retired_at = '2026-01-01', retired_sequence = 0",
		"UPDATE subscriptions SET retired_at = '2026-01-01', retired_sequence = 1, enabled = 0",
		"UPDATE subscriptions SET retired_at = '2026-01-01', retired_sequence = 0, enabled = 0, pending_count = 1",
	} {
		if _, err := db.SQL.Exec(query); err == nil {
			t.Errorf("%s was allowed", query)
		}
	}
}
