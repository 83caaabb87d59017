package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// lockQueuedQuota returns the application's queued limit, 0 for none, and locks it where there is
// one: submits of a limited application are serial, all others share nothing (R8.8).
func lockQueuedQuota(ctx context.Context, tx *sqlx.Tx, c *access.Caller) (int, error) {
	const query = "SELECT queued_limit FROM application_quotas WHERE namespace_id = ? AND application_id = ?"
	for _, lock := range []string{"", forUpdate} {
		var limit int
		err := tx.GetContext(ctx, &limit, query+lock, c.NamespaceID, c.ApplicationID)
		if errors.Is(err, sql.ErrNoRows) || err == nil && limit == 0 {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("read quota of application %s: %w", c.ApplicationID, err)
		}
		if lock == forUpdate {
			return limit, nil
		}
	}
	return 0, nil
}

// checkQueued refuses n more tasks beyond the limit.
func checkQueued(ctx context.Context, tx *sqlx.Tx, c *access.Caller, limit, n int) error {
	if limit == 0 {
		return nil
	}
	queued, err := countQueued(ctx, tx, c, limit)
	if err != nil {
		return err
	}
	if queued+n > limit {
		return errs.New(errs.CapacityExceeded, "application %s has %d queued tasks, its limit is %d", c.ApplicationID, queued, limit)
	}
	return nil
}

// queuedRoom locks the application's queued limit and returns how many more tasks it may queue.
func queuedRoom(ctx context.Context, tx *sqlx.Tx, c *access.Caller) (int, error) {
	limit, err := lockQueuedQuota(ctx, tx, c)
	if err != nil {
		return 0, err
	}
	if limit == 0 {
		return math.MaxInt, nil
	}
	queued, err := countQueued(ctx, tx, c, limit)
	return max(limit-queued, 0), err
}

// countQueued counts index entries, at most one more than limit of them.
func countQueued(ctx context.Context, tx *sqlx.Tx, c *access.Caller, limit int) (int, error) {
	var queued int
	err := tx.GetContext(ctx, &queued, `
SELECT COUNT(*) FROM (SELECT 1 FROM ready_tasks FORCE INDEX (ready_tasks_application) WHERE namespace_id = ? AND application_id = ? LIMIT ?) q`,
		c.NamespaceID, c.ApplicationID, limit+1)
	if err != nil {
		return 0, fmt.Errorf("count queued tasks of application %s: %w", c.ApplicationID, err)
	}
	return queued, nil
}

// runningQuotas is the room of each application of the namespace that has a running limit.
type runningQuotas map[ids.ID]int

// lockRunningQuotas locks the limits in force, if any, in key order.
func lockRunningQuotas(ctx context.Context, tx *sqlx.Tx, namespace ids.ID) (runningQuotas, error) {
	var limits []struct {
		ApplicationID ids.ID `db:"application_id"`
		Limit         int    `db:"running_limit"`
	}
	for _, lock := range []string{"", forUpdate} { // without limits, nothing is locked
		err := tx.SelectContext(ctx, &limits, "SELECT application_id, running_limit FROM application_quotas WHERE namespace_id = ? AND running_limit > 0 ORDER BY application_id"+lock, namespace)
		if err != nil {
			return nil, fmt.Errorf("read quotas: %w", err)
		}
		if len(limits) == 0 {
			return nil, nil
		}
		if lock == "" {
			limits = nil
		}
	}
	room := make(runningQuotas, len(limits))
	for _, l := range limits {
		var running int
		err := tx.GetContext(ctx, &running, "SELECT COUNT(*) FROM permits WHERE namespace_id = ? AND application_id = ?", namespace, l.ApplicationID)
		if err != nil {
			return nil, fmt.Errorf("count permits of application %s: %w", l.ApplicationID, err)
		}
		room[l.ApplicationID] = max(l.Limit-running, 0)
	}
	return room, nil
}

// full lists the applications that may start nothing now.
func (q runningQuotas) full() []any {
	var out []any
	for id, room := range q {
		if room == 0 {
			out = append(out, id)
		}
	}
	return out
}

// admit keeps, in order, the rows that their application has room for.
func (q runningQuotas) admit(rows []readyRow) []readyRow {
	if len(q) == 0 {
		return rows
	}
	kept := rows[:0]
	for _, r := range rows {
		room, limited := q[r.ApplicationID]
		if limited && room == 0 {
			continue
		}
		if limited {
			q[r.ApplicationID] = room - 1
		}
		kept = append(kept, r)
	}
	return kept
}

// SetQuota sets an application's limits, 0 for none; an operator's command.
func (s *Store) SetQuota(ctx context.Context, namespace, application ids.ID, queued, running int) error {
	return s.InTx(ctx, func(tx *sqlx.Tx) error {
		var known int
		if err := tx.GetContext(ctx, &known, "SELECT COUNT(*) FROM applications WHERE namespace_id = ? AND id = ?", namespace, application); err != nil {
			return fmt.Errorf("read application %s: %w", application, err)
		}
		if known == 0 {
			return errs.New(errs.NotFound, "application %s does not exist in namespace %s", application, namespace)
		}
		_, err := tx.ExecContext(ctx, `
INSERT INTO application_quotas (namespace_id, application_id, queued_limit, running_limit) VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE queued_limit = VALUES(queued_limit), running_limit = VALUES(running_limit)`, namespace, application, queued, running)
		if err != nil {
			return fmt.Errorf("set quota of application %s: %w", application, err)
		}
		detail := fmt.Appendf(nil, `{"queued_limit":%d,"running_limit":%d}`, queued, running)
		return insertOperatorAudit(ctx, tx, namespace, auditRow{Action: "application.quota", ResourceKind: "application", ResourceID: application, Detail: detail})
	})
}

// SetQuotaByName is SetQuota for an application known by its names.
func (s *Store) SetQuotaByName(ctx context.Context, namespace, application string, queued, running int) error {
	if queued < 0 || running < 0 {
		return errs.Invalid("quota", "must be 0 (no limit) or more")
	}
	var row struct {
		Namespace   ids.ID `db:"namespace_id"`
		Application ids.ID `db:"id"`
	}
	err := s.db.GetContext(ctx, &row, "SELECT a.namespace_id, a.id FROM namespaces n JOIN applications a ON a.namespace_id = n.id AND a.name = ? WHERE n.name = ?",
		[]byte(application), []byte(namespace))
	if errors.Is(err, sql.ErrNoRows) {
		return errs.New(errs.NotFound, "application %q does not exist in namespace %q", application, namespace)
	}
	if err != nil {
		return classify(fmt.Errorf("read application %q: %w", application, err))
	}
	return s.SetQuota(ctx, row.Namespace, row.Application, queued, running)
}
