package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// RunForOperator returns a run of any namespace with its steps; NOT_FOUND if there is none.
func (s *Store) RunForOperator(ctx context.Context, namespace, id ids.ID) (*flow.RunRecord, error) {
	var row flowRunRow
	err := s.db.GetContext(ctx, &row, "SELECT "+flowRunColumns+" FROM flow_runs WHERE namespace_id = ? AND id = ?", namespace, id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errRunNotFound(id)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("read run %s: %w", id, err))
	}
	return s.wholeRun(ctx, namespace, &row)
}

// RunOverview is one run that has not ended.
type RunOverview struct {
	Namespace   string `db:"namespace"`
	NamespaceID ids.ID `db:"namespace_id"`
	ID          ids.ID `db:"id"`
	Flow        string `db:"name"`
	Version     int    `db:"version"`
	State       string `db:"state"`
}

// RunOverviews lists live runs of the namespaces that have some; for operators.
func (s *Store) RunOverviews(ctx context.Context) ([]RunOverview, error) {
	var out []RunOverview
	err := s.db.SelectContext(ctx, &out, `
SELECT n.name AS namespace, r.namespace_id, r.id, f.name, r.version, r.state
FROM flow_progress p FORCE INDEX (flow_progress_live) STRAIGHT_JOIN flow_runs r FORCE INDEX (flow_runs_live) ON r.namespace_id = p.namespace_id AND r.live = 1
STRAIGHT_JOIN flows f ON f.namespace_id = r.namespace_id AND f.id = r.flow_id STRAIGHT_JOIN namespaces n ON n.id = r.namespace_id
WHERE p.live = 1 LIMIT ?`, overviewRows)
	if err != nil {
		return nil, classify(fmt.Errorf("read live runs: %w", err))
	}
	return out, nil
}
