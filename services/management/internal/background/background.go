// Package background is the work that belongs to no request (§11). Every step is guarded by rows,
// so any number of replicas may run it.
package background

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// Batch sizes keep each transaction short.
const (
	attemptBatch    = 200
	leaseBatch      = 100 // subscriptions
	leaseInterval   = 5 * time.Second
	receiptBatch    = 200
	receiptInterval = time.Minute
)

// Config says how often and how old.
type Config struct {
	Attempts   time.Duration // how often to look for lost attempts
	ReceiptAge time.Duration // older receipts are removed
}

// Work is all loops of one process.
type Work struct {
	loops []*loop
	flows *flows
}

// New prepares the loops; nothing runs yet.
func New(s *store.Store, log *zap.Logger, cfg Config) *Work {
	return &Work{flows: newFlows(s, log), loops: append([]*loop{
		{
			name: "lost attempts", every: cfg.Attempts, batch: attemptBatch, log: log,
			step: func(ctx context.Context) (int, error) { return s.SweepAttempts(ctx, attemptBatch) },
		},
		{
			name: "lapsed leases", every: leaseInterval, batch: leaseBatch, log: log,
			step: func(ctx context.Context) (int, error) { return s.SweepLeases(ctx, leaseBatch) },
		},
		{
			name: "old receipts", every: receiptInterval, batch: receiptBatch, log: log,
			step: func(ctx context.Context) (int, error) { return s.SweepReceipts(ctx, cfg.ReceiptAge, receiptBatch) },
		},
	}, scheduleLoops(s, log)...)}
}

// Run runs every loop until ctx ends and returns nil once all have stopped.
func (w *Work) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, l := range w.loops {
		running.Go(func() { l.run(ctx) })
	}
	running.Go(func() { w.flows.run(ctx) })
	running.Wait()
	return nil
}

// RunMoved tells that this process has started or moved a run, so that its progress is not waited for.
func (w *Work) RunMoved() { w.flows.hint() }
