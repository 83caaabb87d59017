package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

// TestScopedQueuesAreReadByKey: a credential with a long list of queues reads a page of them, and no
// queue of another scope.
func TestScopedQueuesAreReadByKey(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	p := db.NewProxy(t)
	var scope []ids.ID
	for i := range 400 {
		id := ids.New()
		if _, err := db.SQL.Exec(`
INSERT INTO queues (namespace_id, id, name, revision, paused, max_running, lease_duration_ms, created_at, updated_at)
VALUES (?, ?, ?, 1, 0, 0, 30000, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))`, tenant.NamespaceID[:], id[:], fmt.Sprintf("q%d", i)); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			scope = append(scope, id)
		}
	}
	caller := &access.Caller{NamespaceID: tenant.NamespaceID, CredentialID: tenant.CredentialID, Queues: scope}
	var mu sync.Mutex
	var reads []string
	p.Decide(func(query string) storetest.Fate {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(query, "FROM queues") {
			reads = append(reads, strings.TrimSpace(query))
		}
		return storetest.Pass
	})
	const limit = 20
	page, seen := store.Page{Limit: limit}, 0
	for {
		queues, next, err := p.Store.ListQueues(context.Background(), caller, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range queues {
			if want := scope[len(scope)-1-seen]; q.ID != want {
				t.Fatalf("item %d is %s, want %s", seen, q.ID, want)
			}
			seen++
		}
		if next == nil {
			break
		}
		page.After = next
	}
	p.Decide(nil)
	if seen != len(scope) || len(reads) != len(scope)/limit {
		t.Errorf("%d of %d queues in %d pages", seen, len(scope), len(reads))
	}
	for _, query := range []string{reads[0], reads[len(reads)/2]} {
		checkPlan(t, db, "list scoped queues", query, limit+1)
	}
}
