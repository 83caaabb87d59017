package store_test

import (
	"context"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// TestLapsedLeasesAreSweptWhileNobodyIsConnected: within the budget back to PENDING, at its end EXPIRED;
// live leases and paused subscriptions stay as they are, and the backlog counter does not move.
func TestLapsedLeasesAreSweptWhileNobodyIsConnected(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	ctx := context.Background()
	states := func(sub ids.ID) map[string]int {
		out := map[string]int{}
		rows, err := db.SQL.Query("SELECT state, COUNT(*) FROM deliveries WHERE subscription_id = ? GROUP BY state", sub[:])
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var state string
			var n int
			if err := rows.Scan(&state, &n); err != nil {
				t.Fatal(err)
			}
			out[state] = n
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return out
	}
	subs := map[string]ids.ID{
		"again":  db.Subscribe(t, tenant, subscription.Create{MaxAttempts: 2}),
		"spent":  db.Subscribe(t, tenant, subscription.Create{MaxAttempts: 1}),
		"live":   db.Subscribe(t, tenant, subscription.Create{MaxAttempts: 2}),
		"paused": db.Subscribe(t, tenant, subscription.Create{MaxAttempts: 2}),
	}
	db.AppendEvents(t, tenant, 3, `1`)
	for name, sub := range subs {
		turn, err := db.Gateway.ClaimDeliveries(ctx, tenant.NamespaceID, sub, []store.SessionWant{{SessionID: ids.New(), Capacity: 3}})
		if err != nil || len(turn.Claimed) != 3 {
			t.Fatalf("%s: %d claimed, %v", name, len(turn.Claimed), err)
		}
		if name == "live" {
			continue
		}
		if _, err := db.SQL.Exec("UPDATE deliveries SET lease_until = '2020-01-01' WHERE subscription_id = ?", sub[:]); err != nil {
			t.Fatal(err)
		}
	}
	paused := subs["paused"]
	if _, err := db.SQL.Exec("UPDATE subscriptions SET enabled = 0 WHERE id = ?", paused[:]); err != nil {
		t.Fatal(err)
	}
	if n, err := db.Management.SweepLeases(ctx, 100); err != nil || n != 2 {
		t.Fatalf("swept %d subscriptions, %v", n, err)
	}
	for name, want := range map[string]string{"again": "PENDING", "spent": "EXPIRED", "live": "LEASED", "paused": "LEASED"} {
		if got := states(subs[name]); got[want] != 3 || len(got) != 1 {
			t.Errorf("%s: %v, want 3 %s", name, got, want)
		}
		sub := subs[name]
		var pending int
		if err := db.SQL.QueryRow("SELECT pending_count FROM subscriptions WHERE id = ?", sub[:]).Scan(&pending); err != nil || pending != 3 {
			t.Errorf("%s: pending_count %d, %v", name, pending, err)
		}
	}
	if n, err := db.Management.SweepLeases(ctx, 100); err != nil || n != 0 {
		t.Errorf("a second sweep took %d, %v", n, err)
	}
}
