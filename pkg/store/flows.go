package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

type flowRow struct {
	ID        ids.ID    `db:"id"`
	Name      string    `db:"name"`
	Revision  uint64    `db:"revision"`
	Version   int       `db:"version"`
	CreatedAt time.Time `db:"created_at"`
	UpdatedAt time.Time `db:"updated_at"`
}

const flowColumns = `f.id, f.name, f.revision, f.version, f.created_at, f.updated_at`

func (r *flowRow) flow() *flow.Flow {
	return &flow.Flow{ID: r.ID, Name: r.Name, Revision: ids.Counter(r.Revision), Version: r.Version, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
}

func errFlowNotFound(id ids.ID) error {
	return errs.New(errs.NotFound, "flow %s does not exist here", id)
}

// readFlow returns a flow whose newest version uses only queues in the caller's scope, else NOT_FOUND.
func readFlow(ctx context.Context, q sqlx.QueryerContext, c *access.Caller, id ids.ID, lock string) (*flowRow, error) {
	var row flowRow
	err := sqlx.GetContext(ctx, q, &row, "SELECT "+flowColumns+" FROM flows f WHERE f.namespace_id = ? AND f.id = ?"+lock, c.NamespaceID, id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errFlowNotFound(id)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("read flow %s: %w", id, err))
	}
	within, err := versionInScope(ctx, q, c, id, row.Version)
	if err == nil && !within {
		err = errFlowNotFound(id)
	}
	return &row, err
}

// versionInScope reports whether a version exists and the caller may use the queues of all its steps.
func versionInScope(ctx context.Context, q sqlx.QueryerContext, c *access.Caller, id ids.ID, version int) (bool, error) {
	var queues []ids.ID
	err := sqlx.SelectContext(ctx, q, &queues,
		"SELECT queue_id FROM flow_version_queues WHERE namespace_id = ? AND flow_id = ? AND version = ?", c.NamespaceID, id, version)
	if err != nil {
		return false, classify(fmt.Errorf("read queues of flow %s: %w", id, err))
	}
	return len(queues) > 0 && !slices.ContainsFunc(queues, func(queue ids.ID) bool { return !c.MayUse(queue) }), nil
}

// GetFlow returns a flow in the caller's scope, else NOT_FOUND.
func (s *Store) GetFlow(ctx context.Context, c *access.Caller, id ids.ID) (*flow.Flow, error) {
	row, err := readFlow(ctx, s.db, c, id, "")
	if err != nil {
		return nil, err
	}
	return row.flow(), nil
}

// GetFlowVersion returns a definition in the caller's scope, else NOT_FOUND.
func (s *Store) GetFlowVersion(ctx context.Context, c *access.Caller, id ids.ID, version int) (*flow.Version, error) {
	within, err := versionInScope(ctx, s.db, c, id, version)
	if err != nil {
		return nil, err
	}
	if !within {
		return nil, errVersionNotFound(id, version)
	}
	var row struct {
		CreatedAt time.Time `db:"created_at"`
		Steps     []byte    `db:"steps"`
	}
	err = s.db.GetContext(ctx, &row, "SELECT created_at, steps FROM flow_versions WHERE namespace_id = ? AND flow_id = ? AND version = ?", c.NamespaceID, id, version)
	if err != nil {
		return nil, classify(fmt.Errorf("read version %d of flow %s: %w", version, id, err))
	}
	return &flow.Version{FlowID: id, Version: version, CreatedAt: row.CreatedAt, Steps: row.Steps}, nil
}

func errVersionNotFound(id ids.ID, version int) error {
	return errs.New(errs.NotFound, "flow %s has no version %d here", id, version)
}

// ListFlows returns the flows in the caller's scope, newest id first, and where the next page begins.
func (s *Store) ListFlows(ctx context.Context, c *access.Caller, page Page) ([]*flow.Flow, *Position, error) {
	query, args := "SELECT "+flowColumns+" FROM flows f FORCE INDEX (PRIMARY) WHERE f.namespace_id = ?", []any{c.NamespaceID}
	if !c.AllQueues {
		query += ` AND NOT EXISTS (SELECT 1 FROM flow_version_queues v FORCE INDEX (flow_version_queues_version)
WHERE v.namespace_id = f.namespace_id AND v.flow_id = f.id AND v.version = f.version`
		if len(c.Queues) > 0 {
			query += " AND v.queue_id NOT IN (" + marks(len(c.Queues)) + ")"
		}
		query += ")"
		for _, id := range c.Queues {
			args = append(args, id)
		}
	}
	if page.After != nil {
		query += " AND f.id < ?"
		args = append(args, page.After.ID)
	}
	var rows []flowRow
	if err := s.db.SelectContext(ctx, &rows, query+" ORDER BY f.id DESC LIMIT ?", append(args, page.Limit+1)...); err != nil {
		return nil, nil, classify(fmt.Errorf("list flows: %w", err))
	}
	var next *Position
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = &Position{ID: rows[page.Limit-1].ID}
	}
	out := make([]*flow.Flow, len(rows))
	for i := range rows {
		out[i] = rows[i].flow()
	}
	return out, next, nil
}

