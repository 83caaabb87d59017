package store

import (
	"context"
	"fmt"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// Generation returns the random id of the namespace's log; it is made with the namespace and
// changed by an operator after a restore. What is derived from it is the same on every replica and
// void after a restore.
func (s *Store) Generation(ctx context.Context, namespace ids.ID) (ids.ID, error) {
	var id ids.ID
	if err := s.db.GetContext(ctx, &id, "SELECT generation FROM result_streams WHERE namespace_id = ?", namespace); err != nil {
		return id, classify(fmt.Errorf("read generation of namespace %s: %w", namespace, err))
	}
	return id, nil
}
