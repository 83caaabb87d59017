package store

import (
	"context"
	"fmt"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// SubscriptionKey names a subscription.
type SubscriptionKey struct{ Namespace, Subscription ids.ID }

// Standing is whether a subscription may be claimed for; Retired is RESOURCE_RETIRED once it is.
type Standing struct {
	Enabled bool
	Retired error
}

// Standings says how many subscriptions stand, in one query. A missing one is not in the result.
func (s *Store) Standings(ctx context.Context, keys []SubscriptionKey) (map[SubscriptionKey]Standing, error) {
	out := make(map[SubscriptionKey]Standing, len(keys))
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
		subscriptionRow
	}
	if err := s.db.SelectContext(ctx, &rows, "SELECT namespace_id, id, enabled, retired_at, retired_sequence FROM subscriptions WHERE "+query, args...); err != nil {
		return nil, classify(fmt.Errorf("read %d subscriptions: %w", len(keys), err))
	}
	for _, r := range rows {
		out[SubscriptionKey{r.NamespaceID, r.ID}] = Standing{Enabled: r.Enabled, Retired: r.subscription().Refuse()}
	}
	return out, nil
}
