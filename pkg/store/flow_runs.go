package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

type flowRunRow struct {
	ID            ids.ID     `db:"id"`
	FlowID        ids.ID     `db:"flow_id"`
	Version       int        `db:"version"`
	ApplicationID ids.ID     `db:"application_id"`
	CredentialID  ids.ID     `db:"credential_id"`
	State         string     `db:"state"`
	Ending        *string    `db:"ending"`
	Revision      uint64     `db:"revision"`
	DueAt         *time.Time `db:"due_at"`
	CreatedAt     time.Time  `db:"created_at"`
	UpdatedAt     time.Time  `db:"updated_at"`
	FinishedAt    *time.Time `db:"finished_at"`
	Labels        []byte     `db:"labels"`
}

const flowRunColumns = `id, flow_id, version, application_id, credential_id, state, ending, revision, due_at, created_at, updated_at, finished_at, labels`

func (r *flowRunRow) record() *flow.RunRecord {
	return &flow.RunRecord{
		ID: r.ID, FlowID: r.FlowID, Version: r.Version, State: flow.State(r.State), Ending: r.ending(), Revision: ids.Counter(r.Revision),
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, FinishedAt: r.FinishedAt, Labels: r.Labels,
	}
}

func (r *flowRunRow) ending() flow.State {
	if r.Ending == nil {
		return ""
	}
	return flow.State(*r.Ending)
}

// flowRun is one run in a transaction that holds its row: as it was read, and as the machine moves it.
type flowRun struct {
	flowRunRow
	plan     *flow.Plan
	run      *flow.Run
	before   []flow.Progress
	failures map[int]*task.Failure // of steps whose input could not be made
	tasks    map[int]ids.ID        // submitted in this transaction
	cancel   []int                 // steps whose tasks are to be cancelled
	unqueue  []int                 // the same, only where no worker has the task
	blocked  bool                  // some ready step found no room
}

// apply moves the run and remembers the effects.
func (r *flowRun) apply(e flow.Event) error {
	fx, err := r.plan.Apply(r.run, e)
	r.cancel, r.unqueue = append(r.cancel, fx.Cancel...), append(r.unqueue, fx.CancelQueued...)
	return err
}

func errRunNotFound(id ids.ID) error {
	return errs.New(errs.NotFound, "run %s does not exist here", id)
}

// readRun returns a run whose version uses only queues in the caller's scope, else NOT_FOUND.
func readRun(ctx context.Context, q sqlx.QueryerContext, c *access.Caller, id ids.ID) (*flowRunRow, error) {
	var row flowRunRow
	err := sqlx.GetContext(ctx, q, &row, "SELECT "+flowRunColumns+" FROM flow_runs WHERE namespace_id = ? AND id = ?", c.NamespaceID, id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errRunNotFound(id)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("read run %s: %w", id, err))
	}
	within, err := versionInScope(ctx, q, c, row.FlowID, row.Version)
	if err == nil && !within {
		err = errRunNotFound(id)
	}
	return &row, err
}

// lockRuns reads runs for update, in key order, with their steps. One that does not exist is left out.
func (s *Store) lockRuns(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, list []ids.ID) (map[ids.ID]*flowRun, error) {
	out := make(map[ids.ID]*flowRun, len(list))
	if len(list) == 0 {
		return out, nil
	}
	args := []any{namespace}
	for _, id := range list {
		args = append(args, id)
	}
	var rows []flowRunRow
	err := tx.SelectContext(ctx, &rows, "SELECT "+flowRunColumns+" FROM flow_runs FORCE INDEX (PRIMARY) WHERE namespace_id = ? AND id IN ("+marks(len(list))+") ORDER BY id FOR UPDATE", args...)
	if err != nil {
		return nil, fmt.Errorf("lock %d runs: %w", len(list), err)
	}
	for _, row := range rows {
		plan, err := s.plan(ctx, tx, namespace, row.FlowID, row.Version)
		if err != nil {
			return nil, err
		}
		out[row.ID] = &flowRun{
			flowRunRow: row, plan: plan, run: &flow.Run{State: flow.State(row.State), Ending: row.ending(), Steps: make([]flow.Progress, len(plan.Steps))},
			failures: map[int]*task.Failure{}, tasks: map[int]ids.ID{},
		}
	}
	var steps []struct {
		RunID ids.ID `db:"run_id"`
		Step  int    `db:"step"`
		State string `db:"state"`
		Try   int    `db:"try_number"`
	}
	err = tx.SelectContext(ctx, &steps, "SELECT run_id, step, state, try_number FROM flow_steps WHERE namespace_id = ? AND run_id IN ("+marks(len(list))+")", args...)
	if err != nil {
		return nil, fmt.Errorf("read steps of %d runs: %w", len(list), err)
	}
	for _, st := range steps {
		out[st.RunID].run.Steps[st.Step] = flow.Progress{State: flow.StepState(st.State), Try: st.Try}
	}
	for _, r := range out {
		r.before = slices.Clone(r.run.Steps)
	}
	return out, nil
}