// CreateFlow publishes version 1 of a new flow. A queue outside the caller's scope is NOT_FOUND, a
// retired one RESOURCE_RETIRED, each with the path of its step; a used name is STATE_CONFLICT.
func (s *Store) CreateFlow(ctx context.Context, w Write, name string, plan *flow.Plan) (Receipt, error) {
	steps, err := plan.JSON()
	if err != nil {
		return Receipt{}, err
	}
	fingerprint, err := Fingerprint("flow.create", name, string(steps))
	if err != nil {
		return Receipt{}, err
	}
	check := func(tx *sqlx.Tx) error { return checkPlanScope(ctx, tx, w.Caller, plan) }
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		if err := lockPlanQueues(ctx, tx, w.Caller.NamespaceID, plan); err != nil {
			return nil, auditRow{}, err
		}
		id := ids.New()
		_, err := tx.ExecContext(ctx, `INSERT INTO flows (namespace_id, id, name, revision, version, created_at, updated_at)
VALUES (?, ?, ?, 1, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))`, w.Caller.NamespaceID, id, []byte(name))
		if isDuplicate(err) {
			return nil, auditRow{}, errs.New(errs.StateConflict, "name: a flow named %q exists in this namespace; publish a new version of it", name)
		}
		if err != nil {
			return nil, auditRow{}, fmt.Errorf("insert flow: %w", err)
		}
		if err := insertFlowVersion(ctx, tx, w, id, 1, plan, steps); err != nil {
			return nil, auditRow{}, err
		}
		return flowSnapshot(ctx, tx, w.Caller, id, auditRow{Action: "flow.create"})
	})
}

// PublishFlow adds a version; runs that have begun keep theirs.
func (s *Store) PublishFlow(ctx context.Context, w Write, id ids.ID, cmd flow.Publish, plan *flow.Plan) (Receipt, error) {
	steps, err := plan.JSON()
	if err != nil {
		return Receipt{}, err
	}
	fingerprint, err := Fingerprint("flow.publish", id, cmd.ExpectedRevision, cmd.Reason, string(steps))
	if err != nil {
		return Receipt{}, err
	}
	check := func(tx *sqlx.Tx) error {
		if _, err := readFlow(ctx, tx, w.Caller, id, ""); err != nil {
			return err
		}
		return checkPlanScope(ctx, tx, w.Caller, plan)
	}
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		if err := lockPlanQueues(ctx, tx, w.Caller.NamespaceID, plan); err != nil {
			return nil, auditRow{}, err
		}
		row, err := readFlow(ctx, tx, w.Caller, id, forUpdate)
		if err != nil {
			return nil, auditRow{}, err
		}
		if row.Revision != uint64(*cmd.ExpectedRevision) {
			return nil, auditRow{}, errRevision("flow", id, row.Revision, *cmd.ExpectedRevision)
		}
		if row.Version >= flow.MaxVersion {
			return nil, auditRow{}, errs.New(errs.StateConflict, "flow %s has %d versions, the most there can be", id, row.Version)
		}
		res, err := tx.ExecContext(ctx, `UPDATE flows SET revision = revision + 1, version = version + 1, updated_at = UTC_TIMESTAMP(6)
WHERE namespace_id = ? AND id = ? AND revision = ?`, w.Caller.NamespaceID, id, row.Revision)
		if err := changed(res, err, 1, "publish flow "+id.String()); err != nil {
			return nil, auditRow{}, err
		}
		if err := insertFlowVersion(ctx, tx, w, id, row.Version+1, plan, steps); err != nil {
			return nil, auditRow{}, err
		}
		return flowSnapshot(ctx, tx, w.Caller, id, auditRow{Action: "flow.publish", Detail: reasonDetail(cmd.Reason)})
	})
}

func flowSnapshot(ctx context.Context, tx *sqlx.Tx, c *access.Caller, id ids.ID, audit auditRow) ([]byte, auditRow, error) {
	row, err := readFlow(ctx, tx, c, id, "")
	if err != nil {
		return nil, auditRow{}, err
	}
	audit.ResourceKind, audit.ResourceID = "flow", id
	snapshot, err := json.Marshal(row.flow())
	return snapshot, audit, err
}

// checkPlanScope names the path of a queue that does not exist for the caller.
func checkPlanScope(ctx context.Context, tx *sqlx.Tx, c *access.Caller, plan *flow.Plan) error {
	for _, id := range plan.Queues() {
		if _, err := scopedQueue(ctx, tx, c, id); err != nil {
			return atPath(err, plan, id)
		}
	}
	return nil
}

// lockPlanQueues takes the queues' rows shared, in key order, so that this is serial with their
// retirement (R7.2).
func lockPlanQueues(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, plan *flow.Plan) error {
	for _, id := range plan.Queues() {
		if _, err := liveQueue(ctx, tx, namespace, id, forShare); err != nil {
			return atPath(err, plan, id)
		}
	}
	return nil
}

// atPath puts the path of the step that uses a queue before what is wrong with it.
func atPath(err error, plan *flow.Plan, queue ids.ID) error {
	var known *errs.Error
	if !errors.As(err, &known) || known.Kind != errs.NotFound && known.Kind != errs.ResourceRetired {
		return err
	}
	return errs.Wrap(known.Kind, known.Cause, "%s: %s", plan.PathOf(queue), known.Message)
}
