package store_test

import (
	"context"
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

func retireQueue(s *store.Store, w store.Write, id ids.ID, revision uint64) (*queue.Queue, error) {
	expected := ids.Counter(revision)
	receipt, err := s.RetireQueue(context.Background(), w, id, queue.Retire{ExpectedRevision: &expected, Reason: "done"})
	if err != nil {
		return nil, err
	}
	var out queue.Queue
	return &out, json.Unmarshal(receipt.Snapshot, &out)
}

// newQueue makes another queue of the tenant's; the returned tenant submits to it.
func newQueue(t *testing.T, db *storetest.DB, tenant storetest.Tenant) storetest.Tenant {
	t.Helper()
	create := queue.Create{Name: "q-" + ids.New().String()}
	must(t, create.Normalise())
	receipt, err := db.Management.CreateQueue(context.Background(), tenant.Write(), create)
	must(t, err)
	var q queue.Queue
	must(t, json.Unmarshal(receipt.Snapshot, &q))
	tenant.QueueID = q.ID
	return tenant
}

// blocker is one condition of R7.2: how it comes about, what the refusal calls it, how it goes.
type blocker struct {
	text string
	make func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) (clear func())
}

var blockersOfAQueue = []blocker{
	{"1 QUEUED task,", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func() {
		id := db.Submit(t, tenant, `1`, func(s *task.Submit) { s.Priority = -1 })
		return func() { cancelTask(t, db, tenant, id) }
	}},
	{"1 RUNNING task,", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func() {
		db.Submit(t, tenant, `1`)
		a := db.Claim(t, tenant, 1)[0]
		execSQL(t, db, "DELETE FROM permits WHERE attempt_id = ?", a.Attempt.ID[:]) // the task alone
		return func() {
			execSQL(t, db, "UPDATE tasks SET state = 'FAILED', finished_at = updated_at WHERE id = ?", a.Task.ID[:])
		}
	}},
	{"1 NEEDS_REVIEW task,", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func() {
		db.Submit(t, tenant, `1`)
		a := db.Claim(t, tenant, 1)[0]
		execSQL(t, db, "UPDATE permits SET lease_until = '2020-01-01' WHERE attempt_id = ?", a.Attempt.ID[:])
		if n, err := db.Management.SweepAttempts(context.Background(), 10); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		return func() { resolveTask(t, db, tenant, a.Task.ID, "failed") }
	}},
	{"1 attempt in flight,", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func() {
		db.Submit(t, tenant, `1`)
		a := db.Claim(t, tenant, 1)[0]
		execSQL(t, db, "UPDATE tasks SET state = 'FAILED', finished_at = updated_at WHERE id = ?", a.Task.ID[:]) // the permit alone
		return func() { execSQL(t, db, "DELETE FROM permits WHERE attempt_id = ?", a.Attempt.ID[:]) }
	}},
	{"1 enabled schedule,", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func() {
		id := db.Schedule(t, tenant, schedule.Spec{Every: 3600})
		db.DraftSchedule(t, tenant, schedule.Spec{Every: 3600}) // fires nothing, so it does not count
		return func() {
			_, err := db.Management.PauseSchedule(context.Background(), tenant.Write(), id, storetest.AtRevision(2))
			must(t, err)
		}
	}},
	{"3 flow runs that have not ended,", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func() {
		// Its step is one that is not reached: the run waits elsewhere, or is paused, or waits for a review.
		elsewhere := &flowRig{db, newQueue(t, db, tenant)}
		id := elsewhere.publish(t, elsewhere.step("a", `1`), flow.Step{Name: "b", QueueID: &tenant.QueueID, Input: strictjson.Raw(`1`), DependsOn: []string{"a"}})
		review := elsewhere.start(t, id, `1`)
		lost := elsewhere.lose(t)
		running, paused := elsewhere.start(t, id, `1`), elsewhere.start(t, id, `1`)
		must(t, elsewhere.command(t, paused, flow.Pause))
		for run, state := range map[ids.ID]flow.State{review: flow.WaitingReview, running: flow.Running, paused: flow.Paused} {
			if got := elsewhere.get(t, run).State; got != state {
				t.Fatalf("run is %s, want %s", got, state)
			}
		}
		return func() {
			must(t, elsewhere.command(t, running, flow.Cancel))
			must(t, elsewhere.command(t, paused, flow.Cancel))
			resolveTask(t, db, tenant, lost, "failed")
			elsewhere.follow(t)
		}
	}},
	{"2 subscriptions that are not retired,", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func() {
		live, paused := db.Subscribe(t, tenant, subscription.Create{}), db.Subscribe(t, tenant, subscription.Create{})
		execSQL(t, db, "UPDATE subscriptions SET enabled = 0 WHERE id = ?", paused[:])
		return func() {
			for _, id := range []ids.ID{live, paused} {
				execSQL(t, db, "UPDATE subscriptions s JOIN result_streams r USING (namespace_id) SET s.cursor_sequence = r.head WHERE s.id = ?", id[:])
				_, err := retireSubscription(db.Management, tenant.Write(), id, 1)
				must(t, err)
			}
		}
	}},
}

