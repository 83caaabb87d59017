package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// attemptRow is a running attempt (its permit) or an ended one.
type attemptRow struct {
	ID           ids.ID    `db:"id"`
	TaskID       ids.ID    `db:"task_id"`
	Number       int       `db:"number"`
	Epoch        uint64    `db:"epoch"`
	Digest       []byte    `db:"digest"`
	Worker       []byte    `db:"worker"`
	StartedAt    time.Time `db:"started_at"`
	LeaseUntil   time.Time `db:"lease_until"`
	Outcome      string    `db:"outcome"`
	TaskState    string    `db:"task_state"`
	TaskRevision uint64    `db:"task_revision"`
	EndedAt      time.Time `db:"ended_at"`
	Failure      *task.Failure
	Result       []byte
}

const attemptLost = "LOST"

var outcomeName = map[task.OutcomeKind]string{
	task.OutcomeComplete:  "SUCCEEDED",
	task.OutcomeFail:      "FAILED",
	task.OutcomeCancelled: "CANCELLED",
	task.OutcomeLost:      attemptLost,
}

func readPermits(ctx context.Context, tx *sqlx.Tx, namespace, queue ids.ID, attempts []ids.ID, lock string) (map[ids.ID]*attemptRow, error) {
	out := make(map[ids.ID]*attemptRow, len(attempts))
	if len(attempts) == 0 {
		return out, nil
	}
	args := []any{namespace, queue}
	for _, id := range attempts {
		args = append(args, id)
	}
	var rows []attemptRow
	err := tx.SelectContext(ctx, &rows, `
SELECT attempt_id AS id, task_id, number, epoch, digest, worker, started_at, lease_until
FROM permits WHERE namespace_id = ? AND queue_id = ? AND attempt_id IN (`+marks(len(attempts))+")"+lock, args...)
	if err != nil {
		return nil, fmt.Errorf("read %d permits: %w", len(attempts), err)
	}
	for i := range rows {
		out[rows[i].ID] = &rows[i]
	}
	return out, nil
}

func deletePermits(ctx context.Context, tx *sqlx.Tx, namespace, queue ids.ID, attempts []ids.ID) error {
	if len(attempts) == 0 {
		return nil
	}
	args := []any{namespace, queue}
	for _, id := range attempts {
		args = append(args, id)
	}
	res, err := tx.ExecContext(ctx, "DELETE FROM permits WHERE namespace_id = ? AND queue_id = ? AND attempt_id IN ("+marks(len(attempts))+")", args...)
	return changed(res, err, len(attempts), "free permits")
}

func readAttempts(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, attempts []ids.ID) ([]*attemptRow, error) {
	if len(attempts) == 0 {
		return nil, nil
	}
	args := []any{namespace}
	for _, id := range attempts {
		args = append(args, id)
	}
	var rows []*attemptRow
	err := tx.SelectContext(ctx, &rows, `
SELECT id, task_id, number, epoch, digest, worker, started_at, outcome, task_state, task_revision, ended_at
FROM attempts WHERE namespace_id = ? AND id IN (`+marks(len(attempts))+")", args...)
	if err != nil {
		return nil, fmt.Errorf("read %d ended attempts: %w", len(attempts), err)
	}
	return rows, nil
}

func insertAttempts(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, rows []*attemptRow) error {
	if len(rows) == 0 {
		return nil
	}
	args := make([]any, 0, 15*len(rows))
	for _, a := range rows {
		code, message := failureColumns(a.Failure)
		args = append(args, namespace, a.ID, a.TaskID, a.Number, a.Epoch, a.Digest, a.Outcome, a.TaskState, a.TaskRevision, a.Worker,
			code, message, a.StartedAt, a.EndedAt, a.Result)
	}
	_, err := tx.ExecContext(ctx, `
INSERT INTO attempts (namespace_id, id, task_id, number, epoch, digest, outcome, task_state, task_revision, worker, error_code, error_message, started_at, ended_at, result)
VALUES `+tuples("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", len(rows)), args...)
	if err != nil {
		return fmt.Errorf("record %d attempts: %w", len(rows), err)
	}
	return nil
}

// updateLateAttempt overwrites LOST by the outcome that arrived after all.
func updateLateAttempt(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, a *attemptRow) error {
	code, message := failureColumns(a.Failure)
	res, err := tx.ExecContext(ctx, `
UPDATE attempts SET outcome = ?, task_state = ?, task_revision = ?, error_code = ?, error_message = ?, ended_at = ?, result = ?
WHERE namespace_id = ? AND id = ? AND outcome = 'LOST'`,
		a.Outcome, a.TaskState, a.TaskRevision, code, message, a.EndedAt, a.Result, namespace, a.ID)
	return changed(res, err, 1, "record late attempt "+a.ID.String())
}

func failureColumns(f *task.Failure) (code, message []byte) {
	if f == nil {
		return nil, nil
	}
	return []byte(f.Code), []byte(f.Message)
}

// Renewal answers one renewed attempt.
type Renewal struct {
	LeaseUntil      time.Time
	CancelRequested bool
	Err             error
}

// RenewAttempts gives running attempts another full lease and tells of requested cancels.
func (s *Store) RenewAttempts(ctx context.Context, namespace, queue ids.ID, proofs []task.Proof) ([]Renewal, error) {
	var out []Renewal
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		out = make([]Renewal, len(proofs))
		q, err := readQueue(ctx, tx, namespace, queue, "")
		if err != nil {
			return err
		}
		attempts := make([]ids.ID, len(proofs))
		for i, p := range proofs {
			attempts[i] = p.AttemptID
		}
		permits, err := readPermits(ctx, tx, namespace, queue, attempts, forUpdate)
		if err != nil {
			return err
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return err
		}
		until := now.Add(time.Duration(q.LeaseDurationMS) * time.Millisecond)
		var renewed, tasks []any
		for i, p := range proofs {
			permit := permits[p.AttemptID]
			if permit == nil || !permit.proves(p) {
				out[i].Err = errAttemptLost(p.AttemptID)
				continue
			}
			out[i].LeaseUntil = until
			renewed, tasks = append(renewed, p.AttemptID), append(tasks, permit.TaskID)
		}
		if len(renewed) == 0 {
			return nil
		}
		_, err = tx.ExecContext(ctx, "UPDATE permits SET lease_until = ? WHERE namespace_id = ? AND queue_id = ? AND attempt_id IN ("+marks(len(renewed))+")",
			append([]any{until, namespace, queue}, renewed...)...)
		if err != nil {
			return fmt.Errorf("renew %d attempts: %w", len(renewed), err)
		}
		return markCancels(ctx, tx, namespace, tasks, proofs, out)
	})
	return out, err
}

func markCancels(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, tasks []any, proofs []task.Proof, out []Renewal) error {
	var cancelled []ids.ID
	err := tx.SelectContext(ctx, &cancelled, "SELECT current_attempt_id FROM tasks WHERE namespace_id = ? AND id IN ("+marks(len(tasks))+
		") AND cancel_requested_at IS NOT NULL", append([]any{namespace}, tasks...)...)
	if err != nil {
		return fmt.Errorf("look for requested cancels: %w", err)
	}
	for _, id := range cancelled {
		for i, p := range proofs {
			if p.AttemptID == id {
				out[i].CancelRequested = true
			}
		}
	}
	return nil
}
