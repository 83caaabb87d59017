package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// modelTask is a task as the pure state table says it must stand.
type modelTask struct {
	id          ids.ID
	state       task.State
	revision    uint64
	priority    int
	safety      task.RetrySafety
	attempts    int
	maxAttempts int
	waiting     bool // QUEUED, not due
	cancel      bool
	uncertain   bool
	lapsed      bool            // its lease ran out and nobody has swept yet
	proofs      []task.Proof    // every attempt's, newest last
	ended       map[ids.ID]bool // attempts whose outcome stands
	lost        map[ids.ID]bool // attempts given up by the sweeper
	order       int             // of queueing, within a priority
}

// taskModel plays §8 in memory: workers, lapses, cancels, resolves, permit and quota limits.
type taskModel struct {
	db         *storetest.DB
	tenant     storetest.Tenant
	maxRunning int
	quota      int // running limit of the application
	tasks      []*modelTask
	events     []string
	ticks      int
}

func (m *taskModel) ctx() context.Context { return context.Background() }

func (m *taskModel) submit(t *rapid.T) {
	safety := rapid.SampledFrom([]task.RetrySafety{task.Safe, task.Unsafe}).Draw(t, "safety")
	sub := task.Submit{
		QueueID: &m.tenant.QueueID, Input: strictjson.Raw(`1`), RetrySafety: string(safety),
		MaxAttempts: rapid.IntRange(1, 3).Draw(t, "max"), Priority: rapid.IntRange(-1, 1).Draw(t, "priority"),
	}
	waiting := rapid.IntRange(0, 3).Draw(t, "later") == 0
	if waiting {
		later := time.Now().Add(time.Hour)
		sub.RunAt = &later
	}
	if err := sub.Normalise(); err != nil {
		t.Fatal(err)
	}
	tasks, _, err := m.db.Management.SubmitTasks(m.ctx(), m.tenant.Write(), []task.Submit{sub})
	if err != nil {
		t.Fatal(err)
	}
	m.ticks++
	m.tasks = append(m.tasks, &modelTask{
		id: tasks[0].ID, state: task.Queued, revision: 1, priority: sub.Priority, safety: safety, maxAttempts: sub.MaxAttempts, waiting: waiting,
		ended: map[ids.ID]bool{}, lost: map[ids.ID]bool{}, order: m.ticks,
	})
}

// due makes every waiting task's time come.
func (m *taskModel) due(t *rapid.T) {
	for _, table := range []string{"UPDATE ready_tasks SET due_at = due_at - INTERVAL 2 DAY WHERE lane = 1 AND due_at > UTC_TIMESTAMP(6) AND queue_id = ?",
		"UPDATE tasks SET run_at = run_at - INTERVAL 2 DAY WHERE state = 'QUEUED' AND run_at > UTC_TIMESTAMP(6) AND queue_id = ?"} {
		if _, err := m.db.SQL.Exec(table, m.tenant.QueueID[:]); err != nil {
			t.Fatal(err)
		}
	}
	for _, mt := range m.tasks {
		if mt.waiting { // its due time is now before those that waited less
			mt.waiting, mt.order = false, mt.order-1_000_000
		}
	}
}

func (m *taskModel) running() int {
	n := 0
	for _, mt := range m.tasks {
		if mt.state == task.Running {
			n++
		}
	}
	return n
}

func (m *taskModel) claim(t *rapid.T) {
	wants := []store.WorkerWant{{SessionID: ids.New(), Worker: "a", Free: rapid.IntRange(0, 2).Draw(t, "free")}, {SessionID: ids.New(), Worker: "b", Free: 1}}
	got, err := m.db.Gateway.ClaimTasks(m.ctx(), m.tenant.NamespaceID, m.tenant.QueueID, wants)
	if err != nil {
		t.Fatal(err)
	}
	room := wants[0].Free + wants[1].Free
	for _, limit := range []int{m.maxRunning, m.quota} {
		if limit > 0 {
			room = min(room, max(limit-m.running(), 0))
		}
	}
	ready := 0
	best := map[int]int{} // claimable by priority
	for _, mt := range m.tasks {
		if mt.state == task.Queued && !mt.waiting {
			ready++
			best[mt.priority]++
		}
	}
	if want := min(room, ready); len(got) != want {
		t.Fatalf("claimed %d, the model %d", len(got), want)
	}
	for i, a := range got {
		mt := m.find(a.Task.ID)
		if mt.state != task.Queued || mt.waiting {
			t.Fatalf("claimed %s, which is %s", mt.id, mt.state)
		}
		for p, n := range best {
			if p > mt.priority && n > 0 {
				t.Fatalf("claim %d has priority %d while %d of priority %d are ready", i, mt.priority, n, p)
			}
		}
		best[mt.priority]--
		mt.apply(t, task.Claim, m)
		mt.attempts++
		mt.lapsed = false
		mt.proofs = append(mt.proofs, storetest.ProofOf(a))
		if a.Attempt.Number != mt.attempts {
			t.Fatalf("attempt number %d, the model %d", a.Attempt.Number, mt.attempts)
		}
	}
}

