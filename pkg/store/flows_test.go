package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// flowRig is a tenant whose flows are followed by hand.
type flowRig struct {
	*storetest.DB
	tenant storetest.Tenant
}

func newFlowRig(t *testing.T) *flowRig {
	t.Helper()
	db := storetest.New(t)
	return &flowRig{DB: db, tenant: db.Tenant(t)}
}

func (f *flowRig) step(name, input string, needs ...string) flow.Step {
	return flow.Step{Name: name, QueueID: &f.tenant.QueueID, Input: strictjson.Raw(input), DependsOn: needs}
}

// publish makes a flow and returns its id.
func (f *flowRig) publish(t *testing.T, steps ...flow.Step) ids.ID {
	t.Helper()
	c := flow.Create{Name: "f-" + ids.New().String(), Steps: steps}
	plan, err := c.Plan()
	must(t, err)
	receipt, err := f.Management.CreateFlow(context.Background(), f.tenant.Write(), c.Name, plan)
	must(t, err)
	var out flow.Flow
	must(t, json.Unmarshal(receipt.Snapshot, &out))
	return out.ID
}

func (f *flowRig) start(t *testing.T, id ids.ID, input string) ids.ID {
	t.Helper()
	s := flow.Start{Input: strictjson.Raw(input)}
	must(t, s.Normalise())
	receipt, err := f.Management.StartFlow(context.Background(), f.tenant.Write(), id, s)
	must(t, err)
	return runIn(t, receipt.Snapshot).ID
}

func runIn(t *testing.T, snapshot []byte) *flow.RunRecord {
	t.Helper()
	var out flow.RunRecord
	must(t, json.Unmarshal(snapshot, &out))
	return &out
}

// follow lets the runs catch up with the log.
func (f *flowRig) follow(t *testing.T) {
	t.Helper()
	for {
		passed := 0
		lags, err := f.Management.FlowLags(context.Background())
		must(t, err)
		for _, lag := range lags {
			if lag.Head > lag.Cursor {
				n, err := f.Management.FollowLog(context.Background(), lag)
				must(t, err)
				passed += n
			}
		}
		if passed == 0 {
			return
		}
	}
}

func (f *flowRig) get(t *testing.T, run ids.ID) *flow.RunRecord {
	t.Helper()
	r, err := f.Management.GetRun(context.Background(), f.tenant.Caller, run)
	must(t, err)
	return r
}

// states is a run at a glance: RUNNING a=SUCCEEDED.1 b=SUBMITTED.1.
func (f *flowRig) states(t *testing.T, run ids.ID) string {
	t.Helper()
	r := f.get(t, run)
	out := string(r.State)
	if r.Ending != "" {
		out += "→" + string(r.Ending)
	}
	for _, s := range r.Steps {
		out += fmt.Sprintf(" %s=%s.%d", s.Name, s.State, s.Try)
	}
	return out
}

func (f *flowRig) want(t *testing.T, run ids.ID, states string) {
	t.Helper()
	if got := f.states(t, run); got != states {
		t.Errorf("run is %s\nwant     %s", got, states)
	}
}

// finish claims one task and ends it.
func (f *flowRig) finish(t *testing.T, o task.Outcome) store.Assignment {
	t.Helper()
	got := f.Claim(t, f.tenant, 1)
	if len(got) != 1 {
		t.Fatalf("claimed %d tasks", len(got))
	}
	f.end(t, got[0], o)
	return got[0]
}

func (f *flowRig) end(t *testing.T, a store.Assignment, o task.Outcome) {
	t.Helper()
	o.Proof = storetest.ProofOf(a)
	if o.Kind == "" {
		o.Kind = task.OutcomeComplete
	}
	out, err := f.Gateway.FinishAttempts(context.Background(), f.tenant.NamespaceID, a.Task.QueueID, []task.Outcome{o})
	must(t, err)
	must(t, out.Results[0].Err)
}

