package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/go-sql-driver/mysql"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/inbox"
)

const outboxTable = `CREATE TABLE outbox (
  id       BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY,
  event_id BINARY(16) NOT NULL,
  payload  MEDIUMBLOB NOT NULL,
  tries    INT UNSIGNED NOT NULL DEFAULT 0,
  due_at   DATETIME(6) NOT NULL,
  KEY outbox_due (due_at, id)
)`

// A durable local outbox: the handler only writes down what is to be done; a loop of the receiver does it.
func Example_outbox() {
	ctx := context.Background()
	db, drop := exampleDatabase(ctx)
	defer drop()
	box, err := inbox.New(db, inbox.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, statement := range []string{box.Schema(), outboxTable} { // the receiver's migrations
		if _, err := db.ExecContext(ctx, statement); err != nil {
			fmt.Println(err)
		}
	}

	// This is the consumer's handler.
	handler := box.Handler(func(ctx context.Context, tx *sql.Tx, d *orbit.Delivery) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO outbox (event_id, payload, due_at) VALUES (UNHEX(?), ?, UTC_TIMESTAMP(6))", d.Event.ID, []byte(d.RawEvent))
		return err
	})
	for range 2 { // the event comes twice
		if err := handler(ctx, delivery(7)); err != nil {
			fmt.Println(err)
		}
	}

	// This is the loop: it fails once and then succeeds.
	failures := 1
	mail := func(eventID string) error {
		if failures > 0 {
			failures--
			return fmt.Errorf("the mail server is away")
		}
		fmt.Println("mailed with the idempotency key", eventID)
		return nil
	}
	for more := true; more; {
		if more, err = sendNext(ctx, db, mail); err != nil {
			fmt.Println(err)
			return
		}
	}
	// Output: mailed with the idempotency key 00000000000000000000000000000007
}

// sendNext takes one due row, does its work, and deletes it; after a failure the row is due again later.
func sendNext(ctx context.Context, db *sql.DB, send func(eventID string) error) (more bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	var id int64
	var event string
	err = tx.QueryRowContext(ctx, "SELECT id, LOWER(HEX(event_id)) FROM outbox WHERE due_at <= UTC_TIMESTAMP(6) ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED").Scan(&id, &event)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	next, args := "DELETE FROM outbox WHERE id = ?", []any{id}
	if send(event) != nil { // here: at once again; a real loop waits longer with each try
		next = "UPDATE outbox SET tries = tries + 1, due_at = UTC_TIMESTAMP(6) WHERE id = ?"
	}
	if _, err := tx.ExecContext(ctx, next, args...); err != nil {
		return false, err
	}
	return true, tx.Commit()
}

func exampleDatabase(ctx context.Context) (db *sql.DB, drop func()) {
	config, err := mysql.ParseDSN(os.Getenv("ORBIT_TEST_DSN"))
	if err != nil {
		panic(fmt.Errorf("ORBIT_TEST_DSN must name a MariaDB or MySQL server: %w", err))
	}
	open := func() *sql.DB {
		db, err := sql.Open("mysql", config.FormatDSN())
		if err != nil {
			panic(err)
		}
		return db
	}
	server, name := open(), "orbit_outbox_"+orbit.NewKey()
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		panic(err)
	}
	config.DBName = name
	db = open()
	return db, func() {
		_ = db.Close()
		_, _ = server.ExecContext(ctx, "DROP DATABASE "+name)
		_ = server.Close()
	}
}
