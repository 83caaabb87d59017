package store

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// OutcomeResult answers one outcome; Err is ATTEMPT_LEASE_LOST when its proof counts no longer.
type OutcomeResult struct {
	TaskID       ids.ID
	State        task.State
	Revision     ids.Counter
	Deduplicated bool
	Err          error
}

// Finished is what a batch of outcomes left behind.
type Finished struct {
	Results  []OutcomeResult // in the order of the outcomes
	Head     uint64          // new head of the namespace's log, 0 if nothing was appended
	Requeued bool            // some task may be claimed again
}

// FinishAttempts decides many attempts of one queue in one transaction: tasks, attempts, permits,
// ready rows and result events change together or not at all.
func (s *Store) FinishAttempts(ctx context.Context, namespace, queue ids.ID, outcomes []task.Outcome) (Finished, error) {
	var out Finished
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		f := finisher{namespace: namespace, queue: queue, ended: map[ids.ID]*attemptRow{}}
		if err := f.load(ctx, tx, outcomes); err != nil {
			return err
		}
		results := make([]OutcomeResult, len(outcomes))
		for i := range outcomes {
			results[i] = f.decide(&outcomes[i])
		}
		head, err := f.write(ctx, tx)
		out = Finished{Results: results, Head: head, Requeued: len(f.requeued) > 0}
		return err
	})
	return out, err
}

// finisher holds one batch: what was read under lock, then what is to be written.
type finisher struct {
	namespace, queue ids.ID
	now              time.Time
	permits          map[ids.ID]*attemptRow
	ended            map[ids.ID]*attemptRow
	tasks            map[ids.ID]*taskRow

	succeeded []any // ids
	others    []finishedTask
	requeued  []*taskRow
	unqueue   []taskRow // as they were
	closed    []*attemptRow
	late      []*attemptRow
	freed     []ids.ID
	events    []newEvent
}

type finishedTask struct {
	row  *taskRow
	from taskRow
}

// load finds the tasks of the outcomes, locks them in key order, and reads what else decides.
func (f *finisher) load(ctx context.Context, tx *sqlx.Tx, outcomes []task.Outcome) error {
	attempts := make([]ids.ID, len(outcomes))
	for i, o := range outcomes {
		attempts[i] = o.Proof.AttemptID
	}
	var err error
	if f.permits, err = readPermits(ctx, tx, f.namespace, f.queue, attempts, ""); err != nil {
		return err
	}
	if err = f.readEnded(ctx, tx, attempts); err != nil {
		return err
	}
	tasks := map[ids.ID]bool{}
	for _, m := range []map[ids.ID]*attemptRow{f.permits, f.ended} {
		for _, a := range m {
			tasks[a.TaskID] = true
		}
	}
	if f.tasks, err = lockTasks(ctx, tx, f.namespace, tasks); err != nil {
		return err
	}
	if f.now, err = dbNow(ctx, tx); err != nil {
		return err
	}
	return f.reread(ctx, tx, outcomes)
}

// reread looks again, now that the tasks are locked, at what may have moved before they were:
// attempts that another transaction ended, and leases that were renewed under the sweeper's hands.
func (f *finisher) reread(ctx context.Context, tx *sqlx.Tx, outcomes []task.Outcome) error {
	var moved, lost []ids.ID
	for _, o := range outcomes {
		id := o.Proof.AttemptID
		if p := f.permits[id]; p != nil && !f.live(p) {
			delete(f.permits, id)
			moved = append(moved, id)
		} else if p != nil && o.Kind == task.OutcomeLost {
			lost = append(lost, id)
		}
	}
	if err := f.readEnded(ctx, tx, moved); err != nil {
		return err
	}
	again, err := readPermits(ctx, tx, f.namespace, f.queue, lost, forUpdate)
	if err != nil {
		return err
	}
	for _, id := range lost {
		if p := again[id]; p == nil || p.LeaseUntil.After(f.now) {
			delete(f.permits, id)
		}
	}
	return nil
}

// readEnded loads the attempts that have no permit.
func (f *finisher) readEnded(ctx context.Context, tx *sqlx.Tx, attempts []ids.ID) error {
	var missing []ids.ID
	for _, id := range attempts {
		if f.permits[id] == nil {
			missing = append(missing, id)
		}
	}
	rows, err := readAttempts(ctx, tx, f.namespace, missing)
	for _, a := range rows {
		f.ended[a.ID] = a
	}
	return err
}

// live reports that the permit's attempt is the one its locked task is running.
func (f *finisher) live(p *attemptRow) bool {
	t := f.tasks[p.TaskID]
	return t != nil && t.State == string(task.Running) && t.CurrentAttemptID == p.ID && t.LeaseEpoch == p.Epoch
}

// decide applies one outcome to the rows in memory.
func (f *finisher) decide(o *task.Outcome) OutcomeResult {
	if p := f.permits[o.Proof.AttemptID]; p != nil && (o.Kind == task.OutcomeLost || p.proves(o.Proof)) {
		return f.apply(o, p, false)
	}
	e := f.ended[o.Proof.AttemptID]
	if e == nil || !e.proves(o.Proof) {
		return OutcomeResult{Err: errAttemptLost(o.Proof.AttemptID)}
	}
	if e.Outcome == outcomeName[o.Kind] {
		return OutcomeResult{TaskID: e.TaskID, State: task.State(e.TaskState), Revision: ids.Counter(e.TaskRevision), Deduplicated: true}
	}
	if t := f.tasks[e.TaskID]; e.Outcome == attemptLost && t != nil && t.LeaseEpoch == e.Epoch {
		return f.apply(o, e, true)
	}
	return OutcomeResult{Err: errAttemptLost(o.Proof.AttemptID)}
}

