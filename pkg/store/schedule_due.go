package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
)

const dueSchedulesSQL = `
SELECT namespace_id, id FROM schedules FORCE INDEX (schedules_due)
WHERE next_at <= UTC_TIMESTAMP(6)
ORDER BY next_at, namespace_id, id LIMIT ?`

const (
	// dueWindow is how many batches a look at the index covers: replicas take random ones of them, so
	// that they seldom meet.
	dueWindow = 4
	// firingNamespaces is how many namespaces' transactions run at once; they share the commits' flushes.
	firingNamespaces = 4
	// firingIdle is after how many seconds the server gives up a transaction whose client says nothing:
	// a replica that froze must not keep its schedules from the others.
	firingIdle = 10
)

// FireDueSchedules settles the due fire times of up to limit schedules and returns of how many it did:
// tasks, history and the next fire time commit together, a transaction a namespace. The database clock
// decides what is due. Any number of replicas may run it: a schedule is settled under its row's lock,
// from the fire time it stands at, and the history's key admits one entry a fire time. A fault in one
// namespace does not keep the others; the faults come back joined.
func (s *Store) FireDueSchedules(ctx context.Context, limit int) (int, error) {
	var due []struct {
		NamespaceID ids.ID `db:"namespace_id"`
		ID          ids.ID `db:"id"`
	}
	if err := s.db.SelectContext(ctx, &due, dueSchedulesSQL, dueWindow*limit); err != nil {
		return 0, classify(fmt.Errorf("look for due schedules: %w", err))
	}
	if len(due) > limit {
		start := rand.IntN(len(due) - limit + 1)
		due = due[start : start+limit]
	}
	byNamespace := map[ids.ID][]ids.ID{}
	for _, d := range due {
		byNamespace[d.NamespaceID] = append(byNamespace[d.NamespaceID], d.ID)
	}
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		total   int
		faults  []error
	)
	places := make(chan struct{}, firingNamespaces)
	for namespace, schedules := range byNamespace {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			n, err := s.fireDueOf(ctx, namespace, schedules)
			mu.Lock()
			defer mu.Unlock()
			total += n
			if err != nil {
				faults = append(faults, fmt.Errorf("fire schedules of namespace %s: %w", namespace, err))
			}
		})
	}
	running.Wait()
	return total, errors.Join(faults...)
}

// fireDueOf settles those of a namespace's schedules that are due and not held by another replica.
func (s *Store) fireDueOf(ctx context.Context, namespace ids.ID, schedules []ids.ID) (int, error) {
	slices.SortFunc(schedules, compareIDs)
	n := 0
	var broken error
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		n, broken = 0, nil
		if _, err := tx.ExecContext(ctx, "SET SESSION wait_timeout = ?", firingIdle); err != nil {
			return fmt.Errorf("bound an idle transaction: %w", err)
		}
		locks, err := lockPayers(ctx, tx, namespace, schedules)
		if err != nil {
			return err
		}
		rows, err := lockDue(ctx, tx, namespace, schedules)
		if err != nil || len(rows) == 0 {
			return err
		}
		f, err := planDue(ctx, tx, namespace, rows, locks, &broken)
		if err != nil {
			return err
		}
		if err := f.insert(ctx, tx); err != nil {
			return err
		}
		if err := f.advance(ctx, tx); err != nil {
			return err
		}
		n = len(f.moves)
		_, err = tx.ExecContext(ctx, "SET SESSION wait_timeout = DEFAULT") // the pool keeps connections longer
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, broken
}

func compareIDs(a, b ids.ID) int { return slices.Compare(a[:], b[:]) }

// firingLocks is what is held before the schedules themselves.
type firingLocks struct {
	room    map[ids.ID]*int // by application
	retired map[ids.ID]bool // by queue; a queue that is missing here is not held
}

// lockPayers locks the limits of the schedules' applications and their queues, shared, each in key order.
func lockPayers(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, schedules []ids.ID) (*firingLocks, error) {
	var pairs []struct {
		QueueID       ids.ID `db:"queue_id"`
		ApplicationID ids.ID `db:"application_id"`
	}
	args := []any{namespace}
	for _, id := range schedules {
		args = append(args, id)
	}
	err := tx.SelectContext(ctx, &pairs, "SELECT DISTINCT queue_id, application_id FROM schedules FORCE INDEX (PRIMARY) WHERE namespace_id = ? AND id IN ("+marks(len(schedules))+")", args...)
	if err != nil {
		return nil, fmt.Errorf("read queues of due schedules: %w", err)
	}
	var applications, queues []ids.ID
	for _, p := range pairs {
		applications, queues = append(applications, p.ApplicationID), append(queues, p.QueueID)
	}
	locks := &firingLocks{room: map[ids.ID]*int{}, retired: map[ids.ID]bool{}}
	for _, id := range distinct(applications) {
		room, err := queuedRoom(ctx, tx, &access.Caller{NamespaceID: namespace, ApplicationID: id})
		if err != nil {
			return nil, err
		}
		locks.room[id] = &room
	}
	for _, id := range distinct(queues) {
		row, err := readQueue(ctx, tx, namespace, id, forShare)
		if err != nil {
			return nil, err
		}
		locks.retired[id] = row.RetiredAt != nil
	}
	return locks, nil
}

func distinct(list []ids.ID) []ids.ID {
	slices.SortFunc(list, compareIDs)
	return slices.Compact(list)
}

// lockDue locks the schedules that are still due. Rows that another replica holds are passed over; that
// saves waiting and nothing depends on it.
func lockDue(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, schedules []ids.ID) ([]*scheduleRow, error) {
	args := []any{namespace}
	for _, id := range schedules {
		args = append(args, id)
	}
	var rows []*scheduleRow
	err := tx.SelectContext(ctx, &rows, "SELECT "+scheduleColumns+" FROM schedules FORCE INDEX (PRIMARY) WHERE namespace_id = ? AND id IN ("+marks(len(schedules))+
		") AND state = 'ENABLED' AND next_at <= UTC_TIMESTAMP(6) ORDER BY id FOR UPDATE SKIP LOCKED", args...)
	if err != nil {
		return nil, fmt.Errorf("lock due schedules: %w", err)
	}
	return rows, nil
}

// planDue settles the rows one by one until the transaction is large enough. One whose version cannot
// be read here, such as a zone that this binary does not know, is left for others and told in broken.
func planDue(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, rows []*scheduleRow, locks *firingLocks, broken *error) (*firing, error) {
	keys := make([]versionKey, len(rows))
	for i, r := range rows {
		keys[i] = r.published()
	}
	versions, err := readVersions(ctx, tx, namespace, keys, true)
	if err != nil {
		return nil, err
	}
	now, err := dbNow(ctx, tx)
	if err != nil {
		return nil, err
	}
	f := newFiring(namespace, now)
	timings := map[schedule.Spec]*schedule.Timing{}
	for _, row := range rows {
		if f.full() {
			break
		}
		v := versions[row.published()]
		room, known := locks.room[row.ApplicationID]
		retired, held := locks.retired[row.QueueID]
		if !known || !held { // published by another application since it was read; the next look knows
			continue
		}
		when := schedule.Spec{Cron: v.Spec.Cron, Every: v.Spec.Every, TimeZone: v.Spec.TimeZone}
		timing := timings[when]
		if timing == nil {
			if timing, err = when.Timing(); err != nil {
				*broken = errors.Join(*broken, fmt.Errorf("schedule %s, version %d: %w", row.ID, row.Version, err))
				continue
			}
			timings[when] = timing
		}
		f.add(row, v, timing, retired, room)
	}
	return f, nil
}
