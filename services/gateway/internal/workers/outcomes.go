package workers

import (
	"context"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/pipeline"
)

// Report is one attempt's outcome; Reply is called once, after the commit, and must not block.
type Report struct {
	Outcome task.Outcome
	Reply   func(store.OutcomeResult)
}

const (
	maxBatch       = 256
	maxBatchBytes  = 4 << 20 // well under the server's packet limit
	outcomeTimeout = 10 * time.Second
)

// Outcomes commits outcomes, per queue all that have arrived in one transaction.
type Outcomes struct {
	*pipeline.Batcher[store.ReadyQueue, Report]
	store *store.Store
	pool  *Pool
	hint  func(namespace ids.ID, head uint64)
	log   *zap.Logger
}

// NewOutcomes lets inFlight queues commit at once; hint hears of every new head.
func NewOutcomes(s *store.Store, pool *Pool, inFlight int, hint func(ids.ID, uint64), log *zap.Logger) *Outcomes {
	o := &Outcomes{store: s, pool: pool, hint: hint, log: log}
	o.Batcher = pipeline.NewBatcher(inFlight, batchSize, o.commit)
	return o
}

func batchSize(waiting []Report) int {
	n, bytes := 0, 0
	for n < len(waiting) && n < maxBatch {
		if bytes += waiting[n].Outcome.Size(); n > 0 && bytes > maxBatchBytes {
			break
		}
		n++
	}
	return n
}

func (o *Outcomes) commit(queue store.ReadyQueue, batch []Report) {
	ctx, cancel := context.WithTimeout(context.Background(), outcomeTimeout)
	defer cancel()
	outcomes := make([]task.Outcome, len(batch))
	for i, r := range batch {
		outcomes[i] = r.Outcome
	}
	done, err := o.store.FinishAttempts(ctx, queue.NamespaceID, queue.QueueID, outcomes)
	if err != nil {
		if errs.Is(err, errs.Internal) {
			o.log.Error("outcomes failed; their connections are closed, the proofs stay good",
				zap.Stringer("queue_id", queue.QueueID), zap.Int("outcomes", len(batch)), zap.Error(err))
		}
		for _, r := range batch {
			r.Reply(store.OutcomeResult{Err: err})
		}
		return
	}
	if done.Head > 0 {
		o.hint(queue.NamespaceID, done.Head)
	}
	for i, r := range batch {
		r.Reply(done.Results[i])
	}
	o.pool.Look()
}
