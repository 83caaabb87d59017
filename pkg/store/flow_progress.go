package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// follow makes sure that the namespace's log is followed. Who finds that it was not moves the cursor to
// the head: no run was live, and the tasks of this one are not committed yet, so their events come
// later. Call it last but for the audit: progress locks this row after everything else too.
func follow(ctx context.Context, tx *sqlx.Tx, namespace ids.ID) error {
	for {
		var live bool
		err := tx.GetContext(ctx, &live, "SELECT live FROM flow_progress WHERE namespace_id = ?"+forShare, namespace)
		switch {
		case err == nil && live: // held to the commit, so that nobody clears it before the run is seen
			return nil
		case errors.Is(err, sql.ErrNoRows):
			_, err = tx.ExecContext(ctx, `INSERT INTO flow_progress (namespace_id, cursor_sequence, live)
SELECT namespace_id, head, 1 FROM result_streams WHERE namespace_id = ?`, namespace)
			if isDuplicate(err) {
				continue
			}
			if err != nil {
				return fmt.Errorf("follow the log of namespace %s: %w", namespace, err)
			}
			return nil
		case err != nil:
			return fmt.Errorf("read flow progress of namespace %s: %w", namespace, err)
		}
		var head uint64
		if err := tx.GetContext(ctx, &head, "SELECT head FROM result_streams WHERE namespace_id = ?", namespace); err != nil {
			return fmt.Errorf("read head of namespace %s: %w", namespace, err)
		}
		res, err := tx.ExecContext(ctx, "UPDATE flow_progress SET live = 1, cursor_sequence = ? WHERE namespace_id = ? AND live = 0", head, namespace)
		if err != nil {
			return fmt.Errorf("follow the log of namespace %s: %w", namespace, err)
		}
		if n, err := res.RowsAffected(); err != nil || n == 1 {
			return err
		}
	}
}

// FlowLag is how a namespace with live runs stands to its log.
type FlowLag struct {
	NamespaceID ids.ID `db:"namespace_id"`
	Cursor      uint64 `db:"cursor_sequence"`
	Head        uint64 `db:"head"`
	Boundary    uint64 `db:"boundary"` // events up to here were removed
}

const flowLagsSQL = `
SELECT p.namespace_id, p.cursor_sequence, s.head, s.boundary
FROM flow_progress p FORCE INDEX (flow_progress_live) STRAIGHT_JOIN result_streams s ON s.namespace_id = p.namespace_id WHERE p.live = 1`

// FlowLags reads, in one query, how far the runs of every namespace that has live ones have followed
// its log. Namespaces without live runs are not looked at.
func (s *Store) FlowLags(ctx context.Context) ([]FlowLag, error) {
	var lags []FlowLag
	if err := s.db.SelectContext(ctx, &lags, flowLagsSQL); err != nil {
		return nil, classify(fmt.Errorf("read flow progress: %w", err))
	}
	return lags, nil
}

// flowWindow bounds one transaction: so many events are looked at, so many of tasks of flows applied.
const (
	flowWindow = 2000
	flowBatch  = 200
)

type flowEvent struct {
	Sequence      uint64 `db:"sequence"`
	Type          string `db:"type"`
	RunID         ids.ID `db:"run_id"`
	Step          int    `db:"step"`
	Try           int    `db:"try_number"`
	ApplicationID ids.ID `db:"application_id"`
}

const flowEventsSQL = `
SELECT e.sequence, e.type, f.run_id, f.step, f.try_number, r.application_id
FROM result_events e FORCE INDEX (PRIMARY) STRAIGHT_JOIN flow_tasks f ON f.namespace_id = e.namespace_id AND f.task_id = e.aggregate_id
STRAIGHT_JOIN flow_runs r ON r.namespace_id = f.namespace_id AND r.id = f.run_id
WHERE e.namespace_id = ? AND e.sequence > ? AND e.sequence <= ? ORDER BY e.sequence LIMIT ?`

var flowEventKinds = map[string]flow.Kind{
	"task.succeeded": flow.TaskSucceeded, "task.failed": flow.TaskFailed, "task.cancelled": flow.TaskCancelled,
	"task.needs_review": flow.TaskNeedsReview, "task.requeued": flow.TaskRequeued,
}

// errOvertaken rolls a transaction back whose cursor another replica has moved meanwhile.
var errOvertaken = errs.New(errs.StateConflict, "another replica has made this progress")

