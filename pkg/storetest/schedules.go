package storetest

import (
	"context"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

// DraftSchedule makes a schedule on the tenant's queue that was not published: its revision is 1.
func (db *DB) DraftSchedule(t testing.TB, tenant Tenant, spec schedule.Spec) ids.ID {
	t.Helper()
	if spec.Task == nil {
		spec.Task = &schedule.Template{Input: strictjson.Raw(`1`)}
	}
	create := schedule.Create{Name: "s-" + ids.New().String(), QueueID: &tenant.QueueID, Spec: spec}
	if err := create.Normalise(); err != nil {
		t.Fatal(err)
	}
	receipt, err := db.Management.CreateSchedule(context.Background(), tenant.Write(), create)
	if err != nil {
		t.Fatal(err)
	}
	return idIn(t, receipt.Snapshot)
}

// Schedule makes an ENABLED schedule; its revision is 2.
func (db *DB) Schedule(t testing.TB, tenant Tenant, spec schedule.Spec) ids.ID {
	t.Helper()
	id := db.DraftSchedule(t, tenant, spec)
	if _, err := db.Management.PublishSchedule(context.Background(), tenant.Write(), id, AtRevision(1)); err != nil {
		t.Fatal(err)
	}
	return id
}

// AtRevision is a command on a schedule at this revision.
func AtRevision(n uint64) schedule.Command {
	revision := ids.Counter(n)
	return schedule.Command{ExpectedRevision: &revision, Reason: "test"}
}
