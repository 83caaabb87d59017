package store

import (
	"context"
	"fmt"
	"strings"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// RetiredQueues returns those of the queues that are retired, each with its RESOURCE_RETIRED, in one
// query; none for no queues.
func (s *Store) RetiredQueues(ctx context.Context, queues []ReadyQueue) (map[ReadyQueue]error, error) {
	if len(queues) == 0 {
		return nil, nil
	}
	args := make([]any, 0, 2*len(queues))
	for _, q := range queues {
		args = append(args, q.NamespaceID, q.QueueID)
	}
	var rows []struct {
		NamespaceID ids.ID `db:"namespace_id"`
		queueRow
	}
	where := strings.TrimSuffix(strings.Repeat("(namespace_id = ? AND id = ?) OR ", len(queues)), " OR ")
	err := s.db.SelectContext(ctx, &rows, "SELECT namespace_id, id, retired_at FROM queues WHERE retired_at IS NOT NULL AND ("+where+")", args...)
	if err != nil {
		return nil, classify(fmt.Errorf("look for retired queues among %d: %w", len(queues), err))
	}
	out := make(map[ReadyQueue]error, len(rows))
	for _, r := range rows {
		out[ReadyQueue{r.NamespaceID, r.ID}] = r.queue().Refuse()
	}
	return out, nil
}
