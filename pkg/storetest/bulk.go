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