func (f *flowRig) complete(t *testing.T, result string) store.Assignment {
	t.Helper()
	a := f.finish(t, task.Outcome{Result: strictjson.Raw(result)})
	f.follow(t)
	return a
}

func (f *flowRig) fail(t *testing.T) {
	t.Helper()
	f.finish(t, task.Outcome{Kind: task.OutcomeFail, Failure: &task.Failure{Code: "BROKEN", Message: "out of order"}})
	f.follow(t)
}

// lose claims one unsafe task and lets its lease run out: it needs review.
func (f *flowRig) lose(t *testing.T) ids.ID {
	t.Helper()
	a := f.Claim(t, f.tenant, 1)[0]
	execSQL(t, f.DB, "UPDATE permits SET lease_until = '2020-01-01' WHERE attempt_id = ?", a.Attempt.ID[:])
	if n, err := f.Management.SweepAttempts(context.Background(), 10); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	f.follow(t)
	return a.Task.ID
}

func (f *flowRig) command(t *testing.T, run ids.ID, kind flow.Kind) error {
	t.Helper()
	_, err := f.Management.CommandRun(context.Background(), f.tenant.Write(), run, kind, flow.Command{Reason: "test"})
	return err
}

func (f *flowRig) retry(t *testing.T, run ids.ID, step string) error {
	t.Helper()
	_, err := f.Management.RetryStep(context.Background(), f.tenant.Write(), run, step, flow.Command{Reason: "test"})
	return err
}

// abc is A → B → C.
func (f *flowRig) abc(t *testing.T) ids.ID {
	t.Helper()
	return f.publish(t, f.step("a", `{"$run": "/x"}`), f.step("b", `{ "n": {"$step": "a", "path": "/v/1"} , "all":{"$run":""}}`, "a"), f.step("c", `[{"$step":"a","path":""},{"$step":"b","path":""}]`, "b"))
}

// TestALinearFlow: inputs carry what came before byte for byte, and the run ends.
func TestALinearFlow(t *testing.T) {
	t.Parallel()
	f := newFlowRig(t)
	const input = `{ "x": [9007199254740993, 1.0, 1e400], "y":{"b":1,"a":2} }`
	run := f.start(t, f.abc(t), input)
	f.want(t, run, "RUNNING a=SUBMITTED.1 b=WAITING.1 c=WAITING.1")
	for _, step := range []struct{ input, result, states string }{
		{`[9007199254740993, 1.0, 1e400]`, `{"v": [0,  18446744073709551615]}`, "RUNNING a=SUCCEEDED.1 b=SUBMITTED.1 c=WAITING.1"},
		{`{ "n": 18446744073709551615 , "all":` + input + `}`, `"b\u00e9"`, "RUNNING a=SUCCEEDED.1 b=SUCCEEDED.1 c=SUBMITTED.1"},
		{`[{"v": [0,  18446744073709551615]},"b\u00e9"]`, `null`, "SUCCEEDED a=SUCCEEDED.1 b=SUCCEEDED.1 c=SUCCEEDED.1"},
	} {
		a := f.complete(t, step.result)
		if string(a.Task.Input) != step.input {
			t.Errorf("input %s, want %s", a.Task.Input, step.input)
		}
		f.want(t, run, step.states)
	}
	got := f.get(t, run)
	if string(got.Input) != input || got.FinishedAt == nil || got.Revision != 2 {
		t.Errorf("%+v", got)
	}
	for _, s := range got.Steps {
		if s.TaskID == nil || s.SubmittedAt == nil || s.FinishedAt == nil || s.WaitingFor != "" || s.Error != nil {
			t.Errorf("%+v", s)
		}
	}
	if n, err := f.Management.RestFlows(context.Background()); err != nil || n != 1 {
		t.Errorf("rested %d, %v", n, err)
	}
	if lags, err := f.Management.FlowLags(context.Background()); err != nil || len(lags) != 0 {
		t.Errorf("still followed: %v, %v", lags, err)
	}
}

