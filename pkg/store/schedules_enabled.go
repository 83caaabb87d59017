package store

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

const enabledSchedulesSQL = `
SELECT COUNT(*) FROM schedules FORCE INDEX (schedules_state) WHERE namespace_id = ? AND queue_id = ? AND state = 'ENABLED'`

// enabledSchedulesOf counts the schedules that would fire into a queue (R7.2). Under the queue's
// exclusive lock the number stays true: create, publish and resume hold the queue's row shared.
func enabledSchedulesOf(ctx context.Context, tx *sqlx.Tx, namespace, queue ids.ID) (int, error) {
	var n int
	if err := tx.GetContext(ctx, &n, enabledSchedulesSQL, namespace, queue); err != nil {
		return 0, fmt.Errorf("count enabled schedules of queue %s: %w", queue, err)
	}
	return n, nil
}