// FollowLog applies the next events of a namespace's log to its runs: steps, tasks submitted and
// cancelled, runs and the cursor move in one transaction or not at all (R10.2). It returns how many
// events were passed, 0 when another replica did it. Any number of replicas may follow: the rows of the
// runs and the guarded move of the cursor let one of them win.
func (s *Store) FollowLog(ctx context.Context, lag FlowLag) (passed int, err error) {
	err = s.InTx(ctx, func(tx *sqlx.Tx) error {
		passed = 0
		events, to, err := nextFlowEvents(ctx, tx, lag)
		if err != nil {
			return err
		}
		if len(events) > 0 {
			if err := s.applyEvents(ctx, tx, lag, events); err != nil {
				return err
			}
		}
		res, err := tx.ExecContext(ctx, "UPDATE flow_progress SET cursor_sequence = ? WHERE namespace_id = ? AND cursor_sequence = ?", to, lag.NamespaceID, lag.Cursor)
		if err != nil {
			return fmt.Errorf("move flow cursor: %w", err)
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return errors.Join(err, errOvertaken)
		}
		passed = int(to - lag.Cursor)
		return nil
	})
	if errors.Is(err, errOvertaken) {
		return 0, nil
	}
	return passed, err
}

// nextFlowEvents reads the next window of the log and says how far it goes. Where retention has removed
// events that were not followed yet, the tasks themselves tell what became of them.
func nextFlowEvents(ctx context.Context, tx *sqlx.Tx, lag FlowLag) (events []flowEvent, to uint64, err error) {
	if lag.Boundary > lag.Cursor {
		err := tx.SelectContext(ctx, &events, missedEventsSQL, lag.NamespaceID, flowBatch)
		if err != nil {
			return nil, 0, fmt.Errorf("read tasks of flows whose events were removed: %w", err)
		}
		if to = lag.Boundary; len(events) == flowBatch {
			to = lag.Cursor + 1 // there may be more
		}
		return events, to, nil
	}
	to = min(lag.Head, lag.Cursor+flowWindow)
	if err := tx.SelectContext(ctx, &events, flowEventsSQL, lag.NamespaceID, lag.Cursor, to, flowBatch); err != nil {
		return nil, 0, fmt.Errorf("read events of flows: %w", err)
	}
	if len(events) == flowBatch {
		to = events[flowBatch-1].Sequence
	}
	return events, to, nil
}

// missedEventsSQL finds steps that stand otherwise than their tasks.
const missedEventsSQL = `
SELECT 0 AS sequence, CASE t.state WHEN 'QUEUED' THEN 'task.requeued' WHEN 'RUNNING' THEN 'task.requeued' ELSE CONCAT('task.', LOWER(t.state)) END AS type,
  s.run_id, s.step, s.try_number, r.application_id
FROM flow_runs r FORCE INDEX (flow_runs_live) STRAIGHT_JOIN flow_steps s ON s.namespace_id = r.namespace_id AND s.run_id = r.id
STRAIGHT_JOIN flow_tasks f FORCE INDEX (flow_tasks_try) ON f.namespace_id = s.namespace_id AND f.run_id = s.run_id AND f.step = s.step AND f.try_number = s.try_number
STRAIGHT_JOIN tasks t ON t.namespace_id = f.namespace_id AND t.id = f.task_id
WHERE r.namespace_id = ? AND r.live = 1
  AND (s.state = 'SUBMITTED' AND t.state NOT IN ('QUEUED', 'RUNNING') OR s.state = 'NEEDS_REVIEW' AND t.state <> 'NEEDS_REVIEW') LIMIT ?`

func (s *Store) applyEvents(ctx context.Context, tx *sqlx.Tx, lag FlowLag, events []flowEvent) error {
	var runs, applications []ids.ID
	seen := map[ids.ID]bool{}
	for _, e := range events {
		if !seen[e.RunID] {
			seen[e.RunID] = true
			runs, applications = append(runs, e.RunID), append(applications, e.ApplicationID)
		}
	}
	quotas, err := lockQueuedQuotas(ctx, tx, lag.NamespaceID, applications...)
	if err != nil {
		return err
	}
	locked, err := s.lockRuns(ctx, tx, lag.NamespaceID, runs)
	if err != nil {
		return err
	}
	var cursor uint64 // again, now that the runs are locked: who waited for them may be late
	if err := tx.GetContext(ctx, &cursor, "SELECT cursor_sequence FROM flow_progress WHERE namespace_id = ?", lag.NamespaceID); err != nil {
		return fmt.Errorf("read flow cursor: %w", err)
	}
	if cursor != lag.Cursor {
		return errOvertaken
	}
	for _, e := range events {
		if err := locked[e.RunID].apply(flow.Event{Kind: flowEventKinds[e.Type], Step: e.Step, Try: e.Try}); err != nil {
			return err
		}
	}
	now, err := dbNow(ctx, tx)
	if err != nil {
		return err
	}
	return s.advance(ctx, tx, lag.NamespaceID, now, inOrder(locked), quotas)
}