// TestTheCursorJumpsWhereNothingWasFollowed: what happened while no run was live is not read again.
func TestTheCursorJumpsWhereNothingWasFollowed(t *testing.T) {
	t.Parallel()
	f := newFlowRig(t)
	id := f.publish(t, f.step("a", `1`))
	f.AppendEvents(t, f.tenant, 5000, `1`)
	for range 2 {
		run := f.start(t, id, `1`)
		lags, err := f.Management.FlowLags(context.Background())
		if err != nil || len(lags) != 1 || lags[0].Cursor != lags[0].Head || lags[0].Head < 5000 {
			t.Fatalf("%+v, %v", lags, err)
		}
		f.complete(t, `1`)
		f.want(t, run, "SUCCEEDED a=SUCCEEDED.1")
		if n, err := f.Management.RestFlows(context.Background()); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		f.AppendEvents(t, f.tenant, 3000, `1`)
	}
	run := f.start(t, id, `1`) // a namespace that is followed goes through all of it, in windows
	f.AppendEvents(t, f.tenant, 5000, `1`)
	f.complete(t, `1`)
	f.want(t, run, "SUCCEEDED a=SUCCEEDED.1")
}

// TestF2AFlowGetsStuck plays scenario F2: A→B→C, each with whatever may go wrong.
func TestF2AFlowGetsStuck(t *testing.T) {
	t.Parallel()
	f := newFlowRig(t)
	id := f.publish(t, f.step("a", `1`), f.step("b", `2`, "a"), f.step("c", `3`, "b"))
	ctx := context.Background()

	t.Run("A failed", func(t *testing.T) {
		run := f.start(t, id, `1`)
		f.fail(t)
		f.want(t, run, "FAILED a=FAILED.1 b=SKIPPED.1 c=SKIPPED.1")
		if e := f.get(t, run).Steps[0].Error; e == nil || e.Code != "BROKEN" || e.Message != "out of order" {
			t.Errorf("error %+v", e)
		}
		first := *f.get(t, run).Steps[0].TaskID
		must(t, f.retry(t, run, "a"))
		f.want(t, run, "RUNNING a=SUBMITTED.2 b=WAITING.1 c=WAITING.1")
		if s := f.get(t, run).Steps[0]; *s.TaskID == first || len(s.EarlierTaskIDs) != 1 || s.EarlierTaskIDs[0] != first || s.Error != nil {
			t.Errorf("second try %+v", s)
		}
		for range 3 {
			f.complete(t, `1`)
		}
		f.want(t, run, "SUCCEEDED a=SUCCEEDED.2 b=SUCCEEDED.1 c=SUCCEEDED.1")
	})
	t.Run("A cancelled", func(t *testing.T) {
		run := f.start(t, id, `1`)
		cancelTask(t, f.DB, f.tenant, *f.get(t, run).Steps[0].TaskID)
		f.follow(t)
		f.want(t, run, "CANCELLED a=CANCELLED.1 b=SKIPPED.1 c=SKIPPED.1")
	})
	for outcome, want := range map[string]string{
		"succeeded": "RUNNING a=SUCCEEDED.1 b=SUBMITTED.1 c=WAITING.1", "failed": "FAILED a=FAILED.1 b=SKIPPED.1 c=SKIPPED.1", "requeue": "RUNNING a=SUBMITTED.1 b=WAITING.1 c=WAITING.1",
	} {
		t.Run("A needs review, "+outcome, func(t *testing.T) {
			run := f.start(t, id, `1`)
			lost := f.lose(t)
			f.want(t, run, "WAITING_REVIEW a=NEEDS_REVIEW.1 b=WAITING.1 c=WAITING.1")
			if s := f.get(t, run).Steps; s[0].WaitingFor != flow.ForReview || s[1].WaitingFor != flow.ForSteps {
				t.Errorf("%+v", s)
			}
			resolveTask(t, f.DB, f.tenant, lost, outcome)
			f.follow(t)
			f.want(t, run, want)
			if !f.get(t, run).State.Final() {
				must(t, f.command(t, run, flow.Cancel))
				f.follow(t)
			}
			if !f.get(t, run).State.Final() {
				t.Errorf("not final: %s", f.states(t, run))
			}
		})
	}
	t.Run("cancel while A needs review", func(t *testing.T) {
		run := f.start(t, id, `1`)
		lost := f.lose(t)
		must(t, f.command(t, run, flow.Cancel))
		f.follow(t)
		f.want(t, run, "WAITING_REVIEW→CANCELLED a=NEEDS_REVIEW.1 b=SKIPPED.1 c=SKIPPED.1")
		resolveTask(t, f.DB, f.tenant, lost, "requeue") // it would run again: the run has it cancelled
		f.follow(t)
		f.want(t, run, "CANCELLED a=CANCELLED.1 b=SKIPPED.1 c=SKIPPED.1")
	})
	t.Run("cancel while B completes", func(t *testing.T) {
		run := f.start(t, id, `1`)
		f.complete(t, `1`)
		b := f.Claim(t, f.tenant, 1)[0]
		f.end(t, b, task.Outcome{Result: strictjson.Raw(`2`)}) // not followed yet
		must(t, f.command(t, run, flow.Cancel))
		f.want(t, run, "RUNNING→CANCELLED a=SUCCEEDED.1 b=SUBMITTED.1 c=SKIPPED.1")
		f.follow(t)
		f.want(t, run, "CANCELLED a=SUCCEEDED.1 b=SUCCEEDED.1 c=SKIPPED.1")
		if err := f.command(t, run, flow.Cancel); !errs.Is(err, errs.StateConflict) || !strings.Contains(err.Error(), "is CANCELLED") {
			t.Errorf("cancel again: %v", err)
		}
	})
	t.Run("cancel while B runs", func(t *testing.T) {
		run := f.start(t, id, `1`)
		f.complete(t, `1`)
		b := f.Claim(t, f.tenant, 1)[0]
		f.want(t, run, "RUNNING a=SUCCEEDED.1 b=RUNNING.1 c=WAITING.1")
		must(t, f.command(t, run, flow.Cancel))
		if got, err := f.Management.GetTask(ctx, f.tenant.Caller, b.Task.ID); err != nil || !got.CancelRequested {
			t.Errorf("the worker is not asked: %+v, %v", got, err)
		}
		f.end(t, b, task.Outcome{Kind: task.OutcomeCancelled})
		f.follow(t)
		f.want(t, run, "CANCELLED a=SUCCEEDED.1 b=CANCELLED.1 c=SKIPPED.1")
	})
	t.Run("pause", func(t *testing.T) {
		run := f.start(t, id, `1`)
		must(t, f.command(t, run, flow.Pause))
		f.complete(t, `1`)
		f.want(t, run, "PAUSED a=SUCCEEDED.1 b=WAITING.1 c=WAITING.1")
		if s := f.get(t, run).Steps[1]; s.WaitingFor != flow.ForResume {
			t.Errorf("%+v", s)
		}
		must(t, f.command(t, run, flow.Resume))
		f.want(t, run, "RUNNING a=SUCCEEDED.1 b=SUBMITTED.1 c=WAITING.1")
		f.complete(t, `1`)
		f.complete(t, `1`)
		f.want(t, run, "SUCCEEDED a=SUCCEEDED.1 b=SUCCEEDED.1 c=SUCCEEDED.1")
	})
	f.checkOneTaskATry(t)
}

