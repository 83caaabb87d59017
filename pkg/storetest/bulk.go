package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// bulkRows is how many rows one statement of the bulk loaders writes.
const bulkRows = 1000

// AppendEvents writes n task.succeeded events straight into the log, each of a task of its own that
// has no row: a load for readers of the log, far faster than running n tasks.
func (db *DB) AppendEvents(t testing.TB, tenant Tenant, n int, result string) {
	t.Helper()
	ctx := context.Background()
	var head uint64
	if err := db.SQL.QueryRowContext(ctx, "SELECT head FROM result_streams WHERE namespace_id = ?", tenant.NamespaceID[:]).Scan(&head); err != nil {
		t.Fatal(err)
	}
	for from := 0; from < n; from += bulkRows {
		rows := min(bulkRows, n-from)
		args := make([]any, 0, 7*rows)
		for i := range rows {
			id := ids.New()
			snapshot := task.Snapshot{TaskID: id, QueueID: tenant.QueueID, State: task.Succeeded, Revision: 3, Result: []byte(result)}
			args = append(args, tenant.NamespaceID[:], head+uint64(from+i+1), ids.New(), tenant.QueueID[:], id, `{"state":"SUCCEEDED"}`, snapshot.JSON())
		}
		db.bulk(t, `INSERT INTO result_events (namespace_id, sequence, id, queue_id, type, aggregate_id, aggregate_revision, occurred_at, details, snapshot) VALUES `,
			`(?, ?, ?, ?, 'task.succeeded', ?, 3, UTC_TIMESTAMP(6), ?, ?)`, rows, args)
		db.bulk(t, "UPDATE result_streams SET head = head + ? WHERE namespace_id = ", "?", 1, []any{rows, tenant.NamespaceID[:]})
	}
}

// QueueTasks makes n ready tasks, a thousand a statement.
func (db *DB) QueueTasks(t testing.TB, tenant Tenant, n int) {
	t.Helper()
	for from := 0; from < n; from += bulkRows {
		rows := min(bulkRows, n-from)
		tasks, ready := make([]any, 0, 5*rows), make([]any, 0, 4*rows)
		for range rows {
			id := ids.New()
			tasks = append(tasks, tenant.NamespaceID[:], id, tenant.QueueID[:], tenant.ApplicationID[:], tenant.CredentialID[:])
			ready = append(ready, tenant.NamespaceID[:], tenant.QueueID[:], id, tenant.ApplicationID[:])
		}
		db.bulk(t, `INSERT INTO tasks (namespace_id, id, queue_id, application_id, credential_id, state, revision, priority, retry_safety, attempts, max_attempts,
  lease_epoch, effect_uncertain, run_at, created_at, updated_at, input) VALUES `,
			`(?, ?, ?, ?, ?, 'QUEUED', 1, 0, 'unsafe', 0, 3, 0, 0, '2026-01-01', '2026-01-01', '2026-01-01', 'null')`, rows, tasks)
		db.bulk(t, "INSERT INTO ready_tasks (namespace_id, queue_id, lane, ready_rank, due_at, task_id, application_id, priority) VALUES ",
			"(?, ?, 0, 100, '2026-01-01', ?, ?, 0)", rows, ready)
	}
}

func (db *DB) bulk(t testing.TB, insert, row string, rows int, args []any) {
	t.Helper()
	query := insert + strings.TrimSuffix(strings.Repeat(row+",", rows), ",")
	if _, err := db.SQL.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatal(fmt.Errorf("bulk load: %w", err))
	}
}

