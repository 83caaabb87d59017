package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// quotaPause is how soon a run that found no room looks again.
const quotaPause = time.Second

// queuedQuotas is the room for queued tasks of the applications that have a limit.
type queuedQuotas map[ids.ID]int

// lockQueuedQuotas is the first lock of whatever submits steps: it takes the limits of these
// applications, where they have one, in key order.
func lockQueuedQuotas(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, applications ...ids.ID) (queuedQuotas, error) {
	slices.SortFunc(applications, func(a, b ids.ID) int { return bytes.Compare(a[:], b[:]) })
	room := queuedQuotas{}
	for _, id := range slices.Compact(applications) {
		c := &access.Caller{NamespaceID: namespace, ApplicationID: id}
		limit, err := lockQueuedQuota(ctx, tx, c)
		if err != nil {
			return nil, err
		}
		if limit == 0 {
			continue
		}
		queued, err := countQueued(ctx, tx, c, limit)
		if err != nil {
			return nil, err
		}
		room[id] = max(limit-queued, 0)
	}
	return room, nil
}

// take uses room for one task, if there is any.
func (q queuedQuotas) take(application ids.ID) bool {
	left, limited := q[application]
	if limited && left > 0 {
		q[application] = left - 1
	}
	return !limited || left > 0
}

// give returns what was taken.
func (q queuedQuotas) give(application ids.ID) {
	if left, limited := q[application]; limited {
		q[application] = left + 1
	}
}

// readyStep is a step on its way to a task.
type readyStep struct {
	run   *flowRun
	step  int
	input []byte
}

// advance submits what is ready in locked runs and writes everything that has moved: tasks, steps,
// runs, cancelled tasks and their events, in the lock order.
func (s *Store) advance(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, now time.Time, runs []*flowRun, quotas queuedQuotas) error {
	ready, err := prepareSteps(ctx, tx, namespace, runs, quotas)
	if err != nil {
		return err
	}
	admitted := ready[:0]
	for _, r := range ready {
		if r.run.run.Ending != "" || r.run.run.State.Final() { // another step's input could not be made
			quotas.give(r.run.ApplicationID)
			continue
		}
		if err := r.run.apply(flow.Event{Kind: flow.Submitted, Step: r.step}); err != nil {
			return err
		}
		admitted = append(admitted, r)
	}
	if err := submitSteps(ctx, tx, namespace, now, admitted); err != nil {
		return err
	}
	if err := writeSteps(ctx, tx, namespace, now, runs); err != nil {
		return err
	}
	for _, r := range runs {
		if err := writeRun(ctx, tx, namespace, now, r); err != nil {
			return err
		}
	}
	return s.cancelSteps(ctx, tx, namespace, runs)
}