// checkOneTaskATry compares steps, tries, tasks and the log.
func (f *flowRig) checkOneTaskATry(t testing.TB) {
	t.Helper()
	for what, query := range map[string]string{
		"tries with more than one task": "SELECT COUNT(*) FROM (SELECT 1 FROM flow_tasks GROUP BY namespace_id, run_id, step, try_number HAVING COUNT(*) > 1) x",
		"links without a task":          "SELECT COUNT(*) FROM flow_tasks f LEFT JOIN tasks t ON t.namespace_id = f.namespace_id AND t.id = f.task_id WHERE t.id IS NULL",
		"steps with a later try's task": "SELECT COUNT(*) FROM flow_tasks f JOIN flow_steps s USING (namespace_id, run_id, step) WHERE f.try_number > s.try_number",
		"live tasks of final runs":      "SELECT COUNT(*) FROM flow_runs r JOIN flow_tasks f ON f.namespace_id = r.namespace_id AND f.run_id = r.id JOIN tasks t ON t.namespace_id = f.namespace_id AND t.id = f.task_id WHERE r.live = 0 AND t.finished_at IS NULL",
		"open steps of final runs":      "SELECT COUNT(*) FROM flow_runs r JOIN flow_steps s ON s.namespace_id = r.namespace_id AND s.run_id = r.id WHERE r.live = 0 AND s.state IN ('WAITING', 'SUBMITTED', 'NEEDS_REVIEW')",
		"steps unlike their tasks": `SELECT COUNT(*) FROM flow_runs r JOIN flow_steps s ON s.namespace_id = r.namespace_id AND s.run_id = r.id
JOIN flow_tasks f ON f.namespace_id = s.namespace_id AND f.run_id = s.run_id AND f.step = s.step AND f.try_number = s.try_number JOIN tasks t ON t.namespace_id = f.namespace_id AND t.id = f.task_id WHERE r.live = 0 AND t.state <> CAST(s.state AS CHAR)`,
	} {
		var n int
		if err := f.SQL.QueryRow(query).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
}

// TestAPausedQueueHoldsARunVisibly, and its retirement is refused meanwhile.
func TestAPausedQueueHoldsARunVisibly(t *testing.T) {
	t.Parallel()
	f := newFlowRig(t)
	other := newQueue(t, f.DB, f.tenant)
	b := f.step("b", `2`, "a")
	b.QueueID = &other.QueueID
	id := f.publish(t, f.step("a", `1`), b)
	run := f.start(t, id, `1`)
	execSQL(t, f.DB, "UPDATE queues SET paused = 1 WHERE id = ?", other.QueueID[:])
	if _, err := retireQueue(f.Management, f.tenant.Write(), other.QueueID, 1); !errs.Is(err, errs.ResourceBusy) || !strings.Contains(err.Error(), "1 flow run") {
		t.Errorf("retire a queue that a live run will use: %v", err)
	}
	f.complete(t, `1`)
	f.want(t, run, "RUNNING a=SUCCEEDED.1 b=SUBMITTED.1")
	if s := f.get(t, run).Steps[1]; s.WaitingFor != flow.ForQueue {
		t.Errorf("%+v", s)
	}
	if got := f.Claim(t, other, 1); len(got) != 0 {
		t.Error("claimed from a paused queue")
	}
	execSQL(t, f.DB, "UPDATE queues SET paused = 0 WHERE id = ?", other.QueueID[:])
	if s := f.get(t, run).Steps[1]; s.WaitingFor != flow.ForWorker {
		t.Errorf("%+v", s)
	}
	a := f.Claim(t, other, 1)[0]
	if s := f.get(t, run).Steps[1]; s.WaitingFor != flow.ForOutcome || s.State != flow.StepRunning {
		t.Errorf("%+v", s)
	}
	f.end(t, a, task.Outcome{Result: strictjson.Raw(`1`)})
	f.follow(t)
	f.want(t, run, "SUCCEEDED a=SUCCEEDED.1 b=SUCCEEDED.1")

	// A retired queue: no start, no publish, no retry; each names the step.
	other.QueueID = *b.QueueID
	failed := f.start(t, id, `1`)
	f.fail(t)
	f.want(t, failed, "FAILED a=FAILED.1 b=SKIPPED.1")
	if _, err := retireQueue(f.Management, f.tenant.Write(), other.QueueID, 1); err != nil {
		t.Fatal(err)
	}
	s := flow.Start{}
	must(t, s.Normalise())
	_, startErr := f.Management.StartFlow(context.Background(), f.tenant.Write(), id, s)
	c := flow.Create{Name: "late", Steps: []flow.Step{f.step("a", `1`), f.step("x", `1`), b}}
	plan, err := c.Plan()
	must(t, err)
	_, createErr := f.Management.CreateFlow(context.Background(), f.tenant.Write(), "late", plan)
	for path, err := range map[string]error{"steps.1.queue_id: queue ": startErr, "steps.2.queue_id: queue ": createErr, "steps.1.queue_id: queue": f.retry(t, failed, "a")} {
		if !errs.Is(err, errs.ResourceRetired) || !strings.HasPrefix(errs.MessageOf(err), path) {
			t.Errorf("%v, want it at %s", err, path)
		}
	}
}

// TestAFullQuotaHoldsARunVisibly, and it goes on by itself.
func TestAFullQuotaHoldsARunVisibly(t *testing.T) {
	t.Parallel()
	f := newFlowRig(t)
	must(t, f.Owner.SetQuota(context.Background(), f.tenant.NamespaceID, f.tenant.ApplicationID, 2, 0))
	id := f.publish(t, f.step("a", `1`), f.step("b", `2`), f.step("c", `3`, "a"), f.step("d", `4`, "a", "b"))
	first := f.start(t, id, `1`)
	second := f.start(t, id, `1`)
	f.want(t, first, "RUNNING a=SUBMITTED.1 b=SUBMITTED.1 c=WAITING.1 d=WAITING.1")
	f.want(t, second, "RUNNING a=WAITING.1 b=WAITING.1 c=WAITING.1 d=WAITING.1")
	if s := f.get(t, second).Steps; s[0].WaitingFor != flow.ForQuota || s[2].WaitingFor != flow.ForSteps {
		t.Errorf("%+v", s)
	}
	for deadline := time.Now().Add(time.Minute); !f.get(t, second).State.Final() || !f.get(t, first).State.Final(); {
		for _, a := range f.Claim(t, f.tenant, 1) {
			f.end(t, a, task.Outcome{Result: strictjson.Raw(`1`)})
		}
		f.follow(t)
		execSQL(t, f.DB, "UPDATE flow_runs SET due_at = due_at - INTERVAL 1 SECOND WHERE due_at IS NOT NULL")
		if _, err := f.Management.SubmitWaiting(context.Background(), 10); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s\n%s", f.states(t, first), f.states(t, second))
		}
	}
	f.checkOneTaskATry(t)
}

