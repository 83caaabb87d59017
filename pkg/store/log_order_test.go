package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// A1: many writers, some of whose connections die in mid-transaction, and readers that materialise all
// the while: the log is 1…M without a hole, and every subscription saw every event once, in order.
func TestTheLogHasNoHoles(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	p := db.NewProxy(t)
	const writers, readers, tasks = 8, 4, 1200
	var subs []ids.ID
	for range readers {
		subs = append(subs, db.Subscribe(t, tenant, subscription.Create{MaxPending: 1000}))
	}
	db.QueueTasks(t, tenant, tasks)
	p.Decide(func(query string) storetest.Fate {
		switch {
		case query != "COMMIT" || rand.IntN(20) > 0:
			return storetest.Pass
		case rand.IntN(2) == 0:
			return storetest.DropBefore
		}
		return storetest.DropAfter
	})
	var writing, reading sync.WaitGroup
	left := make(chan struct{})
	for range writers {
		writing.Go(func() { completeAll(t, db, p.Store, tenant) })
	}
	for _, sub := range subs {
		reading.Go(func() {
			for {
				if _, err := db.Gateway.ClaimDeliveries(context.Background(), tenant.NamespaceID, sub, nil); err != nil {
					t.Error(err)
				}
				select {
				case <-left:
					return
				default:
				}
			}
		})
	}
	writing.Wait()
	close(left)
	reading.Wait()
	p.Decide(nil)
	for _, sub := range subs { // what the last writer appended
		if _, err := db.Gateway.ClaimDeliveries(context.Background(), tenant.NamespaceID, sub, nil); err != nil {
			t.Fatal(err)
		}
	}
	var n, head, last int
	if err := db.SQL.QueryRow("SELECT COUNT(*), MAX(sequence) FROM result_events WHERE namespace_id = ?", tenant.NamespaceID[:]).Scan(&n, &last); err != nil {
		t.Fatal(err)
	}
	if err := db.SQL.QueryRow("SELECT head FROM result_streams WHERE namespace_id = ?", tenant.NamespaceID[:]).Scan(&head); err != nil {
		t.Fatal(err)
	}
	if n != last || n != head || n < tasks/2 {
		t.Errorf("%d events, the last is %d, the head %d", n, last, head)
	}
	for _, sub := range subs {
		var rows, distinct, most int
		err := db.SQL.QueryRow("SELECT COUNT(*), COUNT(DISTINCT event_id), MAX(sequence) FROM deliveries WHERE subscription_id = ?", sub[:]).Scan(&rows, &distinct, &most)
		if want := min(n, 1000); err != nil || rows != want || distinct != want || most != want {
			t.Errorf("%d deliveries of %d events up to %d, want %d (%v)", rows, distinct, most, want, err)
		}
	}
}

// completeAll claims and completes until nothing is ready; what a broken connection leaves unsure is
// reported again with the same proof.
func completeAll(t *testing.T, db *storetest.DB, s *store.Store, tenant storetest.Tenant) {
	ctx := context.Background()
	for {
		claimed, err := db.Gateway.ClaimTasks(ctx, tenant.NamespaceID, tenant.QueueID, []store.WorkerWant{{SessionID: ids.New(), Worker: "w", Free: 5}})
		if err != nil {
			t.Error(err)
			return
		}
		if len(claimed) == 0 {
			return
		}
		outcomes := make([]task.Outcome, len(claimed))
		for i, a := range claimed {
			outcomes[i] = task.Outcome{Kind: task.OutcomeComplete, Proof: storetest.ProofOf(a), Result: strictjson.Raw(fmt.Sprint(i))}
		}
		for {
			out, err := s.FinishAttempts(ctx, tenant.NamespaceID, tenant.QueueID, outcomes)
			if err != nil {
				continue
			}
			for _, r := range out.Results {
				if r.Err != nil || r.State != task.Succeeded {
					t.Errorf("outcome %+v", r)
				}
			}
			break
		}
	}
}