func cancelTask(t *testing.T, db *storetest.DB, tenant storetest.Tenant, id ids.ID) {
	t.Helper()
	got, err := db.Management.GetTask(context.Background(), tenant.Caller, id)
	must(t, err)
	_, err = db.Management.CancelTask(context.Background(), tenant.Write(), id, task.Cancel{ExpectedRevision: &got.Revision, Reason: "r"})
	must(t, err)
}

func resolveTask(t *testing.T, db *storetest.DB, tenant storetest.Tenant, id ids.ID, outcome string) {
	t.Helper()
	got, err := db.Management.GetTask(context.Background(), tenant.Caller, id)
	must(t, err)
	_, err = db.Management.ResolveTask(context.Background(), tenant.Write(), id, task.Resolve{ExpectedRevision: &got.Revision, Outcome: outcome, Reason: "r"})
	must(t, err)
}

// TestRetireQueueNamesAllThatUsesIt: every condition of R7.2 alone, with each other one, and all
// together, named with its count and nothing else named; nothing changes. Once they are gone, it retires.
func TestRetireQueueNamesAllThatUsesIt(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	home := db.Tenant(t)
	all := 1<<len(blockersOfAQueue) - 1
	for set := 1; set <= all; set++ {
		if bits.OnesCount(uint(set)) > 2 && set != all {
			continue
		}
		tenant := newQueue(t, db, home)
		var clear []func()
		name := fmt.Sprintf("set %b", set)
		for i, b := range blockersOfAQueue {
			if set&(1<<i) != 0 {
				clear = append(clear, b.make(t, db, tenant))
			}
		}
		var message string
		wantUnchanged(t, db, name, errs.ResourceBusy, []string{"queue " + tenant.QueueID.String()}, func() error {
			_, err := retireQueue(db.Management, tenant.Write(), tenant.QueueID, 1)
			message = errs.MessageOf(err)
			return err
		})
		message = strings.Replace(message, "; nothing", ",; nothing", 1)
		for i, b := range blockersOfAQueue {
			if named := strings.Contains(message, " "+b.text); named != (set&(1<<i) != 0) {
				t.Errorf("%s: %q, names %q: %v", name, message, b.text, named)
			}
		}
		for i := len(clear) - 1; i >= 0; i-- {
			clear[i]()
		}
		if got, err := retireQueue(db.Management, tenant.Write(), tenant.QueueID, 1); err != nil || got.RetiredAt == nil {
			t.Errorf("%s, cleared: %+v, %v", name, got, err)
		}
	}
}

