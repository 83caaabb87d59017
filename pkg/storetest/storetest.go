// Package storetest gives tests databases of their own on a real server. It is for tests only.
package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/migrations"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/mysqld"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// EnvDSN names a server that is already running, with rights to create databases and users; without
// it Main starts a private one. A missing database server is a failure, never a skip.
const EnvDSN = "ORBIT_TEST_DSN"

const (
	managementUser = "orbit_management"
	gatewayUser    = "orbit_gateway"
)

var server struct {
	dsn    string // of the owner, without a database
	schema []string
}

// Main runs a package's tests with a server at hand and returns the exit code.
func Main(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server.dsn = os.Getenv(EnvDSN)
	if server.dsn == "" {
		dir, err := os.MkdirTemp("", "orbit-test-")
		if err != nil {
			return fail(err)
		}
		defer os.RemoveAll(dir)
		private, err := mysqld.Start(ctx, mysqld.Options{Dir: dir, DieWithParent: true})
		if err != nil {
			return fail(err)
		}
		defer private.Stop(context.Background()) //nolint:errcheck // the folder goes with it
		server.dsn = private.RootDSN("")
	}
	if err := prepare(ctx); err != nil {
		return fail(err)
	}
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "storetest: tests need a real database:", err)
	return 1
}

// prepare makes the services' users and reads the schema once, so that a test's database costs a
// few statements and not a run of the migrations.
func prepare(ctx context.Context) error {
	root, err := sql.Open("mysql", server.dsn)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, user := range []string{managementUser, gatewayUser} {
		if _, err := root.ExecContext(ctx, "CREATE USER IF NOT EXISTS '"+user+"'@'%'"); err != nil {
			return fmt.Errorf("create user %s: %w", user, err)
		}
	}
	template := "orbit_template_" + ids.New().String()
	if _, err := root.ExecContext(ctx, "CREATE DATABASE "+template); err != nil {
		return err
	}
	defer root.ExecContext(ctx, "DROP DATABASE "+template) //nolint:errcheck // the server may already be gone
	if _, err := store.Migrate(ctx, dsnFor(server.dsn, "", template)); err != nil {
		return err
	}
	server.schema, err = showTables(ctx, dsnFor(server.dsn, "", template))
	return err
}

func showTables(ctx context.Context, dsn string) ([]string, error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, "SHOW TABLES")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	var out []string
	for _, name := range names {
		var text string
		if err := db.QueryRowContext(ctx, "SHOW CREATE TABLE "+name).Scan(&name, &text); err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, rows.Err()
}

// dsnFor swaps user and database in a DSN of the form user:password@tcp(addr)/database?params.
func dsnFor(dsn, user, database string) string {
	at := strings.LastIndex(dsn, "@")
	slash := strings.LastIndex(dsn, "/")
	login, address := dsn[:at], dsn[at:slash+1]
	_, params, found := strings.Cut(dsn[slash+1:], "?")
	if user != "" {
		login = user
	}
	if found {
		params = "?" + params
	}
	return login + address + database + params
}

// DB is one test's database.
type DB struct {
	Name          string
	OwnerDSN      string
	ManagementDSN string
	GatewayDSN    string
	Owner         *store.Store // bootstrap and administration
	Management    *store.Store // with the management user's grants
	Gateway       *store.Store // with the gateway user's grants
	SQL           *sql.DB      // the owner's, for looking and for breaking things
}

// New makes a database with the whole schema and drops it at the end of the test.
func New(t testing.TB) *DB {
	t.Helper()
	if server.dsn == "" {
		t.Fatal("storetest: call storetest.Main from TestMain")
	}
	db := &DB{Name: "t_" + ids.New().String()}
	root := open(t, server.dsn)
	exec(t, root, "CREATE DATABASE "+db.Name)
	t.Cleanup(func() { exec(t, root, "DROP DATABASE "+db.Name) })
	db.OwnerDSN = dsnFor(server.dsn, "", db.Name)
	db.ManagementDSN = dsnFor(server.dsn, managementUser, db.Name)
	db.GatewayDSN = dsnFor(server.dsn, gatewayUser, db.Name)
	db.SQL = open(t, db.OwnerDSN)
	for _, table := range server.schema {
		exec(t, db.SQL, table)
	}
	exec(t, db.SQL, fmt.Sprintf("INSERT INTO schema_migrations (version, dirty) VALUES (%d, 0)", migrations.Latest()))
	for _, grant := range migrations.Grants(db.Name, "'"+managementUser+"'@'%'", "'"+gatewayUser+"'@'%'") {
		exec(t, db.SQL, grant)
	}
	db.Owner, db.Management, db.Gateway = openStore(t, db.OwnerDSN), openStore(t, db.ManagementDSN), openStore(t, db.GatewayDSN)
	return db
}

func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	sep := "?"
	if strings.Contains(dsn, "?") {
		sep = "&"
	}
	db, err := sql.Open("mysql", dsn+sep+"parseTime=true&time_zone=%27%2B00%3A00%27&interpolateParams=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func openStore(t testing.TB, dsn string) *store.Store {
	t.Helper()
	s, err := store.Open(dsn, store.Pool{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func exec(t testing.TB, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}