// TestAReferenceThatFindsNothingFailsItsStep with a reason, and the run with it.
func TestAReferenceThatFindsNothingFailsItsStep(t *testing.T) {
	t.Parallel()
	f := newFlowRig(t)
	id := f.publish(t, f.step("a", `1`), f.step("b", `{"x":{"$step":"a","path":"/n"}}`, "a"), f.step("c", `1`, "b"), f.step("d", `1`, "a"))
	run := f.start(t, id, `1`)
	f.complete(t, `{"m":1}`)
	f.want(t, run, "FAILED a=SUCCEEDED.1 b=FAILED.1 c=SKIPPED.1 d=SKIPPED.1")
	s := f.get(t, run).Steps[1]
	if s.Error == nil || s.Error.Code != flow.CodeReferenceMissing || !strings.Contains(s.Error.Message, `"/n" in the result of step "a"`) || s.TaskID != nil {
		t.Errorf("%+v", s)
	}
	must(t, f.retry(t, run, "b")) // and it finds nothing again
	f.want(t, run, "FAILED a=SUCCEEDED.1 b=FAILED.2 c=SKIPPED.1 d=SKIPPED.1")
	bad := f.start(t, f.publish(t, f.step("a", `{"$run":"/x"}`)), `{}`)
	f.want(t, bad, "FAILED a=FAILED.1")
	f.checkOneTaskATry(t)
}