// GrowDeliveries adds n acknowledged deliveries to a subscription, below those it has, doubling what
// is there: millions take minutes, not hours.
func (db *DB) GrowDeliveries(t testing.TB, tenant Tenant, sub [16]byte, n int) {
	t.Helper()
	db.bulk(t, `INSERT INTO deliveries (namespace_id, subscription_id, sequence, id, event_id, revision, state, lease_epoch, attempts, attempt_budget, created_at,
  available_at, acknowledged_at) VALUES `, `(?, ?, 1, ?, ?, 3, 'ACKED', 1, 1, 20, '2026-01-01', '2026-01-01', '2026-01-01')`, 1,
		[]any{tenant.NamespaceID[:], sub[:], ids.NewNumbered(1), ids.New()})
	db.grow(t, n, `INSERT INTO deliveries (namespace_id, subscription_id, sequence, id, event_id, revision, state, lease_epoch, attempts, attempt_budget, created_at,
  available_at, acknowledged_at)
SELECT namespace_id, subscription_id, sequence + ?, CONCAT(LEFT(id, 8), UNHEX(LPAD(HEX(sequence + ?), 16, '0'))), UNHEX(REPLACE(UUID(), '-', '')), 3, 'ACKED', 1, 1, 20, created_at, available_at, acknowledged_at
FROM deliveries WHERE namespace_id = ? AND subscription_id = ? AND sequence <= ? ORDER BY sequence LIMIT ?`, func(have, add int) []any {
		return []any{have, have, tenant.NamespaceID[:], sub[:], have, add}
	})
	db.bulk(t, "UPDATE result_streams SET head = GREATEST(head, ?) WHERE namespace_id = ", "?", 1, []any{n, tenant.NamespaceID[:]})
	db.bulk(t, "UPDATE subscriptions SET cursor_sequence = GREATEST(cursor_sequence, ?) WHERE id = ", "?", 1, []any{n, sub[:]})
}

// GrowTasks adds n finished tasks to the tenant's queue, with a label and an audit row each.
func (db *DB) GrowTasks(t testing.TB, tenant Tenant, n int) {
	t.Helper()
	first := ids.New()
	db.bulk(t, `INSERT INTO tasks (namespace_id, id, queue_id, application_id, credential_id, state, revision, priority, retry_safety, attempts, max_attempts,
  lease_epoch, effect_uncertain, run_at, created_at, updated_at, input) VALUES `,
		`(?, ?, ?, ?, ?, 'SUCCEEDED', 3, 0, 'unsafe', 1, 3, 1, 0, '2026-01-01', '2026-01-01', '2026-01-01', 'null')`, 1,
		[]any{tenant.NamespaceID[:], first, tenant.QueueID[:], tenant.ApplicationID[:], tenant.CredentialID[:]})
	db.grow(t, n, `INSERT INTO tasks (namespace_id, id, queue_id, application_id, credential_id, state, revision, priority, retry_safety, attempts, max_attempts,
  lease_epoch, effect_uncertain, run_at, created_at, updated_at, input)
SELECT namespace_id, UNHEX(REPLACE(UUID(), '-', '')), queue_id, application_id, credential_id, state, revision, priority, retry_safety, attempts, max_attempts,
  lease_epoch, effect_uncertain, run_at, created_at, updated_at, input FROM tasks WHERE namespace_id = ? AND queue_id = ? LIMIT ?`, func(_, add int) []any {
		return []any{tenant.NamespaceID[:], tenant.QueueID[:], add}
	})
	for _, copy := range []string{
		"INSERT INTO task_labels (namespace_id, queue_id, name, value, task_id) SELECT namespace_id, queue_id, 'customer', 'c', id FROM tasks WHERE namespace_id = ? AND queue_id = ?",
		"INSERT INTO audit (namespace_id, id, at, action, resource_kind, resource_id) SELECT namespace_id, id, created_at, 'task.submit', 'task', id FROM tasks WHERE namespace_id = ? AND queue_id = ?",
	} {
		if _, err := db.SQL.ExecContext(context.Background(), copy, tenant.NamespaceID[:], tenant.QueueID[:]); err != nil {
			t.Fatal(fmt.Errorf("bulk load: %w", err))
		}
	}
}

// grow repeats a copying statement until one row has become n.
func (db *DB) grow(t testing.TB, n int, query string, args func(have, add int) []any) {
	t.Helper()
	const step = 50_000 // rows a transaction
	for have := 1; have < n; {
		add := min(have, n-have, step)
		if _, err := db.SQL.ExecContext(context.Background(), query, args(have, add)...); err != nil {
			t.Fatal(fmt.Errorf("bulk load: %w", err))
		}
		have += add
	}
}
