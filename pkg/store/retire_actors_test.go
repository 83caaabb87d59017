package store_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// actor is one thing that may make something depend on a queue, in a race with its retirement.
type actor func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) error

var actorsOnAQueue = map[string]actor{
	"submit": func(_ *testing.T, db *storetest.DB, tenant storetest.Tenant) error {
		sub := task.Submit{QueueID: &tenant.QueueID, Input: strictjson.Raw(`1`)}
		if err := sub.Normalise(); err != nil {
			return err
		}
		_, _, err := db.Management.SubmitTasks(context.Background(), tenant.Write(), []task.Submit{sub, sub})
		return err
	},
	"worker": func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) error { // hello, then what a worker does
		q, err := db.Gateway.GetQueue(context.Background(), tenant.Caller, tenant.QueueID)
		if err != nil {
			return err
		}
		if err := q.Refuse(); err != nil {
			return err
		}
		for range 3 {
			pause()
			for _, a := range db.Claim(t, tenant, 2) {
				pause()
				db.Complete(t, tenant, a, `1`)
			}
		}
		return nil
	},
	"subscribe": func(_ *testing.T, db *storetest.DB, tenant storetest.Tenant) error {
		n, err := subscription.Create{Name: "s-" + ids.New().String(), QueueID: &tenant.QueueID}.Normalise()
		if err != nil {
			return err
		}
		receipt, err := db.Management.CreateSubscription(context.Background(), tenant.Write(), n)
		if err != nil {
			return err
		}
		pause()
		id, err := ids.ParseID(string(receipt.Snapshot[len(`{"id":"`):][:32]))
		if err != nil {
			return err
		}
		_, err = retireSubscription(db.Management, tenant.Write(), id, 1)
		if errs.Is(err, errs.ResourceBusy) {
			return nil // it stays, and so must the queue
		}
		return err
	},
	"schedule": scheduleActor,
	"flow":     flowActor,
}

// scheduleActor makes a schedule that is due at once, fires it, and pauses it.
func scheduleActor(_ *testing.T, db *storetest.DB, tenant storetest.Tenant) error {
	ctx := context.Background()
	create := schedule.Create{Name: "s-" + ids.New().String(), QueueID: &tenant.QueueID, Spec: schedule.Spec{Every: 3600, Task: &schedule.Template{Input: strictjson.Raw(`1`)}}}
	if err := create.Normalise(); err != nil {
		return err
	}
	receipt, err := db.Management.CreateSchedule(ctx, tenant.Write(), create)
	if err != nil {
		return err
	}
	id, err := ids.ParseID(string(receipt.Snapshot[len(`{"id":"`):][:32]))
	if err != nil {
		return err
	}
	pause()
	if _, err := db.Management.PublishSchedule(ctx, tenant.Write(), id, storetest.AtRevision(1)); err != nil {
		return err
	}
	if _, err := db.SQL.Exec("UPDATE schedules SET next_at = next_at - INTERVAL 1 HOUR WHERE id = ?", id[:]); err != nil {
		return err
	}
	pause()
	if _, err := db.Management.FireDueSchedules(ctx, 100); err != nil {
		return err
	}
	pause()
	_, err = db.Management.PauseSchedule(ctx, tenant.Write(), id, storetest.AtRevision(2))
	return err
}

// flowActor publishes a flow of two steps, starts it, follows it a while, and cancels it sometimes.
func flowActor(_ *testing.T, db *storetest.DB, tenant storetest.Tenant) error {
	ctx := context.Background()
	create := flow.Create{Name: "f-" + ids.New().String(), Steps: []flow.Step{
		{Name: "a", QueueID: &tenant.QueueID, Input: strictjson.Raw(`1`)},
		{Name: "b", QueueID: &tenant.QueueID, Input: strictjson.Raw(`1`), DependsOn: []string{"a"}},
	}}
	plan, err := create.Plan()
	if err != nil {
		return err
	}
	made, err := db.Management.CreateFlow(ctx, tenant.Write(), create.Name, plan)
	if err != nil {
		return err
	}
	id, err := ids.ParseID(string(made.Snapshot[len(`{"id":"`):][:32]))
	if err != nil {
		return err
	}
	pause()
	start := flow.Start{Input: strictjson.Raw(`1`)}
	if err := start.Normalise(); err != nil {
		return err
	}
	receipt, err := db.Management.StartFlow(ctx, tenant.Write(), id, start)
	if err != nil {
		return err
	}
	run, err := ids.ParseID(string(receipt.Snapshot[len(`{"id":"`):][:32]))
	if err != nil {
		return err
	}
	for range 3 {
		pause()
		lags, err := db.Management.FlowLags(ctx)
		if err != nil {
			return err
		}
		for _, lag := range lags {
			if _, err := db.Management.FollowLog(ctx, lag); err != nil {
				return err
			}
		}
	}
	if rand.IntN(2) == 0 {
		return nil
	}
	_, err = db.Management.CommandRun(ctx, tenant.Write(), run, flow.Cancel, flow.Command{Reason: "r"})
	if errs.Is(err, errs.StateConflict) {
		return nil // it has ended
	}
	return err
}
