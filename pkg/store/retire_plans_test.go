package store_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// TestPlansOfRetirement: what it costs does not grow with finished tasks, acknowledged deliveries, old
// events, or subscriptions that were retired before.
func TestPlansOfRetirement(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{Types: []string{"task.failed"}})
	n := planRows(t)
	db.GrowDeliveries(t, tenant, sub, n)
	db.GrowTasks(t, tenant, n)
	execSQL(t, db, "UPDATE result_streams SET boundary = head")
	db.AppendEvents(t, tenant, 2000, `1`)
	execSQL(t, db, "UPDATE subscriptions s JOIN result_streams r USING (namespace_id) SET s.cursor_sequence = r.head")
	db.AppendEvents(t, tenant, 50, `1`) // of another type: these are looked at
	for range 300 {
		id := ids.New()
		execSQL(t, db, `INSERT INTO subscriptions (namespace_id, id, queue_id, application_id, credential_id, name, revision, enabled, types, cursor_sequence, pending_count, max_pending, max_attempts,
  created_at, updated_at, retired_at, retired_sequence) VALUES (?, ?, ?, ?, ?, ?, 2, 0, 15, 7, 0, 100, 20, '2026-01-01', '2026-01-01', '2026-01-01', 7)`,
			tenant.NamespaceID[:], id[:], tenant.QueueID[:], tenant.ApplicationID[:], tenant.CredentialID[:], id.String())
	}
	execSQL(t, db, "ANALYZE TABLE subscriptions")
	create, err := subscription.Create{Name: "one-more", QueueID: &tenant.QueueID}.Normalise()
	must(t, err)
	p := db.NewProxy(t)
	ctx, s := context.Background(), p.Store
	for _, one := range []struct {
		name string
		most int
		call func() error
	}{
		{"create subscription", 2, func() error { _, err := s.CreateSubscription(ctx, tenant.Write(), create); return err }},
		{"retire subscription", 50, func() error { _, err := retireSubscription(s, tenant.Write(), sub, 1); return err }},
		{"retire another", 50, func() error {
			list, _, err := s.ListSubscriptions(ctx, tenant.Caller, tenant.QueueID, store.Page{Limit: 1})
			if err == nil {
				_, err = retireSubscription(s, tenant.Write(), list[0].ID, 1)
			}
			return err
		}},
		{"standings", 1, func() error {
			_, err := s.Standings(ctx, []store.SubscriptionKey{{Namespace: tenant.NamespaceID, Subscription: sub}})
			return err
		}},
		{"retired queues", 1, func() error {
			_, err := s.RetiredQueues(ctx, []store.ReadyQueue{{NamespaceID: tenant.NamespaceID, QueueID: tenant.QueueID}})
			return err
		}},
		{"retire queue", 14, func() error { _, err := retireQueue(s, tenant.Write(), tenant.QueueID, 1); return err }},
	} {
		var mu sync.Mutex
		var reads []string
		p.Decide(func(query string) storetest.Fate {
			mu.Lock()
			defer mu.Unlock()
			if q := strings.TrimSpace(query); strings.HasPrefix(q, "SELECT") && strings.Contains(q, "FROM ") {
				reads = append(reads, q)
			}
			return storetest.Pass
		})
		if err := one.call(); err != nil {
			t.Errorf("%s: %v", one.name, err)
		}
		p.Decide(nil)
		if len(reads) == 0 {
			t.Errorf("%s: no read was seen", one.name)
		}
		for _, query := range reads {
			checkPlan(t, db, one.name, query, one.most)
		}
	}
}
