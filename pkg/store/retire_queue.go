package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
)

const retireQueueSQL = `
UPDATE queues SET paused = 1, retired_at = UTC_TIMESTAMP(6), revision = revision + 1, updated_at = UTC_TIMESTAMP(6)
WHERE namespace_id = ? AND id = ? AND revision = ? AND retired_at IS NULL`

// RetireQueue ends a queue in the caller's scope for good (R7.2). Application quota, receipt and
// queue are locked in this order, the queue exclusively: whatever makes something that depends on it
// holds its row shared, so nothing comes while this looks. RESOURCE_BUSY names all that is in the
// way; retired already is RESOURCE_RETIRED, another revision STATE_CONFLICT. A refusal changes nothing.
func (s *Store) RetireQueue(ctx context.Context, w Write, id ids.ID, cmd queue.Retire) (Receipt, error) {
	fingerprint, err := Fingerprint("queue.retire", id, cmd)
	if err != nil {
		return Receipt{}, err
	}
	check := func(tx *sqlx.Tx) error {
		if _, err := scopedQueue(ctx, tx, w.Caller, id); err != nil {
			return err
		}
		return lockQuota(ctx, tx, w.Caller)
	}
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		namespace := w.Caller.NamespaceID
		row, err := lockUnused(ctx, tx, namespace, id, cmd)
		if err != nil {
			return nil, auditRow{}, err
		}
		res, err := tx.ExecContext(ctx, retireQueueSQL, namespace, id, row.Revision)
		if err := changed(res, err, 1, "retire queue "+id.String()); err != nil {
			return nil, auditRow{}, err
		}
		if row, err = readQueue(ctx, tx, namespace, id, ""); err != nil {
			return nil, auditRow{}, err
		}
		snapshot, err := json.Marshal(row.queue())
		return snapshot, auditRow{Action: "queue.retire", ResourceKind: "queue", ResourceID: id, Detail: reasonDetail(cmd.Reason)}, err
	})
}

// lockQuota locks the application's limits where it has some.
func lockQuota(ctx context.Context, tx *sqlx.Tx, c *access.Caller) error {
	var one int
	err := tx.GetContext(ctx, &one, "SELECT 1 FROM application_quotas WHERE namespace_id = ? AND application_id = ?"+forUpdate, c.NamespaceID, c.ApplicationID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("lock quota of application %s: %w", c.ApplicationID, err)
	}
	return nil
}

// lockUnused returns the queue, locked exclusively, once nothing depends on it. The first look takes
// no lock, so that a refusal delays nobody's submit.
func lockUnused(ctx context.Context, tx *sqlx.Tx, namespace, id ids.ID, cmd queue.Retire) (row *queueRow, err error) {
	for _, lock := range []string{"", forUpdate} {
		if row, err = liveQueue(ctx, tx, namespace, id, lock); err != nil {
			return nil, err
		}
		if row.Revision != uint64(*cmd.ExpectedRevision) {
			return nil, errRevision("queue", id, row.Revision, *cmd.ExpectedRevision)
		}
		if err := refuseUsed(ctx, tx, namespace, id); err != nil {
			return nil, err
		}
	}
	return row, nil
}

// dependants are counted in one statement, so in one snapshot: a task that moves from one state to
// another meanwhile is seen in one of them.
var dependants = []struct{ from, one, many string }{
	{"tasks FORCE INDEX (tasks_state) WHERE namespace_id = ? AND queue_id = ? AND state = 'QUEUED'", "QUEUED task", "QUEUED tasks"},
	{"tasks FORCE INDEX (tasks_state) WHERE namespace_id = ? AND queue_id = ? AND state = 'RUNNING'", "RUNNING task", "RUNNING tasks"},
	{"tasks FORCE INDEX (tasks_state) WHERE namespace_id = ? AND queue_id = ? AND state = 'NEEDS_REVIEW'", "NEEDS_REVIEW task", "NEEDS_REVIEW tasks"},
	{"permits WHERE namespace_id = ? AND queue_id = ?", "attempt in flight", "attempts in flight"},
	{"schedules FORCE INDEX (schedules_state) WHERE namespace_id = ? AND queue_id = ? AND state = 'ENABLED'", "enabled schedule", "enabled schedules"},
	{liveRunsFrom, "flow run that has not ended", "flow runs that have not ended"},
	{"subscriptions FORCE INDEX (subscriptions_active) WHERE namespace_id = ? AND retired_at IS NULL AND queue_id = ?",
		"subscription that is not retired", "subscriptions that are not retired"},
}

func refuseUsed(ctx context.Context, tx *sqlx.Tx, namespace, id ids.ID) error {
	parts, args := make([]string, len(dependants)), make([]any, 0, 2*len(dependants))
	for i, d := range dependants {
		parts[i] = fmt.Sprintf("SELECT %d AS what, COUNT(*) AS n FROM (SELECT 1 FROM %s LIMIT %d) c", i, d.from, CountLimit)
		args = append(args, namespace, id)
	}
	var counts []struct {
		What int `db:"what"`
		N    int `db:"n"`
	}
	if err := tx.SelectContext(ctx, &counts, strings.Join(parts, " UNION ALL ")+" ORDER BY what", args...); err != nil {
		return fmt.Errorf("count what uses queue %s: %w", id, err)
	}
	var busy blockers
	for _, c := range counts {
		busy.add(c.N, dependants[c.What].one, dependants[c.What].many)
	}
	return busy.refuse("queue "+id.String(), "settle, pause or retire these first")
}
