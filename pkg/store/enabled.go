package store

import (
	"context"
	"fmt"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// SubscriptionKey names a subscription.
type SubscriptionKey struct{ Namespace, Subscription ids.ID }

// EnabledSubscriptions says of many subscriptions which may be claimed for, in one query. A missing
// one is not in the result.
func (s *Store) EnabledSubscriptions(ctx context.Context, keys []SubscriptionKey) (map[SubscriptionKey]bool, error) {
	out := make(map[SubscriptionKey]bool, len(keys))
	if len(keys) == 0 {
		return out, nil
	}
	query, args := "", make([]any, 0, 2*len(keys))
	for i, k := range keys {
		if i > 0 {
			query += " OR "
		}
		query += "(namespace_id = ? AND id = ?)"
		args = append(args, k.Namespace, k.Subscription)
	}
	var rows []struct {
		NamespaceID ids.ID `db:"namespace_id"`
		ID          ids.ID `db:"id"`
		Enabled     bool   `db:"enabled"`
	}
	if err := s.db.SelectContext(ctx, &rows, "SELECT namespace_id, id, enabled FROM subscriptions WHERE "+query, args...); err != nil {
		return nil, classify(fmt.Errorf("read %d subscriptions: %w", len(keys), err))
	}
	for _, r := range rows {
		out[SubscriptionKey{r.NamespaceID, r.ID}] = r.Enabled
	}
	return out, nil
}