// prepareSteps makes the inputs of the ready steps that there is room for; a step whose input cannot be
// made fails.
func prepareSteps(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, runs []*flowRun, quotas queuedQuotas) ([]readyStep, error) {
	var ready []readyStep
	for _, r := range runs {
		for _, step := range r.plan.Ready(r.run) {
			if quotas.take(r.ApplicationID) {
				ready = append(ready, readyStep{run: r, step: step})
			} else {
				r.blocked = true
			}
		}
	}
	inputs, err := runInputs(ctx, tx, namespace, ready)
	if err != nil {
		return nil, err
	}
	results, err := stepResults(ctx, tx, namespace, ready)
	if err != nil {
		return nil, err
	}
	kept := ready[:0]
	for _, r := range ready {
		input, failure := r.run.plan.Input(r.step, inputs[r.run.ID], results[r.run.ID])
		if failure == nil {
			r.input = input
			kept = append(kept, r)
			continue
		}
		quotas.give(r.run.ApplicationID)
		if r.run.run.Steps[r.step].State != flow.StepWaiting { // skipped by the failure of another
			continue
		}
		r.run.failures[r.step] = failure
		if err := r.run.apply(flow.Event{Kind: flow.Refused, Step: r.step}); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// runInputs reads the inputs of the runs that a ready step refers to.
func runInputs(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, ready []readyStep) (map[ids.ID][]byte, error) {
	args, seen := []any{namespace}, map[ids.ID]bool{}
	for _, r := range ready {
		if !seen[r.run.ID] && r.run.plan.NeedsRun(r.step) {
			seen[r.run.ID] = true
			args = append(args, r.run.ID)
		}
	}
	out := make(map[ids.ID][]byte, len(seen))
	if len(seen) == 0 {
		return out, nil
	}
	var rows []struct {
		ID    ids.ID `db:"id"`
		Input []byte `db:"input"`
	}
	if err := tx.SelectContext(ctx, &rows, "SELECT id, input FROM flow_runs WHERE namespace_id = ? AND id IN ("+marks(len(seen))+")", args...); err != nil {
		return nil, fmt.Errorf("read inputs of %d runs: %w", len(seen), err)
	}
	for _, row := range rows {
		out[row.ID] = row.Input
	}
	return out, nil
}

// stepResults reads the results that ready steps refer to, by run and step.
func stepResults(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, ready []readyStep) (map[ids.ID]map[int][]byte, error) {
	args := []any{namespace}
	out := map[ids.ID]map[int][]byte{}
	for _, r := range ready {
		for _, need := range r.run.plan.NeedsResults(r.step) {
			if out[r.run.ID] == nil {
				out[r.run.ID] = map[int][]byte{}
			}
			if _, asked := out[r.run.ID][need]; !asked {
				out[r.run.ID][need] = nil
				args = append(args, r.run.ID, need, r.run.run.Steps[need].Try)
			}
		}
	}
	n := len(args) / 3
	if n == 0 {
		return out, nil
	}
	var rows []struct {
		RunID  ids.ID `db:"run_id"`
		Step   int    `db:"step"`
		Result []byte `db:"result"`
	}
	err := tx.SelectContext(ctx, &rows, `
SELECT f.run_id, f.step, t.result FROM flow_tasks f FORCE INDEX (flow_tasks_try) STRAIGHT_JOIN tasks t ON t.namespace_id = f.namespace_id AND t.id = f.task_id
WHERE f.namespace_id = ? AND (`+anyOf("(f.run_id = ? AND f.step = ? AND f.try_number = ?)", n)+")", args...)
	if err != nil {
		return nil, fmt.Errorf("read %d results: %w", n, err)
	}
	for _, row := range rows {
		out[row.RunID][row.Step] = row.Result
	}
	return out, nil
}

// anyOf returns "term OR term OR term" for n keys.
func anyOf(term string, n int) string {
	b := make([]byte, 0, n*(len(term)+4))
	for i := range n {
		if i > 0 {
			b = append(b, " OR "...)
		}
		b = append(b, term...)
	}
	return string(b)
}

// submitSteps queues one task per step, as a submit does, under the credential that started the run.
func submitSteps(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, now time.Time, steps []readyStep) error {
	if len(steps) == 0 {
		return nil
	}
	byCaller := map[[2]ids.ID][]readyStep{}
	links := make([]any, 0, 5*len(steps))
	for _, st := range steps {
		key := [2]ids.ID{st.run.ApplicationID, st.run.CredentialID}
		byCaller[key] = append(byCaller[key], st)
		id := ids.New()
		st.run.tasks[st.step] = id
		links = append(links, namespace, id, st.run.ID, st.step, st.run.run.Steps[st.step].Try)
	}
	for key, list := range byCaller {
		w := Write{Caller: &access.Caller{NamespaceID: namespace, ApplicationID: key[0], CredentialID: key[1]}}
		subs, rows := make([]task.Submit, len(list)), make([]*taskRow, len(list))
		for i, st := range list {
			subs[i] = st.run.plan.Steps[st.step].Submit(st.input)
			rows[i] = newTaskRow(&subs[i], st.run.tasks[st.step], now)
			rows[i].ApplicationID = key[0]
		}
		if err := insertTasks(ctx, tx, w, subs, rows); err != nil {
			return err
		}
		if err := insertReady(ctx, tx, namespace, now, rows); err != nil {
			return err
		}
		if err := insertLabels(ctx, tx, namespace, subs, rows); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO flow_tasks (namespace_id, task_id, run_id, step, try_number) VALUES "+tuples("(?, ?, ?, ?, ?)", len(steps)), links...)
	if err != nil {
		return fmt.Errorf("link %d tasks to their steps: %w", len(steps), err)
	}
	return nil
}

// commandDetail is the audit detail of a command on a run.
func commandDetail(step, reason string) []byte {
	if step == "" {
		return reasonDetail(reason)
	}
	b, err := json.Marshal(map[string]string{"reason": reason, "step": step}, json.Deterministic(true))
	if err != nil { // checked strings always encode
		return nil
	}
	return b
}
