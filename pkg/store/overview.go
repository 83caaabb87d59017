package store

import (
	"context"
	"fmt"
	"strings"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// CountLimit is where an overview stops counting and says "or more".
const CountLimit = 10_000

// QueueOverview is how one queue stands.
type QueueOverview struct {
	Namespace   string `db:"namespace"`
	NamespaceID ids.ID `db:"namespace_id"`
	ID          ids.ID `db:"id"`
	Name        string `db:"name"`
	Paused      bool   `db:"paused"`
	MaxRunning  int    `db:"max_running"`
	Retired     bool   `db:"retired"`
	Queued      int
	Running     int
	Review      int
}

// SubscriptionOverview is how one subscription stands; Lag counts log entries of the whole namespace, 0
// for a retired one: later entries are not its own.
type SubscriptionOverview struct {
	Namespace    string `db:"namespace"`
	ID           ids.ID `db:"id"`
	Name         string `db:"name"`
	Queue        string `db:"queue"`
	Enabled      bool   `db:"enabled"`
	Retired      bool   `db:"retired"`
	PendingCount int    `db:"pending_count"`
	MaxPending   int    `db:"max_pending"`
	Expired      int    `db:"expired"`
	Cursor       uint64 `db:"cursor_sequence"`
	Lag          uint64 `db:"behind"`
}

// overviewRows bounds each half of an overview.
const overviewRows = 200

// QueueOverviews lists the newest queues of all namespaces with bounded index counts; for operators.
func (s *Store) QueueOverviews(ctx context.Context) ([]QueueOverview, error) {
	var out []QueueOverview
	err := s.db.SelectContext(ctx, &out, `
SELECT n.name AS namespace, q.namespace_id, q.id, q.name, q.paused, q.max_running, q.retired_at IS NOT NULL AS retired
FROM queues q JOIN namespaces n ON n.id = q.namespace_id ORDER BY q.namespace_id DESC, q.id DESC LIMIT ?`, overviewRows)
	if err != nil {
		return nil, classify(fmt.Errorf("overview of queues: %w", err))
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, s.countQueues(ctx, out)
}

// queueCounts are counted with a bound each, all in one statement.
var queueCounts = []string{
	"ready_tasks WHERE namespace_id = ? AND queue_id = ?",
	"permits WHERE namespace_id = ? AND queue_id = ?",
	"tasks FORCE INDEX (tasks_state) WHERE namespace_id = ? AND queue_id = ? AND state = 'NEEDS_REVIEW'",
}

func (s *Store) countQueues(ctx context.Context, queues []QueueOverview) error {
	var parts []string
	var args []any
	for i, q := range queues {
		for k, from := range queueCounts {
			parts = append(parts, fmt.Sprintf("SELECT %d AS at, %d AS what, COUNT(*) AS n FROM (SELECT 1 FROM %s LIMIT %d) c", i, k, from, CountLimit))
			args = append(args, q.NamespaceID, q.ID)
		}
	}
	var counts []struct {
		At   int `db:"at"`
		What int `db:"what"`
		N    int `db:"n"`
	}
	if err := s.db.SelectContext(ctx, &counts, strings.Join(parts, " UNION ALL "), args...); err != nil {
		return classify(fmt.Errorf("count tasks of %d queues: %w", len(queues), err))
	}
	for _, c := range counts {
		q := &queues[c.At]
		*[]*int{&q.Queued, &q.Running, &q.Review}[c.What] = c.N
	}
	return nil
}

// SubscriptionOverviews lists the newest subscriptions of all namespaces; for operators.
func (s *Store) SubscriptionOverviews(ctx context.Context) ([]SubscriptionOverview, error) {
	var out []SubscriptionOverview
	err := s.db.SelectContext(ctx, &out, `
SELECT n.name AS namespace, s.id, s.name, q.name AS queue, s.enabled, s.pending_count, s.max_pending, s.cursor_sequence,
  s.retired_at IS NOT NULL AS retired, IF(s.retired_at IS NULL, r.head, s.retired_sequence) - s.cursor_sequence AS behind,
  (SELECT COUNT(*) FROM deliveries d FORCE INDEX (deliveries_state) WHERE d.namespace_id = s.namespace_id AND d.subscription_id = s.id AND d.state = 'EXPIRED') AS expired
FROM subscriptions s
JOIN namespaces n ON n.id = s.namespace_id
JOIN queues q ON q.namespace_id = s.namespace_id AND q.id = s.queue_id
JOIN result_streams r ON r.namespace_id = s.namespace_id
ORDER BY s.namespace_id DESC, s.id DESC LIMIT ?`, overviewRows)
	if err != nil {
		return nil, classify(fmt.Errorf("overview of subscriptions: %w", err))
	}
	return out, nil
}