// TestRetireQueue: a used and settled queue retires; then nothing new, and all that was stays readable.
func TestRetireQueue(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.TenantWith(t, queue.Create{Name: "q"}, access.Actions)
	ctx := context.Background()
	w := tenant.Write()
	sub := task.Submit{QueueID: &tenant.QueueID, Input: strictjson.Raw(`{"n":1}`)}
	must(t, sub.Normalise())
	first, err := db.Management.SubmitTask(ctx, w, sub)
	must(t, err)
	a := db.Claim(t, tenant, 1)[0]
	db.Complete(t, tenant, a, `2`)
	drafted, paused := db.DraftSchedule(t, tenant, schedule.Spec{Every: 3600}), db.Schedule(t, tenant, schedule.Spec{Every: 3600})
	_, err = db.Management.PauseSchedule(ctx, tenant.Write(), paused, storetest.AtRevision(2))
	must(t, err)
	flows := &flowRig{db, tenant}
	known := flows.publish(t, flows.step("a", `1`))
	ended := flows.start(t, known, `1`)
	flows.fail(t)
	retire := tenant.Write()
	for _, revision := range []uint64{0, 2} {
		wantUnchanged(t, db, "stale", errs.StateConflict, []string{"at revision 1"}, func() error {
			_, err := retireQueue(db.Management, tenant.Write(), tenant.QueueID, revision)
			return err
		})
	}
	got, err := retireQueue(db.Management, retire, tenant.QueueID, 1)
	must(t, err)
	if !got.Paused || got.Revision != 2 || got.RetiredAt == nil || !got.RetiredAt.Equal(got.UpdatedAt) {
		t.Errorf("retired as %+v", got)
	}
	wantAudited(t, db, tenant, "queue.retire", tenant.QueueID, `{"reason":"done"}`)

	// Old keys answer as before.
	again, err := retireQueue(db.Management, retire, tenant.QueueID, 1)
	if err != nil || !again.RetiredAt.Equal(*got.RetiredAt) {
		t.Errorf("the same key: %+v, %v", again, err)
	}
	if second, err := db.Management.SubmitTask(ctx, w, sub); err != nil || !second.Deduplicated || string(second.Snapshot) != string(first.Snapshot) {
		t.Errorf("an old submit: %+v, %v", second, err)
	}
	create := subscription.Create{Name: "late", QueueID: &tenant.QueueID}
	n, err := create.Normalise()
	must(t, err)
	live := newQueue(t, db, tenant).QueueID
	draft := schedule.Create{Name: "late", QueueID: &tenant.QueueID, Spec: schedule.Spec{Every: 3600, Task: &schedule.Template{Input: strictjson.Raw(`1`)}}}
	must(t, draft.Normalise())
	steps := flow.Create{Name: "late", Steps: []flow.Step{
		{Name: "a", QueueID: &live, Input: strictjson.Raw(`1`)}, {Name: "b", QueueID: &tenant.QueueID, Input: strictjson.Raw(`1`), DependsOn: []string{"a"}},
	}}
	plan, err := steps.Plan()
	must(t, err)
	begin := flow.Start{Input: strictjson.Raw(`1`)}
	must(t, begin.Normalise())
	one, off := ids.Counter(2), false
	named := queue.Create{Name: "q"}
	must(t, named.Normalise())
	for name, c := range map[string]struct {
		kind errs.Kind
		call func() error
	}{
		"submit": {errs.ResourceRetired, func() error { _, err := db.Management.SubmitTask(ctx, tenant.Write(), sub); return err }},
		"submit batch": {errs.ResourceRetired, func() error {
			good := sub
			good.QueueID = &live
			_, _, err := db.Management.SubmitTasks(ctx, tenant.Write(), []task.Submit{good, sub})
			return err
		}},
		"create schedule": {errs.ResourceRetired, func() error { _, err := db.Management.CreateSchedule(ctx, tenant.Write(), draft); return err }},
		"publish schedule": {errs.ResourceRetired, func() error {
			_, err := db.Management.PublishSchedule(ctx, tenant.Write(), drafted, storetest.AtRevision(1))
			return err
		}},
		"resume schedule": {errs.ResourceRetired, func() error {
			_, err := db.Management.ResumeSchedule(ctx, tenant.Write(), paused, storetest.AtRevision(3))
			return err
		}},
		"run schedule now": {errs.ResourceRetired, func() error {
			_, err := db.Management.RunSchedule(ctx, tenant.Write(), paused, storetest.AtRevision(3))
			return err
		}},
		"create flow": {errs.ResourceRetired, func() error { _, err := db.Management.CreateFlow(ctx, tenant.Write(), "late", plan); return err }},
		"start flow":  {errs.ResourceRetired, func() error { _, err := db.Management.StartFlow(ctx, tenant.Write(), known, begin); return err }},
		"retry step":  {errs.ResourceRetired, func() error { return flows.retry(t, ended, "a") }},
		"subscribe":   {errs.ResourceRetired, func() error { _, err := db.Management.CreateSubscription(ctx, tenant.Write(), n); return err }},
		"resume": {errs.ResourceRetired, func() error {
			_, err := db.Management.ConfigureQueue(ctx, tenant.Write(), tenant.QueueID, queue.Configure{ExpectedRevision: &one, Reason: "r", Paused: &off})
			return err
		}},
		"retire":                  {errs.ResourceRetired, func() error { _, err := retireQueue(db.Management, tenant.Write(), tenant.QueueID, 2); return err }},
		"retire, stale":           {errs.ResourceRetired, func() error { _, err := retireQueue(db.Management, tenant.Write(), tenant.QueueID, 1); return err }},
		"its name again":          {errs.StateConflict, func() error { _, err := db.Management.CreateQueue(ctx, tenant.Write(), named); return err }},
		"same key, other content": {errs.IdempotencyConflict, func() error { _, err := retireQueue(db.Management, retire, tenant.QueueID, 2); return err }},
	} {
		wantUnchanged(t, db, name, c.kind, nil, c.call)
	}
	if out := db.Claim(t, tenant, 10); len(out) != 0 {
		t.Errorf("claimed %d", len(out))
	}
	retired, err := db.Gateway.RetiredQueues(ctx, []store.ReadyQueue{{NamespaceID: tenant.NamespaceID, QueueID: tenant.QueueID}, {NamespaceID: tenant.NamespaceID, QueueID: ids.New()}})
	if err != nil || len(retired) != 1 {
		t.Errorf("retired queues %v, %v", retired, err)
	}

	// History.
	if q, err := db.Management.GetQueue(ctx, tenant.Caller, tenant.QueueID); err != nil || q.RetiredAt == nil {
		t.Errorf("read as %+v, %v", q, err)
	}
	if list, _, err := db.Management.ListQueues(ctx, tenant.Caller, store.Page{Limit: 10}); err != nil || len(list) != 2 || list[1].RetiredAt == nil || list[0].RetiredAt != nil {
		t.Errorf("listed as %+v, %v", list, err)
	}
	if done, err := db.Management.GetTask(ctx, tenant.Caller, a.Task.ID); err != nil || done.State != task.Succeeded || string(done.Result) != `2` || string(done.Input) != `{"n":1}` {
		t.Errorf("task %+v, %v", done, err)
	}
	if list, _, err := db.Management.ListTasks(ctx, tenant.Caller, store.TaskFilter{QueueID: tenant.QueueID}, store.Page{Limit: 10}); err != nil || len(list) != 2 {
		t.Errorf("tasks %+v, %v", list, err)
	}
	if run := flows.get(t, ended); run.State != flow.Failed {
		t.Errorf("run %+v", run)
	}
	if s, err := db.Management.GetSchedule(ctx, tenant.Caller, paused); err != nil || s.State != schedule.Paused {
		t.Errorf("schedule %+v, %v", s, err)
	}
	if list, _, err := db.Management.ListSubscriptions(ctx, tenant.Caller, tenant.QueueID, store.Page{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("subscriptions %+v, %v", list, err)
	}
}
