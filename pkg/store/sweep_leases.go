package store

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// Enabled subscriptions are few; their lapsed leases are found by the index of states.
const lapsedSubscriptionsSQL = `
SELECT s.namespace_id, s.id FROM subscriptions s
WHERE s.enabled = 1 AND s.pending_count > 0 AND EXISTS (
  SELECT 1 FROM deliveries d FORCE INDEX (deliveries_state)
  WHERE d.namespace_id = s.namespace_id AND d.subscription_id = s.id AND d.state = 'LEASED' AND d.lease_until <= UTC_TIMESTAMP(6))
LIMIT ?`

// SweepLeases takes back the lapsed leases of up to limit enabled subscriptions, as a claim turn would,
// so that their state is true while nobody is connected (R11.1). It returns of how many subscriptions.
// Paused ones keep showing LEASED.
func (s *Store) SweepLeases(ctx context.Context, limit int) (int, error) {
	var lapsed []struct {
		NamespaceID ids.ID `db:"namespace_id"`
		ID          ids.ID `db:"id"`
	}
	if err := s.db.SelectContext(ctx, &lapsed, lapsedSubscriptionsSQL, limit); err != nil {
		return 0, classify(fmt.Errorf("look for lapsed leases: %w", err))
	}
	for n, l := range lapsed {
		err := s.InTx(ctx, func(tx *sqlx.Tx) error {
			sub, err := readSubscription(ctx, tx, l.NamespaceID, l.ID, forUpdate)
			if err != nil || !sub.Enabled {
				return err
			}
			leased, err := readLeases(ctx, tx, l.NamespaceID, l.ID)
			if err != nil {
				return err
			}
			t := claimTurn{namespace: l.NamespaceID, sub: sub}
			if t.now, err = dbNow(ctx, tx); err != nil {
				return err
			}
			return t.recover(ctx, tx, leased)
		})
		if err != nil {
			return n, err
		}
	}
	return len(lapsed), nil
}
