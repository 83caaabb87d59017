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
	Input []byte `db:"input"`
}

// ClaimTasks gives ready tasks of one queue to the sessions that want some, in one transaction:
// by priority, then age; never beyond max_running; none while the queue is paused.
func (s *Store) ClaimTasks(ctx context.Context, namespace, queue ids.ID, wants []WorkerWant) ([]Assignment, error) {
	var out []Assignment
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		out = nil
		quotas, err := lockRunningQuotas(ctx, tx, namespace)
		if err != nil {
			return err
		}
		q, room, err := claimRoom(ctx, tx, namespace, queue)
		if err != nil || q.Paused {
			return err
		}
		if room = min(room, totalFree(wants)); room == 0 {
			return nil
		}
		if err := promoteDue(ctx, tx, namespace, queue); err != nil {
			return err
		}
		tasks, err := takeTasks(ctx, tx, namespace, queue, room, quotas)
		if err != nil || len(tasks) == 0 {
			return err
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return err
		}
		out = assign(tasks, wants, now, time.Duration(q.LeaseDurationMS)*time.Millisecond)
		return lease(ctx, tx, namespace, queue, now, out, wants)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func totalFree(wants []WorkerWant) int {
	n := 0
	for _, w := range wants {
		n += w.Free
	}
	return n
}

// claimRoom locks the queue row: shared, but exclusively where max_running must be counted.
func claimRoom(ctx context.Context, tx *sqlx.Tx, namespace, queue ids.ID) (q *queueRow, room int, err error) {
	if q, err = readQueue(ctx, tx, namespace, queue, ""); err != nil {
		return nil, 0, err
	}
	lock := forShare
	if q.MaxRunning > 0 {
		lock = forUpdate
	}
	if q, err = readQueue(ctx, tx, namespace, queue, lock); err != nil {
		return nil, 0, err
	}
	if q.MaxRunning == 0 {
		return q, math.MaxInt, nil
	}
	if lock == forShare { // the limit came between the two reads; the next turn counts
		return q, 0, nil
	}
	var running int
	if err := tx.GetContext(ctx, &running, "SELECT COUNT(*) FROM permits WHERE namespace_id = ? AND queue_id = ?", namespace, queue); err != nil {
		return nil, 0, fmt.Errorf("count permits of queue %s: %w", queue, err)
	}
	return q, max(q.MaxRunning-running, 0), nil
}

// takeTasks locks the next tasks and takes them out of the ready order. A task that an outcome or a
// cancel holds at this moment is left where it is.
func takeTasks(ctx context.Context, tx *sqlx.Tx, namespace, queue ids.ID, n int, quotas runningQuotas) ([]claimableRow, error) {
	ready, err := lockReady(ctx, tx, namespace, queue, n, quotas.full())
	if err != nil {
		return nil, err
	}
	if ready = quotas.admit(ready); len(ready) == 0 {
		return nil, nil
	}
	args := []any{namespace}
	for _, r := range ready {
		args = append(args, r.TaskID)
	}
	var locked []claimableRow
	err = tx.SelectContext(ctx, &locked, "SELECT "+taskColumns+", input FROM tasks WHERE namespace_id = ? AND id IN ("+
		marks(len(ready))+") AND state = 'QUEUED' FOR UPDATE SKIP LOCKED", args...)
	if err != nil {
		return nil, fmt.Errorf("lock %d ready tasks: %w", len(ready), err)
	}
	byID := make(map[ids.ID]claimableRow, len(locked))
	for _, row := range locked {
		byID[row.ID] = row
	}
	taken, rows := make([]readyRow, 0, len(ready)), make([]claimableRow, 0, len(ready))
	for _, r := range ready { // the order of claiming is the ready rows'
		if row, ok := byID[r.TaskID]; ok {
			taken, rows = append(taken, r), append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil, nil
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
		row.CurrentAttemptID, row.UpdatedAt = &attempt.ID, now
		t := row.task()
		t.Input = row.Input
		out = append(out, Assignment{SessionID: wants[at%len(wants)].SessionID, Task: t, Attempt: attempt, Secret: ids.NewSecret(), application: row.ApplicationID})
		at++
	}
	return out
}

// lease writes the claim: tasks RUNNING, one permit each.
func lease(ctx context.Context, tx *sqlx.Tx, namespace, queue ids.ID, now time.Time, out []Assignment, wants []WorkerWant) error {
	names := make(map[ids.ID]string, len(wants))
	for _, w := range wants {
		names[w.SessionID] = w.Worker
	}
	n := len(out)
	tasks, attempts := make([]any, n), make([]any, n)
	permits := make([]any, 0, 12*n)
	for i, a := range out {
		digest := a.Secret.Digest()
		tasks[i], attempts[i] = a.Task.ID, a.Attempt.ID
		permits = append(permits, namespace, queue, a.Attempt.ID, a.Task.ID, a.application, a.Attempt.Number, uint64(a.Attempt.Epoch), digest[:],
			a.SessionID, []byte(names[a.SessionID]), a.Attempt.StartedAt, a.Attempt.LeaseUntil)
	}
	args := append(append(append([]any{}, tasks...), attempts...), now, namespace)
	res, err := tx.ExecContext(ctx, `
UPDATE tasks SET state = 'RUNNING', revision = revision + 1, attempts = attempts + 1, lease_epoch = lease_epoch + 1,
  current_attempt_id = ELT(FIELD(id, `+marks(n)+`), `+marks(n)+`), updated_at = ?
WHERE namespace_id = ? AND id IN (`+marks(n)+`) AND state = 'QUEUED'`, append(args, tasks...)...)
	if err := changed(res, err, n, "start tasks"); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `
INSERT INTO permits (namespace_id, queue_id, attempt_id, task_id, application_id, number, epoch, digest, session_id, worker, started_at, lease_until)
VALUES `+tuples("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", n), permits...)
	if err != nil {
		return fmt.Errorf("grant %d permits: %w", n, err)
	}
	return nil
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
