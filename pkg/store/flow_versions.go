package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

func insertFlowVersion(ctx context.Context, tx *sqlx.Tx, w Write, id ids.ID, version int, plan *flow.Plan, steps []byte) error {
	digest := sha256.Sum256(steps)
	_, err := tx.ExecContext(ctx, `INSERT INTO flow_versions (namespace_id, flow_id, version, credential_id, digest, created_at, steps)
VALUES (?, ?, ?, ?, ?, UTC_TIMESTAMP(6), ?)`, w.Caller.NamespaceID, id, version, w.Caller.CredentialID, digest[:], steps)
	if err != nil {
		return fmt.Errorf("insert version %d of flow %s: %w", version, id, err)
	}
	queues := plan.Queues()
	args := make([]any, 0, 4*len(queues))
	for _, queue := range queues {
		args = append(args, w.Caller.NamespaceID, queue, id, version)
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO flow_version_queues (namespace_id, queue_id, flow_id, version) VALUES "+tuples("(?, ?, ?, ?)", len(queues)), args...)
	if err != nil {
		return fmt.Errorf("insert queues of flow %s: %w", id, err)
	}
	return nil
}

// plans keeps definitions by their digest, so that a run's progress reads 32 bytes of them and parses
// none. The zero value is ready.
type plans struct {
	mu   sync.Mutex
	kept map[[32]byte]*flow.Plan
}

const maxPlans = 64

func (p *plans) get(digest [32]byte) *flow.Plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept[digest]
}

func (p *plans) put(digest [32]byte, plan *flow.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept == nil || len(p.kept) >= maxPlans {
		p.kept = map[[32]byte]*flow.Plan{}
	}
	p.kept[digest] = plan
}

// plan reads a published definition; a plan is never changed, so it may be shared.
func (s *Store) plan(ctx context.Context, q sqlx.QueryerContext, namespace, id ids.ID, version int) (*flow.Plan, error) {
	const where = " FROM flow_versions WHERE namespace_id = ? AND flow_id = ? AND version = ?"
	var digest []byte
	err := sqlx.GetContext(ctx, q, &digest, "SELECT digest"+where, namespace, id, version)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errVersionNotFound(id, version)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("read version %d of flow %s: %w", version, id, err))
	}
	key := [32]byte(digest)
	if plan := s.plans.get(key); plan != nil {
		return plan, nil
	}
	var steps []byte
	if err := sqlx.GetContext(ctx, q, &steps, "SELECT steps"+where, namespace, id, version); err != nil {
		return nil, classify(fmt.Errorf("read steps of flow %s: %w", id, err))
	}
	plan, err := flow.ParsePlan(steps)
	if err != nil { // it was checked when it was published
		return nil, fmt.Errorf("stored version %d of flow %s is unreadable: %s", version, id, err.Error())
	}
	s.plans.put(key, plan)
	return plan, nil
}
