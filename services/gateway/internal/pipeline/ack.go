package pipeline

import (
	"context"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/hub"
)

// Ack is one acknowledgement; Reply is called once, after the commit, and must not block.
type Ack struct {
	Credential ids.ID
	Proof      delivery.Proof
	Reply      func(store.AckResult)
}

const (
	maxAckBatch = 256
	ackTimeout  = 10 * time.Second
)

// Acks commits acknowledgements, per subscription all that have arrived in one transaction.
type Acks struct {
	*Batcher[*hub.Sub, Ack]
	store  *store.Store
	claims *Claims
	log    *zap.Logger
}

// NewAcks lets inFlight subscriptions commit at once.
func NewAcks(s *store.Store, claims *Claims, inFlight int, log *zap.Logger) *Acks {
	a := &Acks{store: s, claims: claims, log: log}
	a.Batcher = NewBatcher(inFlight, oneCredential, a.commit)
	return a
}

// oneCredential bounds a batch to acks of one credential, since the audit names it.
func oneCredential(waiting []Ack) int {
	n := 1
	for n < len(waiting) && n < maxAckBatch && waiting[n].Credential == waiting[0].Credential {
		n++
	}
	return n
}

func (a *Acks) commit(sub *hub.Sub, batch []Ack) {
	ctx, cancel := context.WithTimeout(context.Background(), ackTimeout)
	defer cancel()
	proofs := make([]delivery.Proof, len(batch))
	for i, ack := range batch {
		proofs[i] = ack.Proof
	}
	results, err := a.store.AckDeliveries(ctx, sub.Key.Namespace, sub.Key.Subscription, batch[0].Credential, proofs)
	if err != nil {
		if errs.Is(err, errs.Internal) {
			a.log.Error("acks failed; their connections are closed, the proofs stay good",
				zap.Stringer("subscription_id", sub.Key.Subscription), zap.Int("acks", len(batch)), zap.Error(err))
		}
		for _, ack := range batch {
			ack.Reply(store.AckResult{Err: err})
		}
		return
	}
	settled := make([]ids.ID, 0, len(batch))
	for i, ack := range batch {
		if results[i].Err == nil {
			settled = append(settled, proofs[i].DeliveryID)
		}
		ack.Reply(results[i])
	}
	sub.Settled(settled)
	a.claims.Offer(sub)
}
