package inbox_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/inbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exact holds what a JSON column would rewrite (E2), and bytes that a text column might.
const exact = `{"z":1,"a":9007199254740993, "b":18446744073709551615,"c":1.0,"d":1e400,"e":"<&>\u2028\\ 结果 😀"}`

// open creates a database for the test on the server of ORBIT_TEST_DSN, whose user may create databases.
func open(t *testing.T) *sql.DB {
	t.Helper()
	dsn := os.Getenv("ORBIT_TEST_DSN")
	if dsn == "" {
		t.Fatal("ORBIT_TEST_DSN must name a MariaDB or MySQL server, like root@tcp(127.0.0.1:3306)/")
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	server := connect(t, config)
	name := "orbit_inbox_" + orbit.NewKey()
	if _, err := server.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = server.Exec("DROP DATABASE " + name) })
	config.DBName, config.ParseTime = name, false
	return connect(t, config)
}

func connect(t *testing.T, config *mysql.Config) *sql.DB {
	t.Helper()
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newBox(t *testing.T, db *sql.DB, o inbox.Options) *inbox.Inbox {
	t.Helper()
	box, err := inbox.New(db, o)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds it there
		if err := box.EnsureTable(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return box
}

func delivery(n int) *orbit.Delivery {
	event := orbit.ResultEvent{ID: fmt.Sprintf("%032x", n), Sequence: "18446744073709551615", Type: orbit.TaskSucceeded,
		AggregateID: strings.Repeat("6", 32), OccurredAt: time.Date(2026, 9, 17, 18, 0, 0, 123456789, time.FixedZone("", 8*3600))}
	return &orbit.Delivery{EventDelivery: orbit.EventDelivery{ID: strings.Repeat("3", 32), SubscriptionID: strings.Repeat("2", 32)}, Event: event,
		RawEvent: []byte(`{"id":"` + event.ID + `","snapshot":{"result":` + exact + `}}`)}
}

func TestProcessKeepsTheWholeEvent(t *testing.T) {
	t.Parallel()
	db := open(t)
	box, ctx, d := newBox(t, db, inbox.Options{}), context.Background(), delivery(1)
	var runs int
	for i, want := range []bool{true, false, false} {
		fresh, err := box.Process(ctx, d, func(context.Context, *sql.Tx) error { runs++; return nil })
		if err != nil || fresh != want {
			t.Errorf("time %d: fresh %v, %v", i, fresh, err)
		}
	}
	if runs != 1 {
		t.Errorf("written %d times", runs)
	}
	var event, task, subscription, raw []byte
	var sequence, kind, occurred, consumer string
	var age, duplicates int
	if err := db.QueryRow(`SELECT consumer, event_id, sequence, type, subscription_id, task_id, occurred_at, TIMESTAMPDIFF(SECOND, received_at, UTC_TIMESTAMP(6)), event, duplicates
		FROM orbit_inbox`).Scan(&consumer, &event, &sequence, &kind, &subscription, &task, &occurred, &age, &raw, &duplicates); err != nil {
		t.Fatal(err)
	}
	if string(raw) != string(d.RawEvent) {
		t.Errorf("event\n got %s\nwant %s", raw, d.RawEvent)
	}
	if hex.EncodeToString(event) != d.Event.ID || hex.EncodeToString(task) != d.Event.AggregateID || hex.EncodeToString(subscription) != d.SubscriptionID {
		t.Errorf("ids %x %x %x", event, task, subscription)
	}
	if sequence != d.Event.Sequence || kind != d.Event.Type || occurred != "2026-09-17 10:00:00.123456" || consumer != "" || duplicates != 2 || age < 0 || age > 60 {
		t.Errorf("row %s %s %s %q %d %d", sequence, kind, occurred, consumer, duplicates, age)
	}
}

func TestARefusedWriteSavesNothing(t *testing.T) {
	t.Parallel()
	db := open(t)
	box, ctx := newBox(t, db, inbox.Options{}), context.Background()
	full := errors.New("disk full")
	if fresh, err := box.Process(ctx, delivery(1), func(context.Context, *sql.Tx) error { return full }); fresh || !errors.Is(err, full) {
		t.Errorf("fresh %v, %v", fresh, err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = box.Process(ctx, delivery(1), func(context.Context, *sql.Tx) error { panic("write") })
	}()
	if fresh, err := box.Process(ctx, delivery(1), func(context.Context, *sql.Tx) error { return nil }); !fresh || err != nil {
		t.Errorf("the next time: fresh %v, %v", fresh, err)
	}
}

func TestOneTransactionOfManyIsFresh(t *testing.T) {
	t.Parallel()
	db := open(t)
	box := newBox(t, db, inbox.Options{Table: "my_inbox"})
	if _, err := db.Exec("CREATE TABLE effects (n INT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	var fresh atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			handler := box.Handler(func(ctx context.Context, tx *sql.Tx, d *orbit.Delivery) error {
				fresh.Add(1)
				_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (1)")
				return err
			})
			if err := handler(context.Background(), delivery(1)); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	var effects, duplicates int
	if err := db.QueryRow("SELECT (SELECT COUNT(*) FROM effects), duplicates FROM my_inbox").Scan(&effects, &duplicates); err != nil {
		t.Fatal(err)
	}
	if effects != 1 || duplicates != 19 {
		t.Errorf("%d effects, %d duplicates", effects, duplicates)
	}
}

func TestConsumersShareATable(t *testing.T) {
	t.Parallel()
	db := open(t)
	for _, name := range []string{"billing", "Billing", "search"} {
		box := newBox(t, db, inbox.Options{Consumer: name})
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []bool{true, false} {
			if fresh, err := box.Save(context.Background(), tx, delivery(1)); err != nil || fresh != want {
				t.Errorf("%s %d: fresh %v, %v", name, i, fresh, err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeadlocksRunTheWholeTransactionAgain crosses two transactions; the server must kill one (C2).
func TestDeadlocksRunTheWholeTransactionAgain(t *testing.T) {
	t.Parallel()
	db := open(t)
	box, ctx := newBox(t, db, inbox.Options{}), context.Background()
	for _, s := range []string{"CREATE TABLE accounts (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB", "INSERT INTO accounts VALUES (1, 0), (2, 0)"} {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	var runs atomic.Int32
	var both sync.WaitGroup // until each holds its first row
	both.Add(2)
	cross := func(n, first, second int) error {
		met := sync.OnceFunc(func() { both.Done(); both.Wait() })
		fresh, err := box.Process(ctx, delivery(n), func(ctx context.Context, tx *sql.Tx) error {
			runs.Add(1)
			if _, err := tx.ExecContext(ctx, "UPDATE accounts SET n = n + 1 WHERE id = ?", first); err != nil {
				return err
			}
			met()
			if _, err := tx.ExecContext(ctx, "UPDATE accounts SET n = n + 1 WHERE id = ?", second); err != nil {
				return fmt.Errorf("second account: %w", err)
			}
			return nil
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
	if err := db.QueryRow("SELECT MIN(n), MAX(n) FROM accounts").Scan(&low, &high); err != nil {
		t.Fatal(err)
	}
	if low != 2 || high != 2 || runs.Load() < 3 {
		t.Errorf("accounts %d…%d after %d runs; a deadlock must have been retried", low, high, runs.Load())
	}
}

func TestRetriesAreBounded(t *testing.T) {
	t.Parallel()
	db := open(t)
	for retries, want := range map[int]int{2: 3, -1: 1} {
		box := newBox(t, db, inbox.Options{Retries: retries})
		runs := 0
		_, err := box.Process(context.Background(), delivery(1), func(context.Context, *sql.Tx) error {
			runs++
			return errors.Join(errors.New("x"), &mysql.MySQLError{Number: 1205})
		})
		if err == nil || runs != want {
			t.Errorf("retries %d: %d runs, %v", retries, runs, err)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, o := range []inbox.Options{{Table: "a; DROP TABLE b"}, {Table: "a.b.c"}, {Table: "`a`"}, {Consumer: "é"}, {Consumer: strings.Repeat("c", 129)}, {Dialect: 9}} {
		if _, err := inbox.New(nil, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	box, err := inbox.New(nil, inbox.Options{Table: "s.t", Dialect: inbox.Postgres})
	if err != nil || !strings.HasPrefix(box.Schema(), `CREATE TABLE IF NOT EXISTS "s"."t" (`) {
		t.Errorf("%v %v", box, err)
	}
	db := open(t)
	mine := newBox(t, db, inbox.Options{})
	for _, broken := range []func(*orbit.Delivery){func(d *orbit.Delivery) { d.Event.ID = "x" }, func(d *orbit.Delivery) { d.RawEvent = nil }} {
		d := delivery(1)
		broken(d)
		if _, err := mine.Process(context.Background(), d, func(context.Context, *sql.Tx) error { return nil }); err == nil {
			t.Error("a broken delivery was saved")
		}
	}
}
