package examples_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the receiver's driver

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/inbox"
)

// The inbox's PostgreSQL dialect on a real server; it is tested here because this module may have a driver.
// deploy/local/postgres.sh installs the server program.
func TestInboxOnPostgres(t *testing.T) {
	t.Parallel()
	db := postgres(t)
	t.Run("a consumer, byte for byte", func(t *testing.T) { postgresConsumer(t, db) })
	t.Run("one of many is fresh", func(t *testing.T) { postgresRace(t, db) })
	t.Run("a deadlock runs the whole transaction again", func(t *testing.T) { postgresDeadlock(t, db) })
	t.Run("a failed write saves nothing", func(t *testing.T) { postgresRollback(t, db) })
}

func postgresBox(t *testing.T, db *sql.DB, table string) *inbox.Inbox {
	t.Helper()
	box, err := inbox.New(db, inbox.Options{Dialect: inbox.Postgres, Table: table})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds it there
		if err := box.EnsureTable(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return box
}

// postgresConsumer is E2: from task to inbox.
func postgresConsumer(t *testing.T, db *sql.DB) {
	e := stack.Namespace(t)
	sub := e.NewSubscription(t, e.QueueID, nil)
	e.Results(t, e.QueueID, exact)
	box := postgresBox(t, db, "orbit_inbox")
	if _, err := db.Exec("CREATE TABLE results_seen (event_id TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var got *orbit.Delivery
	err := orbit.Consumer{URL: e.GatewayURL, Token: e.Token, SubscriptionID: sub,
		Handler: func(ctx context.Context, d *orbit.Delivery) error {
			got = d
			for range 2 { // as if it came again
				_, err := box.Process(ctx, d, func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO results_seen VALUES ($1)", d.Event.ID)
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
		OnAck: func(orbit.AckResult) { stop() }}.Run(ctx)
	if err != nil || got == nil {
		t.Fatal(got, err)
	}
	var id, task, subscription, event []byte
	var sequence, kind string
	var occurred, received time.Time
	var duplicates, effects int
	err = db.QueryRow(`SELECT event_id, task_id, subscription_id, event, sequence::TEXT, type, occurred_at, received_at, duplicates, (SELECT COUNT(*) FROM results_seen) FROM orbit_inbox`).
		Scan(&id, &task, &subscription, &event, &sequence, &kind, &occurred, &received, &duplicates, &effects)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(event, got.RawEvent) || !bytes.Contains(event, []byte(exact)) {
		t.Errorf("event\n got %s\nwant %s", event, got.RawEvent)
	}
	if hex.EncodeToString(id) != got.Event.ID || hex.EncodeToString(task) != got.Event.AggregateID || hex.EncodeToString(subscription) != sub ||
		sequence != got.Event.Sequence || kind != got.Event.Type || !occurred.Equal(got.Event.OccurredAt.Truncate(time.Microsecond)) || duplicates != 1 || effects != 1 {
		t.Errorf("row %x %x %x %s %s %s %d, %d effects", id, task, subscription, sequence, kind, occurred, duplicates, effects)
	}
	if age := time.Since(received); age < -time.Minute || age > time.Hour {
		t.Errorf("received at %s", received)
	}
}

func delivery(n int) *orbit.Delivery {
	id := fmt.Sprintf("%032x", n)
	return &orbit.Delivery{EventDelivery: orbit.EventDelivery{ID: id, SubscriptionID: id},
		Event:    orbit.ResultEvent{ID: id, Sequence: "18446744073709551615", Type: orbit.TaskSucceeded, AggregateID: id, OccurredAt: time.Now()},
		RawEvent: []byte(`{"id":"` + id + `"}`)}
}

func postgresRace(t *testing.T, db *sql.DB) {
	box := postgresBox(t, db, "race_inbox")
	var fresh, again atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			first, err := box.Process(context.Background(), delivery(1), func(context.Context, *sql.Tx) error { return nil })
			if err != nil {
				t.Error(err)
			}
			if first {
				fresh.Add(1)
			} else {
				again.Add(1)
			}
		}()
	}
	wg.Wait()
	var duplicates int
	if err := db.QueryRow("SELECT duplicates FROM race_inbox").Scan(&duplicates); err != nil || fresh.Load() != 1 || again.Load() != 19 || duplicates != 19 {
		t.Errorf("%d fresh, %d again, %d duplicates, %v", fresh.Load(), again.Load(), duplicates, err)
	}
}

// postgresDeadlock crosses two transactions; the server must end one.
func postgresDeadlock(t *testing.T, db *sql.DB) {
	box := postgresBox(t, db, "deadlock_inbox")
	for _, statement := range []string{"CREATE TABLE accounts (id INT PRIMARY KEY, n INT NOT NULL)", "INSERT INTO accounts VALUES (1, 0), (2, 0)"} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	var runs atomic.Int32
	var both sync.WaitGroup // until each holds its first row
	both.Add(2)
	cross := func(n, first, second int) error {
		met := sync.OnceFunc(func() { both.Done(); both.Wait() })
		fresh, err := box.Process(context.Background(), delivery(n), func(ctx context.Context, tx *sql.Tx) error {
			runs.Add(1)
			if _, err := tx.ExecContext(ctx, "UPDATE accounts SET n = n + 1 WHERE id = $1", first); err != nil {
				return err
			}
			met()
			_, err := tx.ExecContext(ctx, "UPDATE accounts SET n = n + 1 WHERE id = $1", second)
			return err
		})
		if err == nil && !fresh {
			err = errors.New("not fresh")
		}
		return err
	}
	results := make(chan error, 2)
	go func() { results <- cross(1, 1, 2) }()
	go func() { results <- cross(2, 2, 1) }()
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	var low, high int
	if err := db.QueryRow("SELECT MIN(n), MAX(n) FROM accounts").Scan(&low, &high); err != nil || low != 2 || high != 2 || runs.Load() < 3 {
		t.Errorf("accounts %d…%d after %d runs, %v; a deadlock must have been retried", low, high, runs.Load(), err)
	}
}

func postgresRollback(t *testing.T, db *sql.DB) {
	box := postgresBox(t, db, "public.rollback_inbox")
	full := errors.New("disk full")
	if fresh, err := box.Process(t.Context(), delivery(1), func(context.Context, *sql.Tx) error { return full }); fresh || !errors.Is(err, full) {
		t.Errorf("fresh %v, %v", fresh, err)
	}
	if fresh, err := box.Process(t.Context(), delivery(1), func(context.Context, *sql.Tx) error { return nil }); !fresh || err != nil {
		t.Errorf("the next time: fresh %v, %v", fresh, err)
	}
}

// postgres starts a private server.
func postgres(t *testing.T) *sql.DB {
	t.Helper()
	bin := postgresBin(t)
	dir, err := os.MkdirTemp("", "orbit-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	attributes := unprivileged(t, dir)
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(t.Context(), filepath.Join(bin, "initdb"), "--pgdata", data, "--username", "receiver", "--auth", "trust", "--no-sync", "--encoding", "UTF8", "--locale", "C")
	initdb.Dir, initdb.SysProcAttr = dir, attributes
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	_ = l.Close()
	var log bytes.Buffer
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", port, "-k", dir, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "deadlock_timeout=100ms")
	server.Dir, server.SysProcAttr, server.Stdout, server.Stderr = dir, attributes, &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT) // its fast shutdown
		if err := server.Wait(); err != nil {
			t.Errorf("postgres ended with %v\n%s", err, log.String())
		}
	})
	db, err := sql.Open("pgx", "postgres://receiver@127.0.0.1:"+port+"/postgres?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if err = db.PingContext(t.Context()); err == nil {
			return db
		}
		if time.Now().After(deadline) {
			t.Fatalf("postgres is not ready: %v", err)
		}
	}
}

// postgresBin is the folder of the newest server's programs.
func postgresBin(t *testing.T) string {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/initdb", "/opt/homebrew/opt/postgresql*/bin/initdb", "/usr/local/opt/postgresql*/bin/initdb", "/usr/pgsql-*/bin/initdb"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 { // the pattern is well formed
			return filepath.Dir(found[len(found)-1])
		}
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		t.Fatal("PostgreSQL's server programs are not found; run deploy/local/postgres.sh")
	}
	return filepath.Dir(path)
}

// unprivileged gives dir to a user who may run the server, which refuses root.
func unprivileged(t *testing.T, dir string) *syscall.SysProcAttr {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, errUID := strconv.Atoi(u.Uid)
	gid, errGID := strconv.Atoi(u.Gid)
	if err := errors.Join(errUID, errGID, os.Chown(dir, uid, gid)); err != nil {
		t.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}
