// Mysql-inbox consumes results: the inbox row and the business row of an event are one transaction.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	_ "github.com/go-sql-driver/mysql" // the receiver's database

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/inbox"
)

// No unique key on event_id: a second effect of one event would show.
const business = `CREATE TABLE IF NOT EXISTS results_seen (
  id       BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY,
  event_id CHAR(32) NOT NULL,
  task_id  CHAR(32) NOT NULL,
  type     VARCHAR(64) NOT NULL
) ENGINE=InnoDB`

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mysql-inbox SUBSCRIPTION_ID")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, subscription string) error {
	db, err := sql.Open("mysql", os.Getenv("DSN"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // everything that counts was committed
	box, err := inbox.New(db, inbox.Options{})
	if err != nil {
		return err
	}
	if err := box.EnsureTable(ctx); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, business); err != nil {
		return err
	}
	return orbit.Consumer{
		URL: os.Getenv("ORBIT_GATEWAY_URL"), Token: os.Getenv("ORBIT_TOKEN"), SubscriptionID: subscription, Concurrency: 4,
		Handler: func(ctx context.Context, d *orbit.Delivery) error {
			passing("received")
			_, err := box.Process(ctx, d, func(ctx context.Context, tx *sql.Tx) error { return count(ctx, tx, d) })
			if err == nil {
				passing("committed")
			}
			return err
		},
		OnAck:        func(orbit.AckResult) { passing("acknowledged") },
		OnError:      func(err orbit.DeliveryError) { fmt.Fprintln(os.Stderr, err) },
		OnDisconnect: func(err error) { fmt.Fprintln(os.Stderr, "disconnected:", err) },
	}.Run(ctx)
}

// count is the business; it runs once per event.
func count(ctx context.Context, tx *sql.Tx, d *orbit.Delivery) error {
	passing("inbox row")
	_, err := tx.ExecContext(ctx, "INSERT INTO results_seen (event_id, task_id, type) VALUES (?, ?, ?)", d.Event.ID, d.Event.AggregateID, d.Event.Type)
	passing("business row")
	return err
}

var (
	waitMu sync.Mutex
	passed int
)

// passing is where the test kills the process: it stops here when the test asks for this point, on the n-th
// time, and says so.
func passing(point string) {
	waitMu.Lock()
	defer waitMu.Unlock()
	if os.Getenv("EXAMPLE_STOP_AT") != point {
		return
	}
	passed++
	if n, err := strconv.Atoi(os.Getenv("EXAMPLE_STOP_AFTER")); err == nil && passed > n {
		fmt.Println("at", point)
		select {}
	}
}
