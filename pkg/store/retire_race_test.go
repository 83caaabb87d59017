package store_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// raceRounds is how often each race of a retirement is run; ORBIT_RACE_ROUNDS=1000 is the full size.
func raceRounds(t *testing.T) int {
	text := os.Getenv("ORBIT_RACE_ROUNDS")
	if text == "" {
		return 60
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// inRounds plays rounds in a few lanes, each with a namespace of its own.
func inRounds(t *testing.T, db *storetest.DB, round func(tenant storetest.Tenant)) {
	t.Helper()
	const lanes = 4
	var left atomic.Int64
	left.Store(int64(raceRounds(t)))
	var all sync.WaitGroup
	for range lanes {
		tenant := db.Tenant(t)
		all.Go(func() {
			for left.Add(-1) >= 0 && !t.Failed() {
				round(tenant)
			}
		})
	}
	all.Wait()
}

// pause lets the others of a race come first, sometimes.
func pause() { time.Sleep(time.Duration(rand.Int64N(4_000_000))) }

// drink takes and acknowledges what a subscription has now; false once it is retired.
func drink(t *testing.T, db *storetest.DB, tenant storetest.Tenant, sub ids.ID) bool {
	ctx := context.Background()
	turn, err := db.Gateway.ClaimDeliveries(ctx, tenant.NamespaceID, sub, []store.SessionWant{{SessionID: ids.New(), Capacity: 32}})
	if errs.Is(err, errs.ResourceRetired) {
		return false
	}
	if err != nil {
		t.Error(err)
		return false
	}
	if len(turn.Claimed) == 0 {
		return true
	}
	commands := make([]delivery.Command, len(turn.Claimed))
	for i, c := range turn.Claimed {
		commands[i] = delivery.Command{Kind: delivery.Ack, Proof: delivery.Proof{DeliveryID: c.Delivery.ID, Epoch: c.Delivery.LeaseEpoch, Digest: c.Secret.Digest()}}
	}
	settled, _, err := db.Gateway.SettleDeliveries(ctx, tenant.NamespaceID, sub, tenant.CredentialID, commands, nil)
	if err != nil {
		t.Error(err)
	}
	for _, s := range settled {
		if s.Err != nil {
			t.Error(s.Err)
		}
	}
	return true
}

// TestRaceOfRetiredSubscription: against append, materialise and ack. No event at or below
// retired_sequence is undelivered or un-acknowledged, none above is delivered.
func TestRaceOfRetiredSubscription(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	var busy, before, after atomic.Int64
	inRounds(t, db, func(tenant storetest.Tenant) {
		ctx := context.Background()
		var tasks []ids.ID
		for range 3 {
			tasks = append(tasks, db.Submit(t, tenant, `1`))
		}
		sub := db.Subscribe(t, tenant, subscription.Create{Types: []string{"task.cancelled"}})
		made, err := db.Management.GetSubscription(ctx, tenant.Caller, sub)
		if err != nil {
			t.Error(err)
			return
		}
		var others sync.WaitGroup
		others.Go(func() { // append
			for _, id := range tasks {
				pause()
				revision := ids.Counter(1)
				if _, err := db.Management.CancelTask(ctx, tenant.Write(), id, task.Cancel{ExpectedRevision: &revision, Reason: "r"}); err != nil {
					t.Error(err)
				}
			}
		})
		for range 2 { // materialise and acknowledge
			others.Go(func() {
				for drink(t, db, tenant, sub) {
				}
			})
		}
		w := tenant.Write() // one key: a refusal leaves no receipt
		for {
			pause()
			_, err := retireSubscription(db.Management, w, sub, 1)
			if err == nil {
				break
			}
			if !errs.Is(err, errs.ResourceBusy) {
				t.Error(err)
				return
			}
			busy.Add(1)
		}
		others.Wait()
		retired, err := db.Management.GetSubscription(ctx, tenant.Caller, sub)
		if err != nil {
			t.Error(err)
			return
		}
		start, end := uint64(made.CursorSequence), uint64(*retired.RetiredSequence)
		var events, acked, other, above int
		err = db.SQL.QueryRow(`
SELECT (SELECT COUNT(*) FROM result_events WHERE namespace_id = ? AND type = 'task.cancelled' AND sequence > ? AND sequence <= ?),
  COALESCE(SUM(state = 'ACKED' AND sequence > ? AND sequence <= ?), 0), COALESCE(SUM(state <> 'ACKED'), 0), COALESCE(SUM(sequence > ?), 0)
FROM deliveries WHERE namespace_id = ? AND subscription_id = ?`,
			tenant.NamespaceID[:], start, end, start, end, end, tenant.NamespaceID[:], sub[:]).Scan(&events, &acked, &other, &above)
		if err != nil {
			t.Error(err)
		}
		if events != acked || other != 0 || above != 0 || retired.CursorSequence != *retired.RetiredSequence || retired.PendingCount != 0 {
			t.Errorf("subscription %s retired at %d of (%d, …]: %d events, %d acknowledged, %d in other states, %d above; %+v", sub, end, start, events, acked, other, above, retired)
		}
		before.Add(int64(events))
		after.Add(int64(len(tasks) - events))
	})
	t.Logf("%d events before the retirement, %d after it; %d refusals; %d transactions retried", before.Load(), after.Load(), busy.Load(), db.Management.Retries()+db.Gateway.Retries())
	if before.Load() == 0 || after.Load() == 0 || busy.Load() == 0 {
		t.Error("the race was none")
	}
}

// TestRaceOfRetiredQueue: against submit, claim, outcome, subscription, schedule fire, flow start and progress. Never does something live
// depend on a retired queue; each of the others is told RESOURCE_RETIRED or came first.
func TestRaceOfRetiredQueue(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	var retired, busy, refused, made atomic.Int64
	inRounds(t, db, func(home storetest.Tenant) {
		if rand.IntN(2) == 0 { // quotas are locked first, where there are any
			if err := db.Owner.SetQuota(context.Background(), home.NamespaceID, home.ApplicationID, 100, 100); err != nil {
				t.Error(err)
			}
		}
		tenant := newQueue(t, db, home)
		var others sync.WaitGroup
		for name, act := range actorsOnAQueue {
			if rand.IntN(3) > 0 { // a few a round: with all of them something is always in the way
				continue
			}
			others.Go(func() {
				pause()
				switch err := act(t, db, tenant); {
				case err == nil:
					made.Add(1)
				case errs.Is(err, errs.ResourceRetired):
					refused.Add(1)
				default:
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		w := tenant.Write()
		for range 4 {
			pause()
			_, err := retireQueue(db.Management, w, tenant.QueueID, 1)
			switch {
			case err == nil:
				retired.Add(1)
			case errs.Is(err, errs.ResourceBusy):
				busy.Add(1)
				continue
			default:
				t.Error(err)
			}
			break
		}
		others.Wait()
	})
	for what, query := range liveOnRetired {
		var n int
		if err := db.SQL.QueryRow("SELECT COUNT(*) FROM queues q JOIN " + query + " WHERE q.retired_at IS NOT NULL").Scan(&n); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n != 0 {
			t.Errorf("%d %s depend on retired queues", n, what)
		}
	}
	t.Logf("%d of %d queues retired, %d refusals as busy; of the others %d came first, %d were refused; %d transactions retried",
		retired.Load(), raceRounds(t), busy.Load(), made.Load(), refused.Load(), db.Management.Retries()+db.Gateway.Retries())
	if retired.Load() == 0 || busy.Load() == 0 || made.Load() == 0 || refused.Load() == 0 {
		t.Error("the race was none")
	}
}

// liveOnRetired finds what must never depend on a retired queue q.
var liveOnRetired = map[string]string{
	"unfinished tasks":   "tasks t ON t.namespace_id = q.namespace_id AND t.queue_id = q.id AND t.state IN ('QUEUED', 'RUNNING', 'NEEDS_REVIEW')",
	"ready rows":         "ready_tasks t ON t.namespace_id = q.namespace_id AND t.queue_id = q.id",
	"permits":            "permits t ON t.namespace_id = q.namespace_id AND t.queue_id = q.id",
	"enabled schedules":  "schedules t ON t.namespace_id = q.namespace_id AND t.queue_id = q.id AND t.state = 'ENABLED'",
	"live flow runs":     "flow_version_queues v ON v.namespace_id = q.namespace_id AND v.queue_id = q.id JOIN flow_runs r ON r.namespace_id = v.namespace_id AND r.flow_id = v.flow_id AND r.version = v.version AND r.live = 1",
	"live subscriptions": "subscriptions t ON t.namespace_id = q.namespace_id AND t.queue_id = q.id AND t.retired_at IS NULL",
}