// StartFlow begins a run of a version, the newest by default, and submits the steps that depend on
// nothing. A retired queue is RESOURCE_RETIRED with the path of its step. A full quota is no error: the
// run waits for room.
func (s *Store) StartFlow(ctx context.Context, w Write, id ids.ID, start flow.Start) (Receipt, error) {
	labels := start.LabelsJSON()
	fingerprint, err := Fingerprint("flow.start", id, start.Version, string(start.Input), string(labels))
	if err != nil {
		return Receipt{}, err
	}
	var quotas queuedQuotas
	version := 0
	check := func(tx *sqlx.Tx) error {
		row, err := readFlow(ctx, tx, w.Caller, id, "")
		if err != nil {
			return err
		}
		version = row.Version
		if start.Version != 0 {
			version = start.Version
			if within, err := versionInScope(ctx, tx, w.Caller, id, version); err != nil || !within {
				return errors.Join(err, errVersionNotFound(id, version))
			}
		}
		quotas, err = lockQueuedQuotas(ctx, tx, w.Caller.NamespaceID, w.Caller.ApplicationID)
		return err
	}
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		namespace := w.Caller.NamespaceID
		plan, err := s.plan(ctx, tx, namespace, id, version)
		if err != nil {
			return nil, auditRow{}, err
		}
		if err := lockPlanQueues(ctx, tx, namespace, plan); err != nil {
			return nil, auditRow{}, err
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return nil, auditRow{}, err
		}
		r := &flowRun{
			flowRunRow: flowRunRow{
				ID: ids.New(), FlowID: id, Version: version, ApplicationID: w.Caller.ApplicationID, CredentialID: w.Caller.CredentialID,
				State: string(flow.Running), Revision: 1, CreatedAt: now, UpdatedAt: now, Labels: labels,
			},
			plan: plan, run: flow.NewRun(plan), failures: map[int]*task.Failure{}, tasks: map[int]ids.ID{},
		}
		r.before = slices.Clone(r.run.Steps)
		if err := insertRun(ctx, tx, namespace, r, start.Input); err != nil {
			return nil, auditRow{}, err
		}
		if err := s.advance(ctx, tx, namespace, now, []*flowRun{r}, quotas); err != nil {
			return nil, auditRow{}, err
		}
		if err := follow(ctx, tx, namespace); err != nil {
			return nil, auditRow{}, err
		}
		snapshot, err := r.record().AppendJSON(nil)
		return snapshot, auditRow{Action: "flow.start", ResourceKind: "run", ResourceID: r.ID}, err
	})
}

func insertRun(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, r *flowRun, input []byte) error {
	_, err := tx.ExecContext(ctx, `
INSERT INTO flow_runs (namespace_id, id, flow_id, version, application_id, credential_id, state, live, revision, created_at, updated_at, labels, input)
VALUES (?, ?, ?, ?, ?, ?, 'RUNNING', 1, 1, ?, ?, ?, ?)`,
		namespace, r.ID, r.FlowID, r.Version, r.ApplicationID, r.CredentialID, r.CreatedAt, r.UpdatedAt, r.Labels, input)
	if err != nil {
		return fmt.Errorf("insert run: %w", err)
	}
	args := make([]any, 0, 3*len(r.before))
	for i := range r.before {
		args = append(args, namespace, r.ID, i)
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO flow_steps (namespace_id, run_id, step, state, try_number) VALUES "+
		tuples("(?, ?, ?, 'WAITING', 1)", len(r.before)), args...)
	if err != nil {
		return fmt.Errorf("insert steps of run %s: %w", r.ID, err)
	}
	return nil
}