// TestVersionsArePinned and receipts answer as before.
func TestVersionsArePinned(t *testing.T) {
	t.Parallel()
	f := newFlowRig(t)
	ctx := context.Background()
	id := f.publish(t, f.step("a", `1`))
	old := f.start(t, id, `1`)
	one := ids.Counter(1)
	cmd := flow.Publish{ExpectedRevision: &one, Reason: "more", Steps: []flow.Step{f.step("a", `2`), f.step("b", `3`, "a")}}
	plan, err := cmd.Plan()
	must(t, err)
	w := f.tenant.Write()
	for _, again := range []bool{false, true} {
		receipt, err := f.Management.PublishFlow(ctx, w, id, cmd, plan)
		if err != nil || receipt.Deduplicated != again || !strings.Contains(string(receipt.Snapshot), `"revision":"2","version":2`) {
			t.Errorf("publish: %s, %v", receipt.Snapshot, err)
		}
	}
	if _, err := f.Management.PublishFlow(ctx, f.tenant.Write(), id, cmd, plan); !errs.Is(err, errs.StateConflict) {
		t.Errorf("publish at an old revision: %v", err)
	}
	f.want(t, old, "RUNNING a=SUBMITTED.1")
	f.want(t, f.start(t, id, `1`), "RUNNING a=SUBMITTED.1 b=WAITING.1")
	s := flow.Start{Version: 1}
	must(t, s.Normalise())
	w = f.tenant.Write()
	var first string
	for range 2 {
		receipt, err := f.Management.StartFlow(ctx, w, id, s)
		must(t, err)
		if first == "" {
			first = string(receipt.Snapshot)
		} else if !receipt.Deduplicated || string(receipt.Snapshot) != first {
			t.Errorf("the same key: %s, first %s", receipt.Snapshot, first)
		}
	}
	f.want(t, runIn(t, []byte(first)).ID, "RUNNING a=SUBMITTED.1")
	s.Version = 3
	if _, err := f.Management.StartFlow(ctx, f.tenant.Write(), id, s); !errs.Is(err, errs.NotFound) || errs.MessageOf(err) != fmt.Sprintf("flow %s has no version 3 here", id) {
		t.Errorf("an unknown version: %v", err)
	}
	if v, err := f.Management.GetFlowVersion(ctx, f.tenant.Caller, id, 1); err != nil || !strings.Contains(string(v.Steps), `"input":1`) {
		t.Errorf("version 1: %+v, %v", v, err)
	}
}

