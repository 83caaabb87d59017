package storetest

import (
	"context"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// Tenant is a namespace with one queue and a credential that may do everything in it.
type Tenant struct {
	store.Bootstrapped
	Caller *access.Caller
}

// Tenant bootstraps a namespace of a fresh name.
func (db *DB) Tenant(t testing.TB) Tenant {
	t.Helper()
	return db.TenantWith(t, queue.Create{Name: "main"}, access.Actions)
}

// TenantWith bootstraps a namespace with this queue and these actions, for all queues.
func (db *DB) TenantWith(t testing.TB, q queue.Create, actions []access.Action) Tenant {
	t.Helper()
	out, err := db.Owner.Bootstrap(context.Background(), store.Bootstrap{
		Namespace: "ns-" + ids.New().String(), Application: "app", Credential: "test", Queue: q, Actions: actions, AllQueues: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	caller, err := db.Owner.Authenticate(context.Background(), out.Token)
	if err != nil {
		t.Fatal(err)
	}
	return Tenant{Bootstrapped: out, Caller: caller}
}

// Write is a write under a fresh idempotency key.
func (t Tenant) Write() store.Write {
	return store.Write{Caller: t.Caller, Key: ids.New().String(), RequestID: ids.New()}
}

// Subscribe makes a subscription to the tenant's queue and returns its id.
func (db *DB) Subscribe(t testing.TB, tenant Tenant, create subscription.Create) ids.ID {
	t.Helper()
	if create.Name == "" {
		create.Name = "s-" + ids.New().String()
	}
	if create.QueueID == nil {
		create.QueueID = &tenant.QueueID
	}
	n, err := create.Normalise()
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := db.Management.CreateSubscription(context.Background(), tenant.Write(), n)
	if err != nil {
		t.Fatal(err)
	}
	return idIn(t, receipt.Snapshot)
}

// Submit queues a task with this input and returns its id.
func (db *DB) Submit(t testing.TB, tenant Tenant, input string, change ...func(*task.Submit)) ids.ID {
	t.Helper()
	sub := task.Submit{QueueID: &tenant.QueueID, Input: strictjson.Raw(input)}
	for _, c := range change {
		c(&sub)
	}
	if err := sub.Normalise(); err != nil {
		t.Fatal(err)
	}
	receipt, err := db.Management.SubmitTask(context.Background(), tenant.Write(), sub)
	if err != nil {
		t.Fatal(err)
	}
	return idIn(t, receipt.Snapshot)
}

func idIn(t testing.TB, snapshot []byte) ids.ID {
	t.Helper()
	const start = len(`{"id":"`)
	id, err := ids.ParseID(string(snapshot[start : start+32]))
	if err != nil {
		t.Fatalf("no id in %s: %v", snapshot, err)
	}
	return id
}

// Outcome submits a task, runs it and completes it with this result: one event in the log.
func (db *DB) Outcome(t testing.TB, tenant Tenant, result string) {
	t.Helper()
	db.Submit(t, tenant, `null`)
	for _, a := range db.Claim(t, tenant, 1) {
		db.Complete(t, tenant, a, result)
	}
}

// Claim takes up to n ready tasks of the tenant's queue for a session of its own.
func (db *DB) Claim(t testing.TB, tenant Tenant, n int) []store.Assignment {
	t.Helper()
	out, err := db.Gateway.ClaimTasks(context.Background(), tenant.NamespaceID, tenant.QueueID, []store.WorkerWant{{SessionID: ids.New(), Worker: "test", Free: n}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Complete finishes an assignment.
func (db *DB) Complete(t testing.TB, tenant Tenant, a store.Assignment, result string) {
	t.Helper()
	out, err := db.Gateway.FinishAttempts(context.Background(), tenant.NamespaceID, tenant.QueueID, []task.Outcome{{
		Kind: task.OutcomeComplete, Proof: ProofOf(a), Result: strictjson.Raw(result),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if out.Results[0].Err != nil {
		t.Fatal(out.Results[0].Err)
	}
}

// ProofOf is the proof that a worker would send for an assignment.
func ProofOf(a store.Assignment) task.Proof {
	return task.Proof{AttemptID: a.Attempt.ID, Epoch: a.Attempt.Epoch, Digest: a.Secret.Digest()}
}
