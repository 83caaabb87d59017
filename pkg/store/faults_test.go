package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// writePath prepares a tenant and returns one write on it. The write may be repeated: it carries the
// same key or the same proof each time. Its answer must not depend on how often it was tried.
type writePath struct {
	name    string
	prepare func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(ctx context.Context, s *store.Store) (string, error)
	// keyed: a repeat after a lost answer is settled by the receipt; the others by the row's guard.
	keyed bool
}

func revision(n uint64) *ids.Counter { c := ids.Counter(n); return &c }

func state(r store.Receipt, err error) (string, error) {
	if err != nil {
		return "", err
	}
	for _, key := range []string{`"state":"`, `"enabled":`, `"name":"`} {
		if _, rest, ok := strings.Cut(string(r.Snapshot), key); ok {
			return rest[:3], nil
		}
	}
	return "?", nil
}

func writePaths() []writePath {
	expired := func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) (sub, id ids.ID) {
		sub = db.Subscribe(t, tenant, subscription.Create{MaxAttempts: 1})
		db.Outcome(t, tenant, `1`)
		id = claimOne(t, db, tenant, sub).Delivery.ID
		if _, err := db.SQL.Exec("UPDATE deliveries SET lease_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE id = ?", id[:]); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Gateway.ClaimDeliveries(context.Background(), tenant.NamespaceID, sub, nil); err != nil {
			t.Fatal(err)
		}
		return sub, id
	}
	outcome := func(o task.Outcome) func(*testing.T, *storetest.DB, storetest.Tenant) func(context.Context, *store.Store) (string, error) {
		return func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			db.Submit(t, tenant, `1`)
			o.Proof = storetest.ProofOf(db.Claim(t, tenant, 1)[0])
			return func(ctx context.Context, s *store.Store) (string, error) {
				out, err := s.FinishAttempts(ctx, tenant.NamespaceID, tenant.QueueID, []task.Outcome{o})
				if err != nil {
					return "", err
				}
				return string(out.Results[0].State), out.Results[0].Err
			}
		}
	}
	return []writePath{
		{"create queue", func(_ *testing.T, _ *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			w, create := tenant.Write(), queue.Create{Name: "second", LeaseDurationMS: 5000}
			return func(ctx context.Context, s *store.Store) (string, error) { return state(s.CreateQueue(ctx, w, create)) }
		}, true},
		{"configure queue", func(_ *testing.T, _ *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			w, on := tenant.Write(), true
			return func(ctx context.Context, s *store.Store) (string, error) {
				return state(s.ConfigureQueue(ctx, w, tenant.QueueID, queue.Configure{ExpectedRevision: revision(1), Reason: "r", Paused: &on}))
			}
		}, true},
		{"submit", func(_ *testing.T, _ *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			w := tenant.Write()
			sub := task.Submit{QueueID: &tenant.QueueID, Input: strictjson.Raw(`1`), RetrySafety: "safe", MaxAttempts: 1, Labels: map[string]string{"a": "b"}}
			return func(ctx context.Context, s *store.Store) (string, error) { return state(s.SubmitTask(ctx, w, sub)) }
		}, true},
		{"cancel queued", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			w, id := tenant.Write(), db.Submit(t, tenant, `1`)
			return func(ctx context.Context, s *store.Store) (string, error) {
				return state(s.CancelTask(ctx, w, id, task.Cancel{ExpectedRevision: revision(1), Reason: "r"}))
			}
		}, true},
		{"cancel running", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			w, id := tenant.Write(), db.Submit(t, tenant, `1`)
			db.Claim(t, tenant, 1)
			return func(ctx context.Context, s *store.Store) (string, error) {
				return state(s.CancelTask(ctx, w, id, task.Cancel{ExpectedRevision: revision(2), Reason: "r"}))
			}
		}, true},
		{"resolve", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			w, id := tenant.Write(), db.Submit(t, tenant, `1`)
			db.Claim(t, tenant, 1)
			if _, err := db.SQL.Exec("UPDATE permits SET lease_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND"); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Management.SweepAttempts(context.Background(), 10); err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context, s *store.Store) (string, error) {
				return state(s.ResolveTask(ctx, w, id, task.Resolve{ExpectedRevision: revision(3), Outcome: "requeue", Reason: "r"}))
			}
		}, true},
		{"create subscription", func(_ *testing.T, _ *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			w := tenant.Write()
			n := subscription.New{Name: "s", QueueID: tenant.QueueID, Types: 15, MaxPending: 1, MaxAttempts: 1}
			return func(ctx context.Context, s *store.Store) (string, error) {
				return state(s.CreateSubscription(ctx, w, n))
			}
		}, true},
		{"configure subscription", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			w, id, off := tenant.Write(), db.Subscribe(t, tenant, subscription.Create{}), false
			return func(ctx context.Context, s *store.Store) (string, error) {
				return state(s.ConfigureSubscription(ctx, w, id, subscription.Configure{ExpectedRevision: revision(1), Enabled: &off, Reason: "r"}))
			}
		}, true},
		{"retry delivery", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			sub, id := expired(t, db, tenant)
			w := tenant.Write()
			return func(ctx context.Context, s *store.Store) (string, error) {
				return state(s.RetryDelivery(ctx, w, sub, id, delivery.Retry{ExpectedRevision: revision(3), Reason: "r", AdditionalAttempts: 1}))
			}
		}, true},
		{"complete", outcome(task.Outcome{Kind: task.OutcomeComplete, Result: strictjson.Raw(`1`)}), false},
		{"fail, retried", outcome(task.Outcome{Kind: task.OutcomeFail, Failure: &task.Failure{Code: "E"}, Retryable: true}), false},
		{"fail", outcome(task.Outcome{Kind: task.OutcomeFail, Failure: &task.Failure{Code: "E"}}), false},
		{"ack", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			sub := db.Subscribe(t, tenant, subscription.Create{})
			db.Outcome(t, tenant, `1`)
			c := claimOne(t, db, tenant, sub)
			command := delivery.Command{Kind: delivery.Ack, Proof: delivery.Proof{DeliveryID: c.Delivery.ID, Epoch: c.Delivery.LeaseEpoch, Digest: c.Secret.Digest()}}
			return func(ctx context.Context, s *store.Store) (string, error) {
				out, _, err := s.SettleDeliveries(ctx, tenant.NamespaceID, sub, tenant.CredentialID, []delivery.Command{command}, nil)
				if err != nil {
					return "", err
				}
				return out[0].EventID.String(), out[0].Err
			}
		}, false},
	}
}

