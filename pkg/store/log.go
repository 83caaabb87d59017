package store

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/result"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// newEvent is one outcome on its way into the log.
type newEvent struct {
	Type     result.Type
	Snapshot task.Snapshot
	Details  task.Details
}

// LAST_INSERT_ID(expr) hands the new head back in the reply that takes the lock: one round trip.
const (
	advanceHeadSQL = `UPDATE result_streams SET head = LAST_INSERT_ID(head + ?) WHERE namespace_id = ?`
	insertEventSQL = `
INSERT INTO result_events (namespace_id, sequence, id, queue_id, type, aggregate_id, aggregate_revision, occurred_at, details, snapshot) VALUES `
	eventTuple = `(?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), ?, ?)`
)

// appendEvents takes the next sequences under the stream row's lock and writes the events. The lock
// is held to the commit, so the order of sequences is the order of commits and there is never a
// hole (R8.7); call it last. It returns the new head.
func appendEvents(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, events []newEvent) (uint64, error) {
	args := make([]any, 0, 9*len(events))
	for _, e := range events {
		details, err := json.Marshal(e.Details)
		if err != nil {
			return 0, fmt.Errorf("encode details of task %s: %w", e.Snapshot.TaskID, err)
		}
		args = append(args, namespace, uint64(0), ids.New(), e.Snapshot.QueueID, string(e.Type), e.Snapshot.TaskID,
			uint64(e.Snapshot.Revision), details, e.Snapshot.JSON())
	}
	res, err := tx.ExecContext(ctx, advanceHeadSQL, len(events), namespace)
	if err := changed(res, err, 1, "advance head of namespace "+namespace.String()); err != nil {
		return 0, err
	}
	last, err := res.LastInsertId()
	if err != nil {
		return 0, fmt.Errorf("read new head: %w", err)
	}
	head := uint64(last)
	for i := range events {
		args[9*i+1] = head - uint64(len(events)-1-i)
	}
	if _, err := tx.ExecContext(ctx, insertEventSQL+tuples(eventTuple, len(events)), args...); err != nil {
		return 0, fmt.Errorf("append %d events: %w", len(events), err)
	}
	return head, nil
}

// Stream is what a scan sees of one namespace.
type Stream struct {
	NamespaceID ids.ID `db:"namespace_id"`
	Head        uint64 `db:"head"`
	WakeVersion uint64 `db:"wake_version"`
	Generation  ids.ID `db:"generation"`
}

// Streams reads the heads of many namespaces and the database clock in one query. It runs many times a
// second while nothing happens, and costs least where database/sql watches no context: the deadlines are
// the connection's, and ctx ends nothing that has begun.
func (s *Store) Streams(ctx context.Context, namespaces []ids.ID) (streams []Stream, now time.Time, err error) {
	args := make([]any, len(namespaces))
	for i, id := range namespaces {
		args[i] = id
	}
	var rows []struct {
		Stream
		Now time.Time `db:"now"`
	}
	err = s.scan.SelectContext(context.WithoutCancel(ctx), &rows,
		"SELECT namespace_id, head, wake_version, generation, UTC_TIMESTAMP(6) AS now FROM result_streams WHERE namespace_id IN ("+marks(len(args))+")", args...)
	if err != nil {
		return nil, now, classify(fmt.Errorf("read heads of %d namespaces: %w", len(args), err))
	}
	for _, row := range rows {
		streams, now = append(streams, row.Stream), row.Now
	}
	return streams, now, nil
}

// wake makes every gateway look at the namespace's subscriptions and credentials again. It locks
// the stream row, so it comes where the lock order has the stream: before subscription and delivery.
func wake(ctx context.Context, tx *sqlx.Tx, namespace ids.ID) error {
	res, err := tx.ExecContext(ctx, "UPDATE result_streams SET wake_version = wake_version + 1 WHERE namespace_id = ?", namespace)
	return changed(res, err, 1, "wake namespace "+namespace.String())
}
