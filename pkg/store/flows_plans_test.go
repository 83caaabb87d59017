package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// growRuns adds n ended runs of a version, with a step and a task each.
func (f *flowRig) growRuns(t *testing.T, id ids.ID, n int) {
	t.Helper()
	f.GrowTasks(t, f.tenant, n)
	for _, query := range []string{
		`INSERT INTO flow_runs (namespace_id, id, flow_id, version, application_id, credential_id, state, live, revision, created_at, updated_at, finished_at, input)
SELECT namespace_id, id, ?, 1, application_id, credential_id, 'SUCCEEDED', 0, 2, created_at, updated_at, updated_at, 'null' FROM tasks WHERE state = 'SUCCEEDED'`,
		`INSERT INTO flow_steps (namespace_id, run_id, step, state, try_number, submitted_at, finished_at)
SELECT namespace_id, id, IF(? IS NULL, 0, 0), 'SUCCEEDED', 1, created_at, updated_at FROM tasks WHERE state = 'SUCCEEDED'`,
		`INSERT INTO flow_tasks (namespace_id, task_id, run_id, step, try_number) SELECT namespace_id, id, id, IF(? IS NULL, 0, 0), 1 FROM tasks WHERE state = 'SUCCEEDED'`,
	} {
		execSQL(t, f.DB, query, id[:])
	}
	execSQL(t, f.DB, "ANALYZE TABLE flow_runs, flow_steps, flow_tasks, tasks")
}

// TestPlansOfFlows: lists and the reads of a run's progress go through indexes and read what they need,
// however many runs have ended and however many namespaces have nothing to follow.
func TestPlansOfFlows(t *testing.T) {
	t.Parallel()
	f := newFlowRig(t)
	ctx := context.Background()
	id := f.publish(t, f.step("a", `1`), f.step("b", `{"$step":"a","path":""}`, "a"), f.step("c", `{"$run":""}`, "b"))
	n := planRows(t)
	f.growRuns(t, id, n)
	for i := range 300 {
		execSQL(t, f.DB, "INSERT INTO flow_progress (namespace_id, cursor_sequence, live) VALUES (UNHEX(LPAD(HEX(?), 32, '0')), 0, 0)", i+1)
	}
	f.AppendEvents(t, f.tenant, 100, `1`)
	var run ids.ID
	for range 10 {
		run = f.start(t, id, `{"x":1}`)
	}
	for range 10 {
		f.finish(t, task.Outcome{Result: strictjson.Raw(`7`)})
	}
	p := f.NewProxy(t)
	s, c := p.Store, f.tenant.Caller
	scoped := *c
	scoped.AllQueues, scoped.Queues = false, []ids.ID{f.tenant.QueueID}
	const limit = 20
	page, deep := store.Page{Limit: limit}, store.Page{Limit: limit, After: &store.Position{ID: ids.ID{0x80}}}
	runs := func(c *access.Caller, state flow.State, page store.Page) func() error {
		return func() error {
			_, _, err := s.ListRuns(ctx, c, store.RunFilter{FlowID: id, State: state}, page)
			return err
		}
	}
	for _, one := range []struct {
		name string
		most int
		call func() error
	}{
		{"list flows", limit + 1, func() error { _, _, err := s.ListFlows(ctx, c, page); return err }},
		{"list flows in scope", 3 * (limit + 1), func() error { _, _, err := s.ListFlows(ctx, &scoped, page); return err }},
		{"list runs", limit + 1, runs(c, "", page)},
		{"list runs, deep", limit + 1, runs(c, "", deep)},
		{"list runs in scope", 3 * (limit + 1), runs(&scoped, "", deep)},
		{"list succeeded", limit + 1, runs(c, flow.Succeeded, deep)},
		{"list failed", limit + 1, runs(c, flow.Failed, page)},
		{"read run", 20, func() error { _, err := s.GetRun(ctx, c, run); return err }},
		{"lags", 2, func() error { _, err := s.FlowLags(ctx); return err }},
		{"follow", 130 + 40, func() error {
			lags, err := s.FlowLags(ctx)
			if err == nil && len(lags) == 1 {
				_, err = s.FollowLog(ctx, lags[0])
			}
			return err
		}},
		{"waiting for room", 1, func() error { _, err := s.SubmitWaiting(ctx, 100); return err }},
		{"rest", 2, func() error { _, err := s.RestFlows(ctx); return err }},
		{"cancel", 20, func() error {
			_, err := s.CommandRun(ctx, f.tenant.Write(), run, flow.Cancel, flow.Command{Reason: "r"})
			return err
		}},
		{"retire", 2 * 20, func() error {
			one := ids.Counter(1)
			_, err := s.RetireQueue(ctx, f.tenant.Write(), f.tenant.QueueID, queue.Retire{ExpectedRevision: &one, Reason: "r"})
			return ignoreBusy(err)
		}},
	} {
		var mu sync.Mutex
		var reads []string
		p.Decide(func(query string) storetest.Fate {
			mu.Lock()
			defer mu.Unlock()
			if q := strings.TrimSpace(query); strings.HasPrefix(q, "SELECT") && strings.Contains(q, "FROM ") && strings.Contains(q, "flow") {
				reads = append(reads, q)
			}
			return storetest.Pass
		})
		if err := one.call(); err != nil {
			t.Errorf("%s: %v", one.name, err)
		}
		p.Decide(nil)
		if len(reads) == 0 {
			t.Errorf("%s: no read was seen", one.name)
		}
		for _, query := range reads {
			checkPlan(t, f.DB, one.name, query, one.most)
		}
	}
}

func ignoreBusy(err error) error {
	if err != nil && strings.Contains(err.Error(), "RESOURCE_BUSY") {
		return nil
	}
	return fmt.Errorf("a queue in use: %w", err)
}
