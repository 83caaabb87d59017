package workers

import (
	"context"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/wire"
)

// cancelScan is how soon a running attempt hears of a requested cancel; one query for all.
const cancelScan = 250 * time.Millisecond

// RunCancels tells workers of requested cancels until ctx ends (R8.5). A cancel moves its
// namespace's wake version; only then are the running attempts looked at.
func (p *Pool) RunCancels(ctx context.Context) error {
	seen := map[ids.ID]uint64{}
	ticker := time.NewTicker(cancelScan)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		queues := p.running()
		if len(queues) == 0 {
			clear(seen)
			continue
		}
		if err := p.scanCancels(ctx, queues, seen); err != nil && !errs.Is(err, errs.Unavailable) {
			p.log.Error("looking for cancels failed", zap.Error(err))
		}
	}
}

// running lists, by namespace, the queues whose workers here have something to cancel.
func (p *Pool) running() map[ids.ID][]store.ReadyQueue {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[ids.ID][]store.ReadyQueue{}
	for key, l := range p.queues {
		for _, pl := range l.places {
			if len(pl.held) > 0 {
				out[key.NamespaceID] = append(out[key.NamespaceID], key)
				break
			}
		}
	}
	return out
}

// scanCancels looks at a namespace when its version moved, and when it is new here: its attempts may
// have begun before.
func (p *Pool) scanCancels(ctx context.Context, queues map[ids.ID][]store.ReadyQueue, seen map[ids.ID]uint64) error {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	namespaces := make([]ids.ID, 0, len(queues))
	for id := range queues {
		namespaces = append(namespaces, id)
	}
	streams, _, err := p.store.Streams(ctx, namespaces)
	if err != nil {
		return err
	}
	for _, s := range streams {
		if last, known := seen[s.NamespaceID]; known && last == s.WakeVersion {
			continue
		}
		for _, q := range queues[s.NamespaceID] {
			cancelled, err := p.store.CancelledAttempts(ctx, q)
			if err != nil {
				return err
			}
			p.tell(q, cancelled)
		}
		seen[s.NamespaceID] = s.WakeVersion
	}
	for id := range seen {
		if queues[id] == nil {
			delete(seen, id)
		}
	}
	return nil
}

func (p *Pool) tell(q store.ReadyQueue, cancelled []store.CancelledAttempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.queues[q]
	if l == nil {
		return
	}
	for _, pl := range l.places {
		for _, c := range cancelled {
			if _, holds := pl.held[c.AttemptID]; holds && !pl.told[c.AttemptID] {
				pl.told[c.AttemptID] = true
				pl.session.cancel(c)
			}
		}
	}
}

// cancel asks the worker to stop an attempt; its answer decides (R8.5).
func (s *session) cancel(c store.CancelledAttempt) {
	b := wire.Open(make([]byte, 0, 384), "attempt.cancel", nil, &s.id)
	b = append(b, `{"attempt_id":`...)
	b = wire.AppendID(b, c.AttemptID)
	b = append(b, `,"task_id":`...)
	b = wire.AppendID(b, c.TaskID)
	s.conn.Send(wire.Close(append(b, `,"reason":"CANCEL_REQUESTED"}`...)))
}
