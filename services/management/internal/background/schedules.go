package background

import (
	"context"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

const (
	// fireInterval is how long after its fire time a task may be made on an idle system. A look that
	// finds nothing is one read of an index.
	fireInterval   = 250 * time.Millisecond
	fireBatch      = 200                 // schedules a transaction
	fireRetention  = 30 * 24 * time.Hour // of the history
	fireSweepBatch = 500
)

func scheduleLoops(s *store.Store, log *zap.Logger) []*loop {
	return []*loop{
		{
			// Batch 1: while anything was due, look again at once.
			name: "due schedules", every: fireInterval, batch: 1, log: log,
			step: func(ctx context.Context) (int, error) { return s.FireDueSchedules(ctx, fireBatch) },
		},
		{
			name: "old fire times", every: receiptInterval, batch: fireSweepBatch, log: log,
			step: func(ctx context.Context) (int, error) {
				return s.SweepScheduleFires(ctx, fireRetention, fireSweepBatch)
			},
		},
	}
}