func (m *taskModel) find(id ids.ID) *modelTask {
	return m.tasks[slices.IndexFunc(m.tasks, func(mt *modelTask) bool { return mt.id == id })]
}

func (mt *modelTask) apply(t *rapid.T, c task.Command, m *taskModel) {
	move, ok := task.Next(mt.state, c)
	if !ok {
		t.Fatalf("the model does not allow %s in %s", c, mt.state)
	}
	mt.state = move.To
	mt.revision++
	if move.Event != "" {
		m.events = append(m.events, string(move.Event))
	}
	if move.To == task.Queued {
		m.ticks++
		mt.order = m.ticks
	}
}

// finish reports a random outcome with a random attempt's proof.
func (m *taskModel) finish(t *rapid.T) {
	mt := m.some(t, func(mt *modelTask) bool { return len(mt.proofs) > 0 })
	if mt == nil {
		return
	}
	o := task.Outcome{
		Kind:      rapid.SampledFrom([]task.OutcomeKind{task.OutcomeComplete, task.OutcomeFail, task.OutcomeCancelled, task.OutcomeRelease}).Draw(t, "kind"),
		Proof:     rapid.SampledFrom(mt.proofs).Draw(t, "proof"),
		Retryable: rapid.Bool().Draw(t, "retryable"),
	}
	if o.Kind == task.OutcomeFail {
		o.Failure = &task.Failure{Code: "E"}
	}
	out, err := m.db.Gateway.FinishAttempts(m.ctx(), m.tenant.NamespaceID, m.tenant.QueueID, []task.Outcome{o})
	if err != nil {
		t.Fatal(err)
	}
	r := out.Results[0]
	newest := o.Proof == mt.proofs[len(mt.proofs)-1]
	cmd := o.CommandFor(mt.safety, mt.attempts, mt.maxAttempts, mt.cancel)
	_, allowed := task.Next(mt.state, cmd)
	attempt := o.Proof.AttemptID
	live := newest && mt.state == task.Running
	late := newest && mt.lost[attempt] && mt.state != task.Running && allowed
	switch {
	case live && allowed, late:
		if r.Err != nil || r.Deduplicated {
			t.Fatalf("%s of %s in %s: %+v", o.Kind, mt.id, mt.state, r)
		}
		mt.apply(t, cmd, m)
		mt.waiting = cmd == task.FailRetryable
		if delete(mt.lost, attempt); o.Kind == task.OutcomeRelease {
			mt.attempts--
		} else {
			mt.ended[attempt] = true
		}
	case r.Err == nil && r.Deduplicated && mt.ended[attempt]: // the same kind again
	case !errs.Is(r.Err, errs.AttemptLeaseLost):
		t.Fatalf("%s with a proof that counts no longer: %+v", o.Kind, r)
	}
}

