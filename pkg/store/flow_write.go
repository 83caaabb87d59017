package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// stepMove is what many steps of a batch have in common.
type stepMove struct {
	from, to flow.StepState
	again    bool // another try
}

// writeSteps moves steps that make the same move in one guarded statement.
func writeSteps(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, now time.Time, runs []*flowRun) error {
	moves := map[stepMove][]any{}
	for _, r := range runs {
		for i, to := range r.run.Steps {
			from := r.before[i]
			if from == to {
				continue
			}
			if f := r.failures[i]; f != nil {
				if err := failStep(ctx, tx, namespace, now, r.ID, i, from, to.Try, f); err != nil {
					return err
				}
				continue
			}
			m := stepMove{from.State, to.State, from.Try != to.Try}
			moves[m] = append(moves[m], r.ID, i, from.Try)
		}
	}
	for m, keys := range moves {
		set, args := "state = ?", []any{string(m.to)}
		if m.again {
			set += ", try_number = try_number + 1"
		}
		switch {
		case m.to == flow.StepWaiting:
			set += ", submitted_at = NULL, finished_at = NULL, error_code = NULL, error_message = NULL"
		case m.to == flow.StepSubmitted && m.from == flow.StepNeedsReview, m.to == flow.StepNeedsReview:
		case m.to == flow.StepSubmitted:
			set += ", submitted_at = ?, finished_at = NULL, error_code = NULL, error_message = NULL"
			args = append(args, now)
		default:
			set += ", finished_at = ?"
			args = append(args, now)
		}
		n := len(keys) / 3
		args = append(append(args, namespace, string(m.from)), keys...)
		res, err := tx.ExecContext(ctx, "UPDATE flow_steps SET "+set+" WHERE namespace_id = ? AND state = ? AND ("+
			anyOf("(run_id = ? AND step = ? AND try_number = ?)", n)+")", args...)
		if err := changed(res, err, n, fmt.Sprintf("move steps from %s to %s", m.from, m.to)); err != nil {
			return err
		}
	}
	return nil
}

func failStep(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, now time.Time, run ids.ID, step int, from flow.Progress, try int, f *task.Failure) error {
	res, err := tx.ExecContext(ctx, `UPDATE flow_steps SET state = 'FAILED', try_number = ?, submitted_at = NULL, finished_at = ?, error_code = ?, error_message = ?
WHERE namespace_id = ? AND run_id = ? AND step = ? AND state = ? AND try_number = ?`,
		try, now, []byte(f.Code), []byte(f.Message), namespace, run, step, string(from.State), from.Try)
	return changed(res, err, 1, fmt.Sprintf("fail step %d of run %s", step, run))
}

// writeRun stores what has changed of the run's own row; its revision moves with state and ending.
func writeRun(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, now time.Time, r *flowRun) error {
	moved := r.run.State != flow.State(r.State) || r.run.Ending != r.ending()
	r.blocked = r.blocked && !r.run.State.Final() && r.run.Ending == ""
	if !moved && !r.blocked && r.DueAt == nil {
		return nil
	}
	from := r.Revision
	r.DueAt = nil
	if r.blocked {
		due := now.Add(quotaPause)
		r.DueAt = &due
	}
	if moved {
		r.State, r.Ending, r.FinishedAt = string(r.run.State), nil, nil
		r.Revision, r.UpdatedAt = from+1, now
		if r.run.Ending != "" {
			ending := string(r.run.Ending)
			r.Ending = &ending
		}
		if r.run.State.Final() {
			r.FinishedAt = &now
		}
	}
	res, err := tx.ExecContext(ctx, `
UPDATE flow_runs SET state = ?, ending = ?, live = ?, revision = ?, due_at = ?, updated_at = ?, finished_at = ?
WHERE namespace_id = ? AND id = ? AND revision = ?`,
		r.State, bytesOf(r.Ending), r.FinishedAt == nil, r.Revision, r.DueAt, r.UpdatedAt, r.FinishedAt, namespace, r.ID, from)
	return changed(res, err, 1, "move run "+r.ID.String())
}

// cancelSteps cancels the tasks that the runs no longer want. A task that has finished meanwhile, or
// that was asked already, is left alone; the log tells the run what became of each.
func (s *Store) cancelSteps(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, runs []*flowRun) error {
	asked := map[ids.ID]map[int]bool{} // by run and step: whether workers are asked too
	args := []any{namespace}
	for _, r := range runs {
		steps := map[int]bool{}
		for _, step := range r.unqueue {
			steps[step] = false
		}
		for _, step := range r.cancel {
			steps[step] = true
		}
		for step := range steps {
			args = append(args, r.ID, step, r.run.Steps[step].Try)
		}
		asked[r.ID] = steps
	}
	n := len(args) / 3
	if n == 0 {
		return nil
	}
	var links []struct {
		TaskID ids.ID `db:"task_id"`
		RunID  ids.ID `db:"run_id"`
		Step   int    `db:"step"`
	}
	err := tx.SelectContext(ctx, &links, "SELECT task_id, run_id, step FROM flow_tasks FORCE INDEX (flow_tasks_try) WHERE namespace_id = ? AND ("+
		anyOf("(run_id = ? AND step = ? AND try_number = ?)", n)+")", args...)
	if err != nil {
		return fmt.Errorf("look up %d tasks of steps: %w", n, err)
	}
	set := map[ids.ID]bool{}
	for _, l := range links {
		set[l.TaskID] = true
	}
	rows, err := lockTasks(ctx, tx, namespace, set)
	if err != nil {
		return err
	}
	for _, l := range links {
		row := rows[l.TaskID]
		queued := row.State == string(task.Queued)
		running := row.State == string(task.Running) && row.CancelRequestedAt == nil
		if queued || running && asked[l.RunID][l.Step] {
			if err := s.cancel(ctx, tx, namespace, row); err != nil {
				return err
			}
		}
	}
	return nil
}
