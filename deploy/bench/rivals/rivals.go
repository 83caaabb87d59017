// Package rivals drives other systems the way their own documentation says to, so that they can be
// measured beside Orbit in one run, with the same payload and the same durability.
package rivals

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// Host is what a rival may use: a folder of its own and a database server like Orbit's.
type Host struct {
	Dir string
	DSN string // of an empty MariaDB or MySQL database, interpolating parameters
}

// Rival is one system under one setting.
type Rival struct {
	Name     string
	Settings string
	Messages int // how many make a measurement of some seconds
	Open     func(ctx context.Context, h Host) (Broker, error)
}

// Broker carries messages durably: published means flushed, consumed means acknowledged.
type Broker interface {
	// Publish sends n messages as fast as its users do who send many.
	Publish(ctx context.Context, n int, payload []byte) error
	// PublishOne sends one message and returns when it is durable.
	PublishOne(ctx context.Context, payload []byte) error
	// Consume receives and acknowledges n messages; seen is called for each, maybe concurrently.
	Consume(ctx context.Context, n int, seen func(payload []byte)) error
	Close() error
}

// All lists the brokers.
var All = []Rival{
	{"watermill-sql", "v4, its defaults: batch 100, poll 1 s", 20_000, openWatermill(100, time.Second)},
	{"watermill-sql best", "v4, batch 100, poll 10 ms", 40_000, openWatermill(100, 10*time.Millisecond)},
	{"watermill-sql batch 1", "v4, batch 1, poll 10 ms: one ack a transaction", 4_000, openWatermill(1, 10*time.Millisecond)},
	{"hand-written table", "SKIP LOCKED, one row a transaction, 8 consumers", 6_000, openTable},
	{"JetStream", "file store, SyncAlways, explicit ack, 8 publishers, 4 consumers", 20_000, openJetStream},
}

// openDB opens a pool on the host's database.
func openDB(h Host) (*sql.DB, error) {
	db, err := sql.Open("mysql", h.DSN)
	if err == nil {
		db.SetMaxOpenConns(32)
		db.SetMaxIdleConns(32)
	}
	return db, err
}

// shared runs work in several goroutines and returns the first error.
func shared(goroutines int, work func() error) error {
	var wg sync.WaitGroup
	failed := make(chan error, goroutines)
	for range goroutines {
		wg.Go(func() { failed <- work() })
	}
	wg.Wait()
	for range goroutines {
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}
