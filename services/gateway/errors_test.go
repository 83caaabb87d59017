package main

import (
	"context"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// cancelTask submits a task and cancels it: one task.cancelled in the log.
func cancelTask(t *testing.T, db *storetest.DB, tenant storetest.Tenant) {
	t.Helper()
	id, revision := db.Submit(t, tenant, `null`), ids.Counter(1)
	if _, err := db.Management.CancelTask(context.Background(), tenant.Write(), id, task.Cancel{ExpectedRevision: &revision, Reason: "r"}); err != nil {
		t.Fatal(err)
	}
}

// withdraw takes events:consume, or the queues, from the tenant's credential.
func withdraw(t *testing.T, db *storetest.DB, tenant storetest.Tenant, queues bool) {
	t.Helper()
	rights := store.Rights{AllQueues: queues}
	if !queues {
		rights.Actions = []access.Action{access.EventsConsume}
	}
	if err := db.Owner.WithdrawRights(context.Background(), tenant.CredentialID, rights); err != nil {
		t.Fatal(err)
	}
}

// passRetention appends one event and removes the log up to it.
func passRetention(t *testing.T, db *storetest.DB, tenant storetest.Tenant) {
	t.Helper()
	if _, err := db.SQL.Exec("UPDATE result_streams SET head = head + 1, boundary = head WHERE namespace_id = ?", tenant.NamespaceID[:]); err != nil {
		t.Fatal(err)
	}
}
