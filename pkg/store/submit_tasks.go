package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// SubmitTask queues one task; a retired queue is RESOURCE_RETIRED. The snapshot is the task without its input.
func (s *Store) SubmitTask(ctx context.Context, w Write, sub task.Submit) (Receipt, error) {
	receipt, err := s.submit(ctx, w, "task.submit", []task.Submit{sub})
	if err != nil {
		return Receipt{}, err
	}
	tasks, err := rebuild([]task.Submit{sub}, receipt.Snapshot)
	if err != nil {
		return Receipt{}, err
	}
	receipt.Snapshot, err = tasks[0].AppendJSON(nil)
	return receipt, err
}

// SubmitTasks queues up to task.MaxBatch tasks in one transaction, all or none. The tasks come back
// in the order of the request, without their inputs.
func (s *Store) SubmitTasks(ctx context.Context, w Write, subs []task.Submit) (tasks []*task.Task, deduplicated bool, err error) {
	receipt, err := s.submit(ctx, w, "task.submit_batch", subs)
	if err != nil {
		return nil, false, err
	}
	tasks, err = rebuild(subs, receipt.Snapshot)
	return tasks, receipt.Deduplicated, err
}

// submission is what a receipt keeps of a submit. The same key carries the same request, so that
// with these the original answer can be written again.
type submission struct {
	At  time.Time `json:"at"`
	IDs []ids.ID  `json:"ids"`
}

func rebuild(subs []task.Submit, snapshot []byte) ([]*task.Task, error) {
	var kept submission
	if err := json.Unmarshal(snapshot, &kept); err != nil || len(kept.IDs) != len(subs) {
		return nil, fmt.Errorf("receipt of a submit of %d tasks is unreadable: %w", len(subs), err)
	}
	out := make([]*task.Task, len(subs))
	for i := range subs {
		out[i] = newTaskRow(&subs[i], kept.IDs[i], kept.At).task()
	}
	return out, nil
}

func newTaskRow(sub *task.Submit, id ids.ID, now time.Time) *taskRow {
	row := &taskRow{
		ID: id, QueueID: *sub.QueueID, State: string(task.Queued), Revision: 1, Priority: sub.Priority, RetrySafety: sub.RetrySafety,
		MaxAttempts: sub.MaxAttempts, RunAt: now, CreatedAt: now, UpdatedAt: now, Labels: sub.LabelsJSON(),
	}
	if sub.RunAt != nil && sub.RunAt.After(now) {
		row.RunAt = sub.RunAt.UTC().Truncate(time.Microsecond)
	}
	return row
}

func (s *Store) submit(ctx context.Context, w Write, operation string, subs []task.Submit) (Receipt, error) {
	fingerprint, err := submitFingerprint(operation, subs)
	if err != nil {
		return Receipt{}, err
	}
	queues := distinctQueues(subs)
	quota := 0
	check := func(tx *sqlx.Tx) error {
		for _, id := range queues {
			if _, err := scopedQueue(ctx, tx, w.Caller, id); err != nil {
				return err
			}
		}
		var err error
		quota, err = lockQueuedQuota(ctx, tx, w.Caller) // first in the lock order, before the receipt
		return err
	}
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		for _, id := range queues {
			if _, err := liveQueue(ctx, tx, w.Caller.NamespaceID, id, forShare); err != nil {
				return nil, auditRow{}, err
			}
		}
		if err := checkQueued(ctx, tx, w.Caller, quota, len(subs)); err != nil {
			return nil, auditRow{}, err
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return nil, auditRow{}, err
		}
		kept := submission{At: now, IDs: make([]ids.ID, len(subs))}
		rows := make([]*taskRow, len(subs))
		for i := range subs {
			kept.IDs[i] = ids.New()
			rows[i] = newTaskRow(&subs[i], kept.IDs[i], now)
			rows[i].ApplicationID = w.Caller.ApplicationID
		}
		if err := queueTasks(ctx, tx, w, now, subs, rows); err != nil {
			return nil, auditRow{}, err
		}
		snapshot, err := json.Marshal(kept)
		row := auditRow{Action: operation, ResourceKind: "task", ResourceID: kept.IDs[0]}
		if len(subs) > 1 {
			row.Detail = fmt.Appendf(nil, `{"tasks":%d}`, len(subs))
		}
		return snapshot, row, err
	})
}

func submitFingerprint(operation string, subs []task.Submit) ([32]byte, error) {
	parts := make([]any, 0, 7*len(subs))
	for i := range subs {
		sub := &subs[i]
		parts = append(parts, sub.QueueID, string(sub.Input), sub.RetrySafety, sub.MaxAttempts, sub.RunAt, sub.Priority, string(sub.LabelsJSON()))
	}
	return Fingerprint(operation, parts...)
}

// distinctQueues lists the queues in key order, the order of locking.
func distinctQueues(subs []task.Submit) []ids.ID {
	var out []ids.ID
	for i := range subs {
		out = append(out, *subs[i].QueueID)
	}
	slices.SortFunc(out, func(a, b ids.ID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(out)
}

const (
	insertTaskSQL = `
INSERT INTO tasks (namespace_id, id, queue_id, application_id, credential_id, state, revision, priority, retry_safety, attempts,
  max_attempts, lease_epoch, effect_uncertain, run_at, created_at, updated_at, labels, input) VALUES `
	taskTuple = `(?, ?, ?, ?, ?, 'QUEUED', 1, ?, ?, 0, ?, 0, 0, ?, ?, ?, ?, ?)`
	// maxStatement bounds one INSERT's inputs, in bytes, well under the server's packet limit.
	maxStatement = 4 << 20
)

// insertTasks writes as many rows a statement as its size allows.
func insertTasks(ctx context.Context, tx *sqlx.Tx, w Write, subs []task.Submit, rows []*taskRow) error {
	var args []any
	n, size := 0, 0
	flush := func() error {
		if n == 0 {
			return nil
		}
		if _, err := tx.ExecContext(ctx, insertTaskSQL+tuples(taskTuple, n), args...); err != nil {
			return fmt.Errorf("insert %d tasks: %w", n, err)
		}
		args, n, size = nil, 0, 0
		return nil
	}
	for i, row := range rows {
		input := []byte(subs[i].Input)
		if size+len(input) > maxStatement {
			if err := flush(); err != nil {
				return err
			}
		}
		args = append(args, w.Caller.NamespaceID, row.ID, row.QueueID, w.Caller.ApplicationID, w.Caller.CredentialID, row.Priority,
			row.RetrySafety, row.MaxAttempts, row.RunAt, row.CreatedAt, row.UpdatedAt, row.Labels, input)
		n, size = n+1, size+len(input)+256
	}
	return flush()
}

func insertLabels(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, subs []task.Submit, rows []*taskRow) error {
	var args []any
	for i, row := range rows {
		for name, value := range subs[i].Labels {
			args = append(args, namespace, row.QueueID, []byte(name), []byte(value), row.ID)
		}
	}
	if len(args) == 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO task_labels (namespace_id, queue_id, name, value, task_id) VALUES "+tuples("(?, ?, ?, ?, ?)", len(args)/5), args...)
	if err != nil {
		return fmt.Errorf("insert labels: %w", err)
	}
	return nil
}

// errRevision is the answer to a command that expected another revision.
func errRevision(kind string, id ids.ID, have uint64, want ids.Counter) error {
	return errs.New(errs.StateConflict, "%s %s is at revision %d, expected_revision is %s", kind, id, have, want)
}
