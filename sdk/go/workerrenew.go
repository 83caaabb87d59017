package orbit

import (
	"context"
	"errors"
	"slices"
	"time"
)

// renew renews what earlier connections left here at once, and then everything at a third of the lease,
// until the connection ends or the server says that it cannot.
func (r *workerRun) renew(conn *WorkerConn, leases []lease) {
	interval := conn.Welcome.LeaseDuration / 3
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for r.renewAll(conn, leases, interval) {
		select {
		case <-tick.C:
		case <-conn.Done():
			return
		}
		leases = r.crew.leases()
	}
}

// renewAll sends one frame per 256 attempts; false: the server has no such command.
func (r *workerRun) renewAll(conn *WorkerConn, leases []lease, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for leases := range slices.Chunk(leases, 256) {
		asked := time.Now()
		items, err := conn.renew(ctx, leases)
		if errors.Is(err, ErrInvalidArgument) && !isClose(err) {
			return false
		}
		for i, item := range items[:min(len(items), len(leases))] {
			r.renewed(leases[i], item, asked)
		}
	}
	return true
}

// renewed takes the answer for one attempt.
func (r *workerRun) renewed(l lease, item RenewItem, asked time.Time) {
	switch {
	case errors.Is(item.Err, ErrAttemptLeaseLost):
		if r.crew.stop(l.id, l.epoch, ErrAttemptLeaseLost) != nil {
			r.failed(l.id, "", item.Err)
		}
	case item.Err == nil:
		r.crew.renewed(l.id, asked)
		if item.CancelRequested {
			r.cancelAsked(CancelNotice{AttemptID: l.id})
		}
	}
}