// claims are the writes without a proof to repeat: a lost answer is a lease that runs out.
func claims() []writePath {
	return []writePath{
		{"claim tasks", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			db.Submit(t, tenant, `1`)
			return func(ctx context.Context, s *store.Store) (string, error) {
				out, err := s.ClaimTasks(ctx, tenant.NamespaceID, tenant.QueueID, []store.WorkerWant{{SessionID: ids.New(), Worker: "w", Free: 2}})
				return fmt.Sprint(len(out)), err
			}
		}, false},
		{"claim deliveries", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			sub := db.Subscribe(t, tenant, subscription.Create{})
			db.Outcome(t, tenant, `1`)
			return func(ctx context.Context, s *store.Store) (string, error) {
				turn, err := s.ClaimDeliveries(ctx, tenant.NamespaceID, sub, []store.SessionWant{{SessionID: ids.New(), Capacity: 2}})
				return fmt.Sprint(len(turn.Claimed)), err
			}
		}, false},
		{"sweep", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			db.Submit(t, tenant, `1`)
			db.Claim(t, tenant, 1)
			if _, err := db.SQL.Exec("UPDATE permits SET lease_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE namespace_id = ?", tenant.NamespaceID[:]); err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context, s *store.Store) (string, error) {
				n, err := s.SweepAttempts(ctx, 10)
				return fmt.Sprint(n), err
			}
		}, false},
	}
}

func claimOne(t *testing.T, db *storetest.DB, tenant storetest.Tenant, sub ids.ID) store.Claimed {
	t.Helper()
	turn, err := db.Gateway.ClaimDeliveries(context.Background(), tenant.NamespaceID, sub, []store.SessionWant{{SessionID: ids.New(), Capacity: 1}})
	if err != nil || len(turn.Claimed) != 1 {
		t.Fatal(turn, err)
	}
	return turn.Claimed[0]
}

// inTransaction counts the statements of transactions, COMMIT included, and lets one meet its fate.
type inTransaction struct {
	mu   sync.Mutex
	n    int
	seen bool // a transaction has begun
	at   int  // 0: none
	fate storetest.Fate
	only string // only this statement counts
}

