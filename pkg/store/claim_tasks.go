package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// WorkerWant is how many tasks one worker session can take now.
type WorkerWant struct {
	SessionID ids.ID
	Worker    string
	Free      int
}

// Assignment is a claimed task, committed, with the secret of its lease.
type Assignment struct {
	SessionID ids.ID
	Task      *task.Task // with its input
	Attempt   task.Attempt
	Secret    ids.Secret

	application ids.ID
}

type claimableRow struct {
	taskRow
	Input []byte    `db:"input"`
	Rank  int       `db:"ready_rank"`
	DueAt time.Time `db:"due_at"`
	Now   time.Time `db:"now"` // the database clock, after every lock that had to be waited for
}

// ClaimTasks gives ready tasks of one queue to the sessions that want some, in one transaction:
// by priority, then age; never beyond max_running; none while the queue is paused.
func (s *Store) ClaimTasks(ctx context.Context, namespace, queue ids.ID, wants []WorkerWant) ([]Assignment, error) {
	var out []Assignment
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		out = nil
		q, err := probeQueue(ctx, tx, namespace, queue)
		if err != nil || q.Paused {
			return err
		}
		var quotas runningQuotas
		if q.Limited { // before the queue, in the lock order
			if quotas, err = lockRunningQuotas(ctx, tx, namespace); err != nil {
				return err
			}
		}
		room, err := claimRoom(ctx, tx, namespace, queue, q.MaxRunning > 0)
		if room = min(room, TotalFree(wants)); err != nil || room == 0 {
			return err
		}
		if q.Due {
			if err := promoteDue(ctx, tx, namespace, queue); err != nil {
				return err
			}
		}
		tasks, err := takeTasks(ctx, tx, namespace, queue, room, quotas)
		if err != nil || len(tasks) == 0 {
			return err
		}
		now := tasks[0].Now
		out = assign(tasks, wants, now, time.Duration(q.LeaseDurationMS)*time.Millisecond)
		return lease(ctx, tx, namespace, queue, now, out, wants)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// probedQueue is what decides which steps a claim can leave out.
type probedQueue struct {
	Paused          bool `db:"paused"`
	MaxRunning      int  `db:"max_running"`
	LeaseDurationMS int  `db:"lease_duration_ms"`
	Limited         bool `db:"limited"` // some application has a running limit
	Due             bool `db:"due"`     // a waiting task's time has come
}

const probeQueueSQL = `
SELECT paused, max_running, lease_duration_ms,
  EXISTS (SELECT 1 FROM application_quotas WHERE namespace_id = ? AND running_limit > 0) AS limited,
  EXISTS (SELECT 1 FROM ready_tasks FORCE INDEX (PRIMARY) WHERE namespace_id = ? AND queue_id = ? AND lane = 1 AND ready_rank = 0 AND due_at <= UTC_TIMESTAMP(6)) AS due
FROM queues WHERE namespace_id = ? AND id = ?`

func probeQueue(ctx context.Context, tx *sqlx.Tx, namespace, queue ids.ID) (probedQueue, error) {
	var q probedQueue
	if err := tx.GetContext(ctx, &q, probeQueueSQL, namespace, namespace, queue, namespace, queue); err != nil {
		return q, fmt.Errorf("read queue %s: %w", queue, err)
	}
	return q, nil
}

// TotalFree is how many tasks the sessions can take together.
func TotalFree(wants []WorkerWant) int {
	n := 0
	for _, w := range wants {
		n += w.Free
	}
	return n
}

// claimRoom locks the queue row, exclusively where max_running must be counted and shared elsewhere,
// and returns how many more tasks may run.
func claimRoom(ctx context.Context, tx *sqlx.Tx, namespace, queue ids.ID, counted bool) (int, error) {
	lock := forShare
	if counted {
		lock = forUpdate
	}
	q, err := readQueue(ctx, tx, namespace, queue, lock)
	switch {
	case err != nil || q.Paused:
		return 0, err
	case q.MaxRunning == 0:
		return math.MaxInt, nil
	case !counted: // the limit came between the two reads; the next turn counts
		return 0, nil
	}
	var running int
	if err := tx.GetContext(ctx, &running, "SELECT COUNT(*) FROM permits WHERE namespace_id = ? AND queue_id = ?", namespace, queue); err != nil {
		return 0, fmt.Errorf("count permits of queue %s: %w", queue, err)
	}
	return max(q.MaxRunning-running, 0), nil
}

// takeTasks locks the next tasks in order, without those of applications that have no room, and takes
// them out of the ready order. What another claim, an outcome or a cancel holds at this moment is
// passed over; that saves waiting and nothing depends on it.
func takeTasks(ctx context.Context, tx *sqlx.Tx, namespace, queue ids.ID, n int, quotas runningQuotas) ([]claimableRow, error) {
	query, args := `
SELECT `+prefixed("t", taskColumns)+`, t.input, r.ready_rank, r.due_at, UTC_TIMESTAMP(6) AS now
FROM ready_tasks r FORCE INDEX (PRIMARY) STRAIGHT_JOIN tasks t FORCE INDEX (PRIMARY) ON t.namespace_id = r.namespace_id AND t.id = r.task_id
WHERE r.namespace_id = ? AND r.queue_id = ? AND r.lane = 0 AND t.state = 'QUEUED'`, []any{namespace, queue}
	if full := quotas.full(); len(full) > 0 {
		query += " AND r.application_id NOT IN (" + marks(len(full)) + ")"
		args = append(args, full...)
	}
	var rows []claimableRow
	err := tx.SelectContext(ctx, &rows, query+" ORDER BY r.ready_rank, r.due_at, r.task_id LIMIT ? FOR UPDATE SKIP LOCKED", append(args, n)...)
	if err != nil {
		return nil, fmt.Errorf("lock ready tasks: %w", err)
	}
	if rows = quotas.admit(rows); len(rows) == 0 {
		return nil, nil
	}
	taken := make([]readyRow, len(rows))
	for i, r := range rows {
		taken[i] = readyRow{Rank: r.Rank, DueAt: r.DueAt, TaskID: r.ID}
	}
	return rows, deleteReadyRows(ctx, tx, namespace, queue, laneReady, taken)
}

// assign deals the tasks out to the sessions in turn.
func assign(rows []claimableRow, wants []WorkerWant, now time.Time, leaseFor time.Duration) []Assignment {
	free := make([]int, len(wants))
	for i, w := range wants {
		free[i] = w.Free
	}
	out := make([]Assignment, 0, len(rows))
	at := 0
	for _, row := range rows {
		for free[at%len(free)] == 0 {
			at++
		}
		free[at%len(free)]--
		row.State, row.Revision, row.Attempts, row.LeaseEpoch = string(task.Running), row.Revision+1, row.Attempts+1, row.LeaseEpoch+1
		attempt := task.Attempt{
			ID: ids.New(), TaskID: row.ID, Number: row.Attempts, Epoch: ids.Counter(row.LeaseEpoch), LeaseUntil: now.Add(leaseFor), StartedAt: now,
		}
		row.CurrentAttemptID, row.UpdatedAt = attempt.ID, now
		t := row.task()
		t.Input = row.Input
		out = append(out, Assignment{SessionID: wants[at%len(wants)].SessionID, Task: t, Attempt: attempt, Secret: ids.NewSecret(), application: row.ApplicationID})
		at++
	}
	return out
}

// lease writes the claim: one permit each, then the tasks RUNNING by their permits.
func lease(ctx context.Context, tx *sqlx.Tx, namespace, queue ids.ID, now time.Time, out []Assignment, wants []WorkerWant) error {
	names := make(map[ids.ID][]byte, len(wants))
	for _, w := range wants {
		names[w.SessionID] = []byte(w.Worker)
	}
	n := len(out)
	permits, attempts := make([]any, 0, 12*n), make([]any, 0, 3+n)
	attempts = append(attempts, now, namespace, queue)
	for _, a := range out {
		digest := a.Secret.Digest()
		attempts = append(attempts, a.Attempt.ID)
		permits = append(permits, namespace, queue, a.Attempt.ID, a.Task.ID, a.application, a.Attempt.Number, uint64(a.Attempt.Epoch), digest[:],
			a.SessionID, names[a.SessionID], a.Attempt.StartedAt, a.Attempt.LeaseUntil)
	}
	_, err := tx.ExecContext(ctx, `
INSERT INTO permits (namespace_id, queue_id, attempt_id, task_id, application_id, number, epoch, digest, session_id, worker, started_at, lease_until)
VALUES `+tuples("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", n), permits...)
	if err != nil {
		return fmt.Errorf("grant %d permits: %w", n, err)
	}
	res, err := tx.ExecContext(ctx, `
UPDATE permits p STRAIGHT_JOIN tasks t ON t.namespace_id = p.namespace_id AND t.id = p.task_id
SET t.state = 'RUNNING', t.revision = t.revision + 1, t.attempts = t.attempts + 1, t.lease_epoch = t.lease_epoch + 1,
  t.current_attempt_id = p.attempt_id, t.updated_at = ?
WHERE p.namespace_id = ? AND p.queue_id = ? AND p.attempt_id IN (`+marks(n)+`) AND t.state = 'QUEUED'`, attempts...)
	return changed(res, err, n, "start tasks")
}

// ReadyQueue names a queue whose sessions have room.
type ReadyQueue struct {
	NamespaceID ids.ID `db:"namespace_id"`
	QueueID     ids.ID `db:"queue_id"`
}

// QueuesWithWork returns which of the queues have a task that may be claimed now: one query,
// two index look-ups a queue.
func (s *Store) QueuesWithWork(ctx context.Context, queues []ReadyQueue) ([]ReadyQueue, error) {
	const look = `(SELECT namespace_id, queue_id FROM ready_tasks FORCE INDEX (PRIMARY) WHERE namespace_id = ? AND queue_id = ? AND lane = 0 LIMIT 1)
UNION ALL (SELECT namespace_id, queue_id FROM ready_tasks FORCE INDEX (PRIMARY) WHERE namespace_id = ? AND queue_id = ? AND lane = 1 AND ready_rank = 0 AND due_at <= UTC_TIMESTAMP(6) LIMIT 1)`
	query, args := "", make([]any, 0, 4*len(queues))
	for i, q := range queues {
		if i > 0 {
			query += " UNION ALL "
		}
		query += look
		args = append(args, q.NamespaceID, q.QueueID, q.NamespaceID, q.QueueID)
	}
	var out []ReadyQueue
	if err := s.db.SelectContext(ctx, &out, query, args...); err != nil {
		return nil, classify(fmt.Errorf("look for work in %d queues: %w", len(queues), err))
	}
	return out, nil
}
