package store_test

import (
	"context"
	"fmt"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// retirePaths are the retirements, among the write paths that meet every fault.
func retirePaths() []writePath {
	return []writePath{
		{"retire subscription", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			w, id := tenant.Write(), db.Subscribe(t, tenant, subscription.Create{})
			return func(_ context.Context, s *store.Store) (string, error) {
				out, err := retireSubscription(s, w, id, 1)
				if err != nil {
					return "", err
				}
				return fmt.Sprint(out.Enabled, out.Revision, out.RetiredAt != nil, *out.RetiredSequence), nil
			}
		}, true},
		{"retire queue", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			db.Outcome(t, tenant, `1`)
			w := tenant.Write()
			return func(_ context.Context, s *store.Store) (string, error) {
				out, err := retireQueue(s, w, tenant.QueueID, 1)
				if err != nil {
					return "", err
				}
				return fmt.Sprint(out.Paused, out.Revision, out.RetiredAt != nil), nil
			}
		}, true},
	}
}
