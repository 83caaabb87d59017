package store

import (
	"context"
	"fmt"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// CancelledAttempt is a running attempt whose task someone wants cancelled.
type CancelledAttempt struct {
	SessionID ids.ID `db:"session_id"`
	AttemptID ids.ID `db:"attempt_id"`
	TaskID    ids.ID `db:"task_id"`
}

// CancelledAttempts lists the running attempts of one queue that are to be cancelled.
func (s *Store) CancelledAttempts(ctx context.Context, q ReadyQueue) ([]CancelledAttempt, error) {
	var out []CancelledAttempt
	err := s.db.SelectContext(ctx, &out, `
SELECT p.session_id, p.attempt_id, p.task_id FROM permits p
STRAIGHT_JOIN tasks t ON t.namespace_id = p.namespace_id AND t.id = p.task_id
WHERE p.namespace_id = ? AND p.queue_id = ? AND t.cancel_requested_at IS NOT NULL AND t.current_attempt_id = p.attempt_id`, q.NamespaceID, q.QueueID)
	if err != nil {
		return nil, classify(fmt.Errorf("look for cancels in queue %s: %w", q.QueueID, err))
	}
	return out, nil
}