// CommandRun pauses, resumes or cancels a run. A state that does not allow it, or another revision
// than the expected one, is STATE_CONFLICT.
func (s *Store) CommandRun(ctx context.Context, w Write, id ids.ID, kind flow.Kind, cmd flow.Command) (Receipt, error) {
	return s.commandRun(ctx, w, id, "run."+string(kind), cmd, func(context.Context, *sqlx.Tx, *flow.Plan) (flow.Event, error) {
		return flow.Event{Kind: kind}, nil
	})
}

// RetryStep gives a FAILED or CANCELLED step another try, and with it the steps that were cancelled or
// skipped; a run that had ended goes on. A queue that was retired since is RESOURCE_RETIRED.
func (s *Store) RetryStep(ctx context.Context, w Write, id ids.ID, step string, cmd flow.Command) (Receipt, error) {
	return s.commandRun(ctx, w, id, "run.retry "+step, cmd, func(ctx context.Context, tx *sqlx.Tx, plan *flow.Plan) (flow.Event, error) {
		return flow.Event{Kind: flow.Retry, Step: plan.Index(step)}, lockPlanQueues(ctx, tx, w.Caller.NamespaceID, plan)
	})
}

// commandRun does what all commands on a run have in common; prepare makes the event and takes the
// locks that come before the run's.
func (s *Store) commandRun(ctx context.Context, w Write, id ids.ID, operation string, cmd flow.Command,
	prepare func(ctx context.Context, tx *sqlx.Tx, plan *flow.Plan) (flow.Event, error),
) (Receipt, error) {
	fingerprint, err := Fingerprint(operation, id, cmd)
	if err != nil {
		return Receipt{}, err
	}
	action, step, onStep := strings.Cut(operation, " ")
	var quotas queuedQuotas
	var plan *flow.Plan
	check := func(tx *sqlx.Tx) error {
		row, err := readRun(ctx, tx, w.Caller, id)
		if err != nil {
			return err
		}
		if plan, err = s.plan(ctx, tx, w.Caller.NamespaceID, row.FlowID, row.Version); err != nil {
			return err
		}
		if onStep && plan.Index(step) < 0 {
			return errs.New(errs.NotFound, "run %s has no step %q", id, step)
		}
		quotas, err = lockQueuedQuotas(ctx, tx, w.Caller.NamespaceID, row.ApplicationID)
		return err
	}
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		namespace := w.Caller.NamespaceID
		event, err := prepare(ctx, tx, plan)
		if err != nil {
			return nil, auditRow{}, err
		}
		locked, err := s.lockRuns(ctx, tx, namespace, []ids.ID{id})
		if err != nil {
			return nil, auditRow{}, err
		}
		r := locked[id]
		if cmd.ExpectedRevision != nil && r.Revision != uint64(*cmd.ExpectedRevision) {
			return nil, auditRow{}, errRevision("run", id, r.Revision, *cmd.ExpectedRevision)
		}
		if err := r.apply(event); err != nil {
			return nil, auditRow{}, errs.New(errs.StateConflict, "run %s: %v", id, err)
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return nil, auditRow{}, err
		}
		wasFinal := r.FinishedAt != nil
		if err := s.advance(ctx, tx, namespace, now, []*flowRun{r}, quotas); err != nil {
			return nil, auditRow{}, err
		}
		if wasFinal {
			if err := follow(ctx, tx, namespace); err != nil {
				return nil, auditRow{}, err
			}
		}
		snapshot, err := r.record().AppendJSON(nil)
		return snapshot, auditRow{Action: action, ResourceKind: "run", ResourceID: id, Detail: commandDetail(step, cmd.Reason)}, err
	})
}
