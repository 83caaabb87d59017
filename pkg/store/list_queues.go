package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
)

const listQueuesSQL = `SELECT ` + queueColumns + `
FROM queues WHERE namespace_id = ?`

// ListQueues returns the queues in the caller's scope, newest id first (ids are time-ordered), and
// where the next page begins, if there may be one. It reads at most limit + 1 rows.
func (s *Store) ListQueues(ctx context.Context, c *access.Caller, page Page) ([]*queue.Queue, *Position, error) {
	query, args := listQueuesSQL, []any{c.NamespaceID}
	if c.AllQueues {
		if page.After != nil {
			query += " AND id < ?"
			args = append(args, page.After.ID)
		}
	} else {
		scope := scopePage(c.Queues, page)
		if len(scope) == 0 {
			return nil, nil, nil
		}
		query += " AND id IN (" + marks(len(scope)) + ")"
		for _, id := range scope {
			args = append(args, id)
		}
	}
	var rows []queueRow
	if err := s.db.SelectContext(ctx, &rows, query+" ORDER BY id DESC LIMIT ?", append(args, page.Limit+1)...); err != nil {
		return nil, nil, classify(fmt.Errorf("list queues: %w", err))
	}
	var next *Position
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = &Position{ID: rows[page.Limit-1].ID}
	}
	out := make([]*queue.Queue, len(rows))
	for i := range rows {
		out[i] = rows[i].queue()
	}
	return out, next, nil
}

// scopePage picks the ids of one page, and one more, out of a credential's list.
func scopePage(scope []ids.ID, page Page) []ids.ID {
	sorted := slices.Clone(scope)
	slices.SortFunc(sorted, func(a, b ids.ID) int { return bytes.Compare(b[:], a[:]) })
	if page.After != nil {
		start := slices.IndexFunc(sorted, func(id ids.ID) bool { return bytes.Compare(id[:], page.After.ID[:]) < 0 })
		if start < 0 {
			return nil
		}
		sorted = sorted[start:]
	}
	return sorted[:min(len(sorted), page.Limit+1)]
}
