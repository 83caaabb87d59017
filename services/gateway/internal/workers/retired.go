package workers

import (
	"context"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// retiredScan is how soon a worker hears that its queue was retired; one query for all queues.
const retiredScan = 500 * time.Millisecond

// RunRetired closes the connections of retired queues with RESOURCE_RETIRED until ctx ends (R7.2).
// A queue retires only without attempts in flight, so no worker loses one by it.
func (p *Pool) RunRetired(ctx context.Context) error {
	ticker := time.NewTicker(retiredScan)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := p.scanRetired(ctx); err != nil && !errs.Is(err, errs.Unavailable) {
			p.log.Error("looking for retired queues failed", zap.Error(err))
		}
	}
}

func (p *Pool) scanRetired(ctx context.Context) error {
	p.mu.Lock()
	served := make([]store.ReadyQueue, 0, len(p.queues))
	for key := range p.queues {
		served = append(served, key)
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	retired, err := p.store.RetiredQueues(ctx, served)
	if err != nil {
		return err
	}
	for key, reason := range retired {
		for _, s := range p.sessions(key) {
			s.fail(reason, nil)
		}
	}
	return nil
}

func (p *Pool) sessions(key store.ReadyQueue) []*session {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*session
	if l := p.queues[key]; l != nil {
		for _, pl := range l.places {
			out = append(out, pl.session)
		}
	}
	return out
}
