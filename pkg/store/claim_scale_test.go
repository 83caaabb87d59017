package store_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// claimLimit is the 99th percentile that a claim keeps at 5 million finished tasks in the table.
const claimLimit = 20 * time.Millisecond

// Claiming does not slow down with the history: its statements neither sort nor scan and read no more
// rows than they claim. With ORBIT_PLAN_ROWS=5000000 the time is asserted too; without it the machine
// may be busy with anything, and the time is only logged.
func TestClaimsBesideFinishedTasks(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	began := time.Now()
	n := planRows(t)
	db.GrowTasks(t, tenant, n)
	t.Logf("%d finished tasks after %s", n, time.Since(began).Round(time.Second))
	const free, rounds = 8, 400
	db.QueueTasks(t, tenant, free*(rounds+1))
	ctx := context.Background()
	wants := []store.WorkerWant{{SessionID: ids.New(), Worker: "w", Free: free}}
	explainClaim(t, db, tenant, wants)
	took := make([]time.Duration, 0, rounds)
	for range rounds {
		began := time.Now()
		claimed, err := db.Gateway.ClaimTasks(ctx, tenant.NamespaceID, tenant.QueueID, wants)
		took = append(took, time.Since(began))
		if err != nil || len(claimed) != free {
			t.Fatalf("claimed %d: %v", len(claimed), err)
		}
		outcomes := make([]task.Outcome, free)
		for i, a := range claimed {
			outcomes[i] = task.Outcome{Kind: task.OutcomeComplete, Proof: storetest.ProofOf(a), Result: strictjson.Raw(`{"ok":true}`)}
		}
		if _, err := db.Gateway.FinishAttempts(ctx, tenant.NamespaceID, tenant.QueueID, outcomes); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	t.Logf("%d claims of %d tasks: p50 %s, p99 %s, longest %s", rounds, free, took[len(took)/2], p99, took[len(took)-1])
	if os.Getenv("ORBIT_PLAN_ROWS") != "" && p99 > claimLimit {
		t.Errorf("p99 of a claim is %s, want at most %s", p99, claimLimit)
	}
}

// explainClaim checks the plan of every read of one claim, and gives the tasks back.
func explainClaim(t *testing.T, db *storetest.DB, tenant storetest.Tenant, wants []store.WorkerWant) {
	t.Helper()
	p := db.NewProxy(t)
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
	claimed, err := p.Store.ClaimTasks(context.Background(), tenant.NamespaceID, tenant.QueueID, wants)
	p.Decide(nil)
	if err != nil || len(claimed) == 0 || len(reads) == 0 {
		t.Fatalf("claimed %d with %d reads: %v", len(claimed), len(reads), err)
	}
	for _, query := range reads {
		checkPlan(t, db, "claim", query, 2*wants[0].Free)
	}
}
