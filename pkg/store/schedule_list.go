package store

import (
	"context"
	"fmt"
	"strings"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
)

// ListSchedules returns a page of the schedules in the caller's scope, of one queue where it is given,
// newest first (ids are time-ordered), without the tasks' inputs, and where the next page begins, if
// there may be one.
func (s *Store) ListSchedules(ctx context.Context, c *access.Caller, queue *ids.ID, page Page) ([]*schedule.Schedule, *Position, error) {
	if queue != nil {
		if _, err := scopedQueue(ctx, s.db, c, *queue); err != nil {
			return nil, nil, err
		}
	}
	query, args := listSchedulesQuery(c, queue, page)
	if query == "" {
		return nil, nil, nil
	}
	var rows []*scheduleRow
	if err := s.db.SelectContext(ctx, &rows, query, args...); err != nil {
		return nil, nil, classify(fmt.Errorf("list schedules: %w", err))
	}
	var next *Position
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = &Position{ID: rows[page.Limit-1].ID}
	}
	out, err := withVersions(ctx, s.db, c.NamespaceID, rows, false)
	return out, next, err
}

// listSchedulesQuery reads one queue, the namespace, or for a credential with a list of queues a page of
// each of them; "" for an empty list.
func listSchedulesQuery(c *access.Caller, queue *ids.ID, page Page) (string, []any) {
	below, tail := "", " ORDER BY id DESC LIMIT ?"
	if page.After != nil {
		below = " AND id < ?"
	}
	part := func(index, where string, values ...any) (string, []any) {
		if page.After != nil {
			values = append(values, page.After.ID)
		}
		return "SELECT " + scheduleColumns + " FROM schedules FORCE INDEX (" + index + ") WHERE " + where + below + tail, append(values, page.Limit+1)
	}
	switch {
	case queue != nil:
		return part("schedules_queue", "namespace_id = ? AND queue_id = ?", c.NamespaceID, *queue)
	case c.AllQueues:
		return part("PRIMARY", "namespace_id = ?", c.NamespaceID)
	}
	var parts []string
	var args []any
	for _, id := range c.Queues {
		query, values := part("schedules_queue", "namespace_id = ? AND queue_id = ?", c.NamespaceID, id)
		parts, args = append(parts, "("+query+")"), append(args, values...)
	}
	if len(parts) == 0 {
		return "", nil
	}
	return strings.Join(parts, " UNION ALL ") + tail, append(args, page.Limit+1)
}