func (m *taskModel) some(t *rapid.T, keep func(*modelTask) bool) *modelTask {
	var out []*modelTask
	for _, mt := range m.tasks {
		if keep(mt) {
			out = append(out, mt)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return rapid.SampledFrom(out).Draw(t, "task")
}

// lapse ends the lease of one running task and sweeps.
func (m *taskModel) lapse(t *rapid.T) {
	mt := m.some(t, func(mt *modelTask) bool { return mt.state == task.Running })
	if mt == nil {
		return
	}
	if _, err := m.db.SQL.Exec("UPDATE permits SET lease_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE task_id = ?", mt.id[:]); err != nil {
		t.Fatal(err)
	}
	if n, err := m.db.Management.SweepAttempts(m.ctx(), 100); err != nil || n != 1 {
		t.Fatalf("swept %d, %v", n, err)
	}
	cmd := task.LoseCommand(mt.safety, mt.attempts, mt.maxAttempts, mt.cancel)
	mt.apply(t, cmd, m)
	mt.uncertain = mt.uncertain || cmd == task.LoseUncertain
	mt.lost[mt.proofs[len(mt.proofs)-1].AttemptID] = true
}

func (m *taskModel) cancel(t *rapid.T) {
	mt := m.some(t, func(*modelTask) bool { return true })
	if mt == nil {
		return
	}
	revision := ids.Counter(mt.revision)
	_, err := m.db.Management.CancelTask(m.ctx(), m.tenant.Write(), mt.id, task.Cancel{ExpectedRevision: &revision, Reason: "model"})
	for _, c := range []task.Command{task.CancelQueued, task.CancelRunning} {
		if _, ok := task.Next(mt.state, c); ok {
			if err != nil {
				t.Fatal(err)
			}
			mt.apply(t, c, m)
			mt.cancel = true
			return
		}
	}
	if !errs.Is(err, errs.StateConflict) {
		t.Fatalf("cancel in %s: %v", mt.state, err)
	}
}

func (m *taskModel) resolve(t *rapid.T) {
	mt := m.some(t, func(*modelTask) bool { return true })
	if mt == nil {
		return
	}
	revision := ids.Counter(mt.revision)
	outcome := rapid.SampledFrom([]string{"succeeded", "failed", "requeue"}).Draw(t, "outcome")
	_, err := m.db.Management.ResolveTask(m.ctx(), m.tenant.Write(), mt.id, task.Resolve{ExpectedRevision: &revision, Outcome: outcome, Reason: "model"})
	if mt.state != task.NeedsReview {
		if !errs.Is(err, errs.StateConflict) {
			t.Fatalf("resolve in %s: %v", mt.state, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	mt.apply(t, task.ResolveCommands[outcome], m)
	mt.uncertain, mt.waiting = false, false
	if outcome == "requeue" { // the lost attempt may still report before the next one begins
		mt.cancel = false
		mt.maxAttempts = max(mt.maxAttempts, mt.attempts+1)
	}
}

// check compares every task, and the counts that follow from them.
func (m *taskModel) check(t *rapid.T) {
	queued := 0
	for _, mt := range m.tasks {
		got, err := m.db.Management.GetTask(m.ctx(), m.tenant.Caller, mt.id)
		if err != nil {
			t.Fatal(err)
		}
		if got.State != mt.state || uint64(got.Revision) != mt.revision || got.Attempts != mt.attempts || got.EffectUncertain != mt.uncertain || got.CancelRequested != mt.cancel {
			t.Fatalf("task %+v, the model %+v", got, mt)
		}
		if mt.state == task.Queued {
			queued++
		}
	}
	for query, want := range map[string]int{
		"SELECT COUNT(*) FROM ready_tasks WHERE queue_id = ?": queued,
		"SELECT COUNT(*) FROM permits WHERE queue_id = ?":     m.running(),
	} {
		var n int
		if err := m.db.SQL.QueryRow(query, m.tenant.QueueID[:]).Scan(&n); err != nil || n != want {
			t.Fatalf("%s: %d, the model %d (%v)", query, n, want, err)
		}
	}
	m.checkLog(t)
}

func (m *taskModel) checkLog(t *rapid.T) {
	rows, err := m.db.SQL.Query("SELECT sequence, type FROM result_events WHERE namespace_id = ? ORDER BY sequence", m.tenant.NamespaceID[:])
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var sequence int
		var kind string
		if err := rows.Scan(&sequence, &kind); err != nil {
			t.Fatal(err)
		}
		if n++; sequence != n || n > len(m.events) || kind != m.events[n-1] {
			t.Fatalf("event %d at sequence %d is %s, the model has %v", n, sequence, kind, m.events)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if n != len(m.events) {
		t.Fatalf("%d events, the model %v", n, m.events)
	}
}

func TestTasksFollowTheModel(t *testing.T) {
	for _, limits := range []struct{ maxRunning, quota int }{{0, 0}, {1, 0}, {0, 2}, {2, 1}} {
		t.Run(fmt.Sprintf("max_running %d quota %d", limits.maxRunning, limits.quota), func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			rapid.Check(t, func(rt *rapid.T) {
				tenant := db.TenantWith(t, queue.Create{Name: "main", MaxRunning: limits.maxRunning, LeaseDurationMS: 3_600_000}, accessAll)
				if err := db.Owner.SetQuota(context.Background(), tenant.NamespaceID, tenant.ApplicationID, 0, limits.quota); err != nil {
					rt.Fatal(err)
				}
				m := &taskModel{db: db, tenant: tenant, maxRunning: limits.maxRunning, quota: limits.quota}
				rt.Repeat(map[string]func(*rapid.T){
					"submit": m.submit, "due": m.due, "claim": m.claim, "finish": m.finish, "finish again": m.finish,
					"lapse": m.lapse, "cancel": m.cancel, "resolve": m.resolve, "": m.check,
				})
			})
		})
	}
}