// inOrder lists runs in key order.
func inOrder(runs map[ids.ID]*flowRun) []*flowRun {
	out := make([]*flowRun, 0, len(runs))
	for _, r := range runs {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *flowRun) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return out
}

// SubmitWaiting looks again at up to limit runs that found their application's quota full, and returns
// how many it looked at.
func (s *Store) SubmitWaiting(ctx context.Context, limit int) (int, error) {
	var due []struct {
		NamespaceID   ids.ID `db:"namespace_id"`
		ID            ids.ID `db:"id"`
		ApplicationID ids.ID `db:"application_id"`
	}
	err := s.db.SelectContext(ctx, &due, `
SELECT namespace_id, id, application_id FROM flow_runs FORCE INDEX (flow_runs_due) WHERE due_at <= UTC_TIMESTAMP(6) ORDER BY due_at LIMIT ?`, limit)
	if err != nil {
		return 0, classify(fmt.Errorf("look for runs that wait for room: %w", err))
	}
	type group struct{ runs, applications []ids.ID }
	groups := map[ids.ID]*group{}
	for _, d := range due {
		g := groups[d.NamespaceID]
		if g == nil {
			g = &group{}
			groups[d.NamespaceID] = g
		}
		g.runs, g.applications = append(g.runs, d.ID), append(g.applications, d.ApplicationID)
	}
	for namespace, g := range groups {
		err := s.InTx(ctx, func(tx *sqlx.Tx) error {
			quotas, err := lockQueuedQuotas(ctx, tx, namespace, slices.Clone(g.applications)...)
			if err != nil {
				return err
			}
			locked, err := s.lockRuns(ctx, tx, namespace, g.runs)
			if err != nil {
				return err
			}
			now, err := dbNow(ctx, tx)
			if err != nil {
				return err
			}
			return s.advance(ctx, tx, namespace, now, stillDue(inOrder(locked), now), quotas)
		})
		if err != nil {
			return 0, err
		}
	}
	return len(due), nil
}

// stillDue leaves out what another replica has just looked at.
func stillDue(runs []*flowRun, now time.Time) []*flowRun {
	return slices.DeleteFunc(runs, func(r *flowRun) bool { return r.DueAt == nil || r.DueAt.After(now) })
}

// RestFlows stops following the logs of namespaces whose runs have all ended, and returns how many.
func (s *Store) RestFlows(ctx context.Context) (int, error) {
	const noneLive = "NOT EXISTS (SELECT 1 FROM flow_runs r FORCE INDEX (flow_runs_live) WHERE r.namespace_id = p.namespace_id AND r.live = 1)"
	var idle []ids.ID
	err := s.db.SelectContext(ctx, &idle, "SELECT p.namespace_id FROM flow_progress p FORCE INDEX (flow_progress_live) WHERE p.live = 1 AND "+noneLive)
	if err != nil {
		return 0, classify(fmt.Errorf("look for namespaces without live runs: %w", err))
	}
	n := 0
	for _, namespace := range idle {
		err := s.InTx(ctx, func(tx *sqlx.Tx) error {
			res, err := tx.ExecContext(ctx, "UPDATE flow_progress SET live = 0 WHERE namespace_id = ? AND live = 1", namespace)
			if err != nil {
				return fmt.Errorf("rest flows of namespace %s: %w", namespace, err)
			}
			if rows, err := res.RowsAffected(); err != nil || rows == 0 {
				return err
			}
			// The row is locked: who starts a run now waits, and who has started one is seen.
			var live int
			err = tx.GetContext(ctx, &live, "SELECT COUNT(*) FROM (SELECT 1 FROM flow_runs FORCE INDEX (flow_runs_live) WHERE namespace_id = ? AND live = 1 LIMIT 1) l", namespace)
			if err != nil {
				return fmt.Errorf("look for live runs of namespace %s: %w", namespace, err)
			}
			if live > 0 {
				return errOvertaken
			}
			return nil
		})
		if err == nil {
			n++
		} else if !errors.Is(err, errOvertaken) {
			return n, err
		}
	}
	return n, nil
}

// liveRunsFrom counts, for a namespace and a queue, the runs that are not final and whose pinned
// version uses the queue in any step (R7.2).
const liveRunsFrom = `flow_version_queues v STRAIGHT_JOIN flow_runs r FORCE INDEX (flow_runs_live)
ON r.namespace_id = v.namespace_id AND r.live = 1 AND r.flow_id = v.flow_id AND r.version = v.version WHERE v.namespace_id = ? AND v.queue_id = ?`
