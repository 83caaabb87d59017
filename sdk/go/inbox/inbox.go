// Package inbox saves Orbit's events in the receiver's own database, each exactly once per receiver: the
// event id is the key, and the row commits in the same transaction as the receiver's own writes. That makes
// at-least-once delivery harmless and lets the receiver acknowledge only what is safe.
//
// It needs database/sql with a MySQL, MariaDB or PostgreSQL driver of the receiver's choice. [Inbox.Schema] is
// the table's statement, for the receiver's own migrations.
//
// # Work that does not fit the transaction
//
// A handler should end soon after the commit: what takes long, or acts outside the database (an e-mail, a call
// of another service), goes into an outbox, a table of the receiver's own that is written in the same
// transaction as the inbox row:
//
//	CREATE TABLE outbox (
//	  id       BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY,
//	  event_id BINARY(16) NOT NULL,
//	  payload  MEDIUMBLOB NOT NULL,
//	  tries    INT UNSIGNED NOT NULL DEFAULT 0,
//	  due_at   DATETIME(6) NOT NULL,
//	  KEY outbox_due (due_at, id)
//	)
//
// The delivery is acknowledged when that has committed, and Orbit has done its part. A loop of the receiver
// then takes due rows (SELECT … FOR UPDATE SKIP LOCKED lets several loops share them), does the work, and
// deletes the row, or moves due_at on after a failure. The work itself is at-least-once: give whatever is called
// the event id as its idempotency key. The Outbox example is the whole of it.
package inbox

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// Options chooses the table and what to tell apart in it; the zero value is right for one receiver on
// MySQL or MariaDB.
type Options struct {
	Table    string  // name or schema.name of letters, digits and _ ("": orbit_inbox)
	Dialect  Dialect // MySQL (zero; also MariaDB) or Postgres
	Consumer string  // up to 128 ASCII: receivers that must each see an event may share the table ("": one)
	Retries  int     // how often Process runs a transaction again after a deadlock (0: 10; negative: never)
}

// Inbox saves events. It is safe for concurrent use.
type Inbox struct {
	db       *sql.DB
	sql      statements
	dialect  Dialect
	consumer string
	retries  int
}

var (
	tableName    = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}(\.[A-Za-z0-9_]{1,64})?$`)
	consumerName = regexp.MustCompile(`^[!-~]{0,128}$`)
)

// New returns an inbox on db; it does not touch the database.
func New(db *sql.DB, o Options) (*Inbox, error) {
	if o.Table == "" {
		o.Table = "orbit_inbox"
	}
	if !tableName.MatchString(o.Table) {
		return nil, fmt.Errorf("inbox: table %q: want letters, digits and _, with at most one dot", o.Table)
	}
	if !consumerName.MatchString(o.Consumer) {
		return nil, fmt.Errorf("inbox: consumer: want at most 128 printable ASCII characters")
	}
	if o.Retries == 0 {
		o.Retries = 10
	}
	s, err := o.Dialect.statements(o.Table)
	if err != nil {
		return nil, err
	}
	return &Inbox{db: db, sql: s, dialect: o.Dialect, consumer: o.Consumer, retries: max(0, o.Retries)}, nil
}

// Schema returns the CREATE TABLE statement, for the receiver's own migrations.
func (i *Inbox) Schema() string { return i.sql.create }

// EnsureTable creates the table unless a table of that name exists.
func (i *Inbox) EnsureTable(ctx context.Context) error {
	if _, err := i.db.ExecContext(ctx, i.sql.create); err != nil {
		return fmt.Errorf("inbox: create the table: %w", err)
	}
	return nil
}

// Save records the delivery's event inside tx. fresh is true exactly once per event and consumer among
// committed transactions; for a repeated one only the row's duplicates counter grows. A parallel Save of the
// same event waits for the first one's transaction. Errors (deadlocks among them) spoil tx: roll back.
func (i *Inbox) Save(ctx context.Context, tx *sql.Tx, d *orbit.Delivery) (fresh bool, err error) {
	row, err := i.row(d)
	if err != nil {
		return false, err
	}
	if i.dialect == Postgres {
		err = tx.QueryRowContext(ctx, i.sql.save, row...).Scan(&fresh)
	} else {
		fresh, err = insertedOne(tx.ExecContext(ctx, i.sql.save, row...))
	}
	if err != nil {
		return false, fmt.Errorf("inbox: save event %s: %w", d.Event.ID, err)
	}
	return fresh, nil
}

// insertedOne reads MySQL's count of INSERT … ON DUPLICATE KEY UPDATE: 1 for a new row, 2 for an old one.
func insertedOne(r sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

// row returns the statement's arguments.
func (i *Inbox) row(d *orbit.Delivery) ([]any, error) {
	ids := [3][]byte{}
	for n, text := range []string{d.Event.ID, d.SubscriptionID, d.Event.AggregateID} {
		id, err := hex.DecodeString(text)
		if err != nil || len(id) != 16 {
			return nil, fmt.Errorf("inbox: %q is not an id of 32 hex characters", text)
		}
		ids[n] = id
	}
	if len(d.RawEvent) == 0 {
		return nil, errors.New("inbox: the delivery carries no event text")
	}
	occurred := d.Event.OccurredAt.UTC().Format("2006-01-02 15:04:05.000000")
	return []any{i.consumer, ids[0], d.Event.Sequence, d.Event.Type, ids[1], ids[2], occurred, []byte(d.RawEvent)}, nil
}