func (c *inTransaction) decide(query string) storetest.Fate {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = c.seen || query == "START TRANSACTION"
	if !c.seen || query == "START TRANSACTION" || query == "ROLLBACK" || strings.HasPrefix(query, "SET ") || c.only != "" && query != c.only {
		return storetest.Pass
	}
	if c.n++; c.n == c.at {
		return c.fate
	}
	return storetest.Pass
}

// C2: error 1213 at each statement of each write path re-runs the whole transaction, to the same answer.
func TestADeadlockAnywhereReRunsTheWhole(t *testing.T) {
	t.Parallel()
	for _, path := range slices.Concat(writePaths(), claims(), schedulePaths(), retirePaths()) {
		t.Run(path.name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			p := db.NewProxy(t)
			run := func(at int) (answer string, statements int, rows string) {
				tenant := db.Tenant(t)
				write := path.prepare(t, db, tenant)
				count := &inTransaction{at: at, fate: storetest.Deadlock}
				p.Decide(count.decide)
				defer p.Decide(nil)
				answer, err := write(context.Background(), p.Store)
				if err != nil {
					t.Fatalf("1213 at statement %d: %v", at, err)
				}
				return answer, count.n, footprint(t, db, tenant)
			}
			answer, statements, rows := run(0)
			if path.name == "ack" {
				answer = "" // an event's id differs from tenant to tenant
			}
			if statements < 3 {
				t.Fatalf("only %d statements were seen", statements)
			}
			for at := 1; at <= statements; at++ {
				got, n, gotRows := run(at)
				if path.name == "ack" {
					got = ""
				}
				if got != answer || gotRows != rows {
					t.Errorf("1213 at statement %d of %d: %s with rows %s, without it %s with %s", at, statements, got, gotRows, answer, rows)
				}
				if n <= at {
					t.Errorf("1213 at statement %d: nothing was run again", at)
				}
			}
			if p.Store.Retries() == 0 {
				t.Error("no retry was counted")
			}
		})
	}
}

// C3: the connection dies around COMMIT, before or after it took effect. The caller hears UNAVAILABLE
// and repeats with the same key or proof: exactly one effect.
func TestAConnectionThatDiesAroundCommit(t *testing.T) {
	t.Parallel()
	for _, path := range slices.Concat(writePaths(), schedulePaths(), retirePaths()) {
		t.Run(path.name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			p := db.NewProxy(t)
			clean := db.Tenant(t)
			want, err := path.prepare(t, db, clean)(context.Background(), db.Owner)
			if err != nil {
				t.Fatal(err)
			}
			rows := footprint(t, db, clean)
			for name, fate := range map[string]storetest.Fate{"before": storetest.DropBefore, "after": storetest.DropAfter} {
				tenant := db.Tenant(t)
				write := path.prepare(t, db, tenant)
				p.Decide((&inTransaction{at: 1, fate: fate, only: "COMMIT"}).decide)
				if _, err := write(context.Background(), p.Store); !errs.Is(err, errs.Unavailable) {
					t.Errorf("lost %s COMMIT: %v, want UNAVAILABLE", name, err)
				}
				p.Decide(nil)
				for range 2 {
					got, err := write(context.Background(), p.Store)
					if err != nil || path.name != "ack" && got != want {
						t.Errorf("repeated after a loss %s COMMIT: %q, %v; want %q", name, got, err, want)
					}
				}
				if got := footprint(t, db, tenant); got != rows {
					t.Errorf("lost %s COMMIT: rows %s, want %s", name, got, rows)
				}
			}
		})
	}
}

// footprint counts what a tenant has in every table that a write path touches.
func footprint(t *testing.T, db *storetest.DB, tenant storetest.Tenant) string {
	t.Helper()
	var b strings.Builder
	for _, table := range []string{"receipts", "audit", "queues", "tasks", "ready_tasks", "task_labels", "permits", "attempts", "result_events", "subscriptions", "deliveries", "schedules", "schedule_versions", "schedule_fires"} {
		var n int
		if err := db.SQL.QueryRow("SELECT COUNT(*) FROM "+table+" WHERE namespace_id = ?", tenant.NamespaceID[:]).Scan(&n); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s=%d ", table, n)
	}
	var head, pending int
	if err := db.SQL.QueryRow("SELECT head, (SELECT COALESCE(SUM(pending_count), 0) FROM subscriptions s WHERE s.namespace_id = r.namespace_id) FROM result_streams r WHERE namespace_id = ?",
		tenant.NamespaceID[:]).Scan(&head, &pending); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "head=%d pending=%d", head, pending)
	return b.String()
}