func errAttemptLost(id ids.ID) error {
	return errs.New(errs.AttemptLeaseLost, "attempt %s: its lease was lost, released or given to a newer attempt", id)
}

// apply moves a task; late says that the attempt had been given up as lost.
func (f *finisher) apply(o *task.Outcome, a *attemptRow, late bool) OutcomeResult {
	t := f.tasks[a.TaskID]
	cmd := o.CommandFor(task.RetrySafety(t.RetrySafety), t.Attempts, t.MaxAttempts, t.CancelRequestedAt != nil)
	move, ok := task.Next(task.State(t.State), cmd)
	if !ok {
		return OutcomeResult{Err: errAttemptLost(a.ID)}
	}
	from := *t
	t.State, t.Revision, t.UpdatedAt = string(move.To), t.Revision+1, f.now
	f.set(t, o, cmd)
	if late {
		f.unqueue = append(f.unqueue, from)
		f.late = append(f.late, a)
	} else {
		delete(f.permits, a.ID)
		f.freed = append(f.freed, a.ID)
	}
	if move.To == task.Succeeded {
		f.succeeded = append(f.succeeded, t.ID)
	} else {
		f.others = append(f.others, finishedTask{row: t, from: from})
	}
	if move.To == task.Queued {
		f.requeued = append(f.requeued, t)
	}
	if move.Event != "" {
		snapshot := t.snapshot()
		snapshot.Result = o.Result
		f.events = append(f.events, newEvent{Type: move.Event, Snapshot: snapshot, Details: task.Details{State: move.To, Reason: reasonOf[o.Kind], Error: o.Failure}})
	}
	if o.Kind != task.OutcomeRelease { // what never started leaves no attempt
		a.Outcome, a.TaskState, a.TaskRevision, a.EndedAt, a.Failure, a.Result = outcomeName[o.Kind], t.State, t.Revision, f.now, o.Failure, o.Result
		f.ended[a.ID] = a
		if !late {
			f.closed = append(f.closed, a)
		}
	}
	return OutcomeResult{TaskID: t.ID, State: move.To, Revision: ids.Counter(t.Revision)}
}

// set changes what the command changes besides state and revision.
func (f *finisher) set(t *taskRow, o *task.Outcome, cmd task.Command) {
	t.ErrorCode, t.ErrorMessage = nil, nil
	if o.Failure != nil {
		t.ErrorCode, t.ErrorMessage = &o.Failure.Code, &o.Failure.Message
	}
	switch cmd {
	case task.FailRetryable:
		wait := task.Backoff(t.Attempts, rand.Float64())
		if o.RetryAfter != nil {
			wait = *o.RetryAfter
		}
		t.RunAt = f.now.Add(wait).Truncate(time.Microsecond)
	case task.Release:
		t.Attempts--
	case task.LoseUncertain:
		t.EffectUncertain = true
	}
}

func (a *attemptRow) proves(p task.Proof) bool {
	return a.Epoch == uint64(p.Epoch) && bytes.Equal(a.Digest, p.Digest[:])
}

var reasonOf = map[task.OutcomeKind]string{
	task.OutcomeComplete:  task.ReasonCompleted,
	task.OutcomeFail:      task.ReasonAttemptFailed,
	task.OutcomeCancelled: task.ReasonCancelRequested,
	task.OutcomeLost:      task.ReasonLeaseLost,
}

// SweepAttempts decides up to limit attempts whose lease ran out, and returns how many. Any number
// of replicas may sweep: each move is guarded by the task's row.
func (s *Store) SweepAttempts(ctx context.Context, limit int) (int, error) {
	var lapsed []struct {
		NamespaceID ids.ID `db:"namespace_id"`
		QueueID     ids.ID `db:"queue_id"`
		AttemptID   ids.ID `db:"attempt_id"`
	}
	err := s.db.SelectContext(ctx, &lapsed, `
SELECT namespace_id, queue_id, attempt_id FROM permits WHERE lease_until <= UTC_TIMESTAMP(6) LIMIT ?`, limit)
	if err != nil {
		return 0, classify(fmt.Errorf("look for lapsed attempts: %w", err))
	}
	byQueue := map[ReadyQueue][]task.Outcome{}
	for _, l := range lapsed {
		q := ReadyQueue{l.NamespaceID, l.QueueID}
		byQueue[q] = append(byQueue[q], task.Outcome{Kind: task.OutcomeLost, Proof: task.Proof{AttemptID: l.AttemptID}})
	}
	n := 0
	for q, outcomes := range byQueue {
		done, err := s.FinishAttempts(ctx, q.NamespaceID, q.QueueID, outcomes)
		if err != nil {
			return n, err
		}
		for _, r := range done.Results {
			if r.Err == nil {
				n++
			}
		}
	}
	return n, nil
}