// TestRemovedEventsAreMadeUpFor: retention may pass the runs of a namespace that nobody followed for
// long; they go by their tasks then.
func TestRemovedEventsAreMadeUpFor(t *testing.T) {
	t.Parallel()
	f := newFlowRig(t)
	id := f.publish(t, f.step("a", `1`), f.step("b", `{"$step":"a","path":"/v"}`, "a"))
	succeeded, failed, review := f.start(t, id, `1`), f.start(t, id, `1`), f.start(t, id, `1`)
	f.finish(t, task.Outcome{Result: strictjson.Raw(`{"v":1.0}`)})
	f.finish(t, task.Outcome{Kind: task.OutcomeFail, Failure: &task.Failure{Code: "BROKEN"}})
	a := f.Claim(t, f.tenant, 1)[0]
	execSQL(t, f.DB, "UPDATE permits SET lease_until = '2020-01-01' WHERE attempt_id = ?", a.Attempt.ID[:])
	if n, err := f.Management.SweepAttempts(context.Background(), 10); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	f.AppendEvents(t, f.tenant, 10, `1`)
	execSQL(t, f.DB, "DELETE FROM result_events WHERE sequence <= 7")
	execSQL(t, f.DB, "UPDATE result_streams SET boundary = 7")
	f.follow(t)
	f.want(t, succeeded, "RUNNING a=SUCCEEDED.1 b=SUBMITTED.1")
	f.want(t, failed, "FAILED a=FAILED.1 b=SKIPPED.1")
	f.want(t, review, "WAITING_REVIEW a=NEEDS_REVIEW.1 b=WAITING.1")
	f.complete(t, `1`)
	f.want(t, succeeded, "SUCCEEDED a=SUCCEEDED.1 b=SUCCEEDED.1")
	f.checkOneTaskATry(t)
}
