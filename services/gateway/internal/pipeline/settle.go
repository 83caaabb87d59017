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

// Settlement is one ack, release or extend; Reply is called once, after the commit, and must not
// block.
type Settlement struct {
	Credential ids.ID
	Command    delivery.Command
	Reply      func(store.Settled)
}

const (
	maxSettleBatch = 256
	settleTimeout  = 10 * time.Second
)

// Settlements commits what consumers decide, per subscription all that has arrived in one
// transaction, which fills the places that it makes when a claim turn is due.
type Settlements struct {
	*Batcher[*hub.Sub, Settlement]
	store  *store.Store
	claims *Claims
	log    *zap.Logger
}

// NewSettlements lets inFlight subscriptions commit at once.
func NewSettlements(s *store.Store, claims *Claims, inFlight int, log *zap.Logger) *Settlements {
	a := &Settlements{store: s, claims: claims, log: log}
	a.Batcher = NewBatcher(inFlight, oneCredential, a.commit)
	return a
}

// oneCredential bounds a batch to commands of one credential, since the audit names it.
func oneCredential(waiting []Settlement) int {
	n := 1
	for n < len(waiting) && n < maxSettleBatch && waiting[n].Credential == waiting[0].Credential {
		n++
	}
	return n
}

func (a *Settlements) commit(sub *hub.Sub, batch []Settlement) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	commands := make([]delivery.Command, len(batch))
	for i, one := range batch {
		commands[i] = one.Command
	}
	results, joined, err := a.settle(ctx, sub, batch[0].Credential, commands)
	if err != nil {
		if errs.Is(err, errs.Internal) {
			a.log.Error("acks failed; their connections are closed, the proofs stay good",
				zap.Stringer("subscription_id", sub.Key.Subscription), zap.Int("acks", len(batch)), zap.Error(err))
		}
		for _, one := range batch {
			one.Reply(store.Settled{Err: err})
		}
		return
	}
	for i, one := range batch {
		one.Reply(results[i])
	}
	joined()
	a.claims.Offer(sub)
}

// settle commits the commands, with a turn where one is due, which joined then ends. The turn's failure is not theirs.
func (a *Settlements) settle(ctx context.Context, sub *hub.Sub, credential ids.ID, commands []delivery.Command) (results []store.Settled, joined func(), err error) {
	joined = func() {}
	began := time.Now()
	wants := a.claims.Join(sub, commands)
	results, turn, err := a.store.SettleDeliveries(ctx, sub.Key.Namespace, sub.Key.Subscription, credential, commands, wants)
	if err != nil && wants != nil {
		a.claims.Joined(sub, nil, 0)
		wants = nil
		results, _, err = a.store.SettleDeliveries(ctx, sub.Key.Namespace, sub.Key.Subscription, credential, commands, nil)
	}
	if err != nil {
		return nil, joined, err
	}
	for i, c := range commands {
		if results[i].Err == nil {
			sub.Settled(c, results[i].At)
		}
	}
	if wants != nil {
		took := time.Since(began)
		joined = func() { a.claims.Joined(sub, &turn, took) }
	}
	return results, joined, nil
}
