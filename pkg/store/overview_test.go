package store_test

import (
	"context"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

func TestOverviews(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	for range 3 {
		db.Submit(t, tenant, `1`)
	}
	db.Complete(t, tenant, db.Claim(t, tenant, 1)[0], `1`)
	db.Claim(t, tenant, 1)
	queues, err := db.Management.QueueOverviews(context.Background())
	if err != nil || len(queues) != 1 {
		t.Fatalf("%+v, %v", queues, err)
	}
	if q := queues[0]; q.ID != tenant.QueueID || q.Queued != 1 || q.Running != 1 || q.Review != 0 || q.Paused {
		t.Errorf("queue %+v", q)
	}
	check := func(lag uint64, pending int) {
		t.Helper()
		subs, err := db.Management.SubscriptionOverviews(context.Background())
		if err != nil || len(subs) != 1 {
			t.Fatalf("%+v, %v", subs, err)
		}
		if s := subs[0]; s.ID != sub || s.Lag != lag || s.PendingCount != pending || s.Queue != "main" || !s.Enabled || s.Expired != 0 {
			t.Errorf("subscription %+v", s)
		}
	}
	check(1, 0)
	if _, err := db.Gateway.ClaimDeliveries(context.Background(), tenant.NamespaceID, sub, []store.SessionWant{{SessionID: ids.New(), Capacity: 1}}); err != nil {
		t.Fatal(err)
	}
	check(0, 1)
}

// TestOverviewsOfRetired: nothing is behind, however the log goes on.
func TestOverviewsOfRetired(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	_, err := retireSubscription(db.Management, tenant.Write(), sub, 1)
	must(t, err)
	_, err = retireQueue(db.Management, tenant.Write(), tenant.QueueID, 1)
	must(t, err)
	db.AppendEvents(t, tenant, 3, `1`)
	subs, err := db.Management.SubscriptionOverviews(context.Background())
	if err != nil || len(subs) != 1 || !subs[0].Retired || subs[0].Enabled || subs[0].Lag != 0 {
		t.Errorf("%+v, %v", subs, err)
	}
	queues, err := db.Management.QueueOverviews(context.Background())
	if err != nil || len(queues) != 1 || !queues[0].Retired || !queues[0].Paused {
		t.Errorf("%+v, %v", queues, err)
	}
}
