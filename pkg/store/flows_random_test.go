package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// chaos runs flows with everything that may interfere: workers that fail, lose and refuse to cancel,
// people who pause, resume, cancel, retry and resolve, and replicas that are killed in mid-transaction.
type chaos struct {
	*flowRig
	runs   []ids.ID
	rounds int
	killed atomic.Int64
	calm   atomic.Bool // from now on nothing goes wrong
}

// flowRuns is how many runs of each definition are played; ORBIT_FLOW_RUNS makes it more by hand.
func flowRuns(t *testing.T) int {
	text := os.Getenv("ORBIT_FLOW_RUNS")
	if text == "" {
		return 4
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func drawSteps(t *rapid.T, f *flowRig, queues []ids.ID, least, most int) []flow.Step {
	var steps []flow.Step
	n := rapid.IntRange(least, most).Draw(t, "steps")
	for i := range n {
		s := f.step(fmt.Sprintf("s%d", i), `null`)
		s.QueueID = &queues[rapid.IntRange(0, len(queues)-1).Draw(t, "queue")]
		s.RetrySafety = rapid.SampledFrom([]string{"safe", "unsafe"}).Draw(t, "safety")
		s.MaxAttempts = rapid.IntRange(1, 3).Draw(t, "max")
		needs := map[string]bool{}
		for range min(i, rapid.IntRange(0, 3).Draw(t, "needs")) {
			needs[fmt.Sprintf("s%d", rapid.IntRange(0, i-1).Draw(t, "need"))] = true
		}
		for name := range needs {
			s.DependsOn = append(s.DependsOn, name)
			path := "/v"
			if rapid.IntRange(0, 500).Draw(t, "nowhere") == 7 {
				path = "/nowhere"
			}
			s.Input = strictjson.Raw(`{"from":{"$step":"` + name + `","path":"` + path + `"},"run":{"$run":"/n"}}`)
		}
		steps = append(steps, s)
	}
	return steps
}

// TestRandomFlowsAreNeverStuck: definitions of up to 100 steps under chaos. At every end each run is
// final or says what it waits for, each try has exactly one task, and nothing that ended has live work.
func TestRandomFlowsAreNeverStuck(t *testing.T) {
	t.Parallel()
	f := newFlowRig(t)
	queues := []ids.ID{f.tenant.QueueID, newQueue(t, f.DB, f.tenant).QueueID}
	execSQL(t, f.DB, "UPDATE queues SET lease_duration_ms = 3600000")
	must(t, f.Owner.SetQuota(context.Background(), f.tenant.NamespaceID, f.tenant.ApplicationID, 60, 0))
	c := &chaos{flowRig: f}
	definitions := 0
	for _, least := range []int{1, 5, 20, 50, 100} {
		steps := rapid.Custom(func(rt *rapid.T) []flow.Step { return drawSteps(rt, f, queues, least, 100) })
		id := f.publish(t, steps.Example(int(rand.Int32N(1_000_000)))...)
		definitions++
		for range flowRuns(t) {
			c.runs = append(c.runs, f.start(t, id, `{"n":1.0}`))
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer stop()
	for range 3 {
		busy.Go(func() { c.replica(ctx, t) })
	}
	for _, queue := range queues {
		busy.Go(func() { c.worker(ctx, t, queue) })
	}
	busy.Go(func() { c.people(ctx, t) })
	time.Sleep(4 * time.Second)
	c.calm.Store(true)
	deadline := time.Now().Add(3 * time.Minute)
	for left := len(c.runs); left > 0; {
		if left = c.settle(t); left == 0 && c.rounds < 4 {
			c.rounds++
			left = c.retryFailed(t)
		}
		if time.Now().After(deadline) {
			for _, run := range c.runs {
				if r := f.get(t, run); !r.State.Final() {
					t.Errorf("still %s", f.states(t, run))
				}
			}
			break
		}
	}
	stop()
	busy.Wait()
	f.follow(t)
	f.checkOneTaskATry(t)
	ended := map[flow.State]int{}
	for _, run := range c.runs {
		r := f.get(t, run)
		ended[r.State]++
		c.checkVisible(t, r)
	}
	var tasks, retries int
	if err := f.SQL.QueryRow("SELECT COUNT(*), COALESCE(SUM(try_number > 1), 0) FROM flow_tasks").Scan(&tasks, &retries); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d definitions, %d runs, %d tasks, %d of them retries, %d replicas killed, ended %v", definitions, len(c.runs), tasks, retries, c.killed.Load(), ended)
	if c.killed.Load() == 0 || tasks == 0 {
		t.Error("nothing was tried")
	}
}

// checkVisible: what is not final says what it waits for.
func (c *chaos) checkVisible(t *testing.T, r *flow.RunRecord) {
	t.Helper()
	for _, s := range r.Steps {
		open := s.State == flow.StepWaiting || s.State == flow.StepSubmitted || s.State == flow.StepRunning || s.State == flow.StepNeedsReview
		if open != (s.WaitingFor != "") || open && r.State.Final() {
			t.Errorf("run %s, %s: step %+v", r.ID, r.State, s)
		}
	}
}

// replica follows the log, and is killed now and then in the middle of whatever it does.
func (c *chaos) replica(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		life, kill := context.WithCancel(ctx)
		if !c.calm.Load() && rand.IntN(3) == 0 {
			time.AfterFunc(time.Duration(rand.IntN(30))*time.Millisecond, func() { kill(); c.killed.Add(1) })
		}
		if err := c.turn(life); err != nil && life.Err() == nil && !errs.Is(err, errs.Unavailable) {
			t.Errorf("replica: %v", err)
		}
		kill()
		time.Sleep(5 * time.Millisecond)
	}
}

func (c *chaos) turn(ctx context.Context) error {
	lags, err := c.Management.FlowLags(ctx)
	if err != nil {
		return err
	}
	for _, lag := range lags {
		if lag.Head > lag.Cursor {
			if _, err := c.Management.FollowLog(ctx, lag); err != nil {
				return err
			}
		}
	}
	if _, err := c.Management.SubmitWaiting(ctx, 50); err != nil {
		return err
	}
	_, err = c.Management.RestFlows(ctx)
	return err
}

func (c *chaos) worker(ctx context.Context, t *testing.T, queue ids.ID) {
	tenant := c.tenant
	tenant.QueueID = queue
	for ctx.Err() == nil {
		for _, a := range c.Claim(t, tenant, 8) {
			o := task.Outcome{Kind: task.OutcomeComplete, Proof: storetest.ProofOf(a), Result: strictjson.Raw(`{"v":1.0}`)}
			if !c.calm.Load() {
				switch rand.IntN(60) {
				case 0, 1:
					o.Kind, o.Result, o.Failure = task.OutcomeFail, nil, &task.Failure{Code: "CHAOS"}
				case 2:
					o.Kind, o.Result, o.Failure, o.Retryable, o.RetryAfter = task.OutcomeFail, nil, &task.Failure{Code: "CHAOS"}, true, new(time.Duration)
				case 3:
					o.Kind, o.Result = task.OutcomeCancelled, nil
				case 4:
					o.Kind, o.Result = task.OutcomeRelease, nil
				case 5, 6: // lost
					var err error
					for range 20 { // this statement of the test's own may lose a deadlock
						if _, err = c.SQL.Exec("UPDATE permits SET lease_until = '2020-01-01' WHERE attempt_id = ?", a.Attempt.ID[:]); err == nil {
							break
						}
					}
					if err != nil {
						t.Error(err)
					}
					if _, err := c.Management.SweepAttempts(context.Background(), 100); err != nil {
						t.Error(err)
					}
					continue
				}
			}
			if _, err := c.Gateway.FinishAttempts(context.Background(), c.tenant.NamespaceID, queue, []task.Outcome{o}); err != nil {
				t.Errorf("worker: %v", err)
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// people interfere with random runs; a state that does not allow a command says so.
func (c *chaos) people(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil && !c.calm.Load() {
		run := c.runs[rand.IntN(len(c.runs))]
		var err error
		switch rand.IntN(8) {
		case 0, 1:
			_, err = c.Management.CommandRun(ctx, c.tenant.Write(), run, flow.Pause, flow.Command{Reason: "chaos"})
		case 2, 3, 4:
			_, err = c.Management.CommandRun(ctx, c.tenant.Write(), run, flow.Resume, flow.Command{Reason: "chaos"})
		case 5:
			if rand.IntN(6) == 0 {
				_, err = c.Management.CommandRun(ctx, c.tenant.Write(), run, flow.Cancel, flow.Command{Reason: "chaos"})
			}
		default:
			r := c.get(t, run)
			s := r.Steps[rand.IntN(len(r.Steps))]
			for _, other := range r.Steps { // one that can be, if there is one
				if other.State == flow.StepFailed || other.State == flow.StepCancelled {
					s = other
				}
			}
			_, err = c.Management.RetryStep(ctx, c.tenant.Write(), run, s.Name, flow.Command{Reason: "chaos"})
		}
		if err != nil && !errs.Is(err, errs.StateConflict) && !errs.Is(err, errs.Unavailable) {
			t.Errorf("command: %v", err)
		}
		c.resolveSome(t)
		time.Sleep(2 * time.Millisecond)
	}
}

// settle resumes what is paused and resolves what needs review; it returns how many runs are not final.
func (c *chaos) settle(t *testing.T) (left int) {
	for _, run := range c.runs {
		r := c.get(t, run)
		c.checkVisible(t, r)
		if r.State.Final() {
			continue
		}
		left++
		if r.State == flow.Paused {
			if err := c.command(t, run, flow.Resume); err != nil && !errs.Is(err, errs.StateConflict) {
				t.Error(err)
			}
		}
	}
	c.resolveSome(t)
	time.Sleep(50 * time.Millisecond)
	return left
}

// retryFailed gives every failed run another chance; it returns how many.
func (c *chaos) retryFailed(t *testing.T) (n int) {
	for _, run := range c.runs {
		r := c.get(t, run)
		for _, s := range r.Steps {
			if r.State == flow.Failed && s.State == flow.StepFailed {
				if err := c.retry(t, run, s.Name); err != nil && !errs.Is(err, errs.StateConflict) {
					t.Error(err)
				}
				n++
			}
		}
	}
	return n
}

func (c *chaos) resolveSome(t *testing.T) {
	rows, err := c.SQL.Query("SELECT id, revision FROM tasks WHERE state = 'NEEDS_REVIEW' LIMIT 3")
	if err != nil {
		t.Error(err)
		return
	}
	defer rows.Close()
	for rows.Next() {
		var id ids.ID
		var revision ids.Counter
		var n uint64
		if err := rows.Scan(&id, &n); err != nil {
			t.Error(err)
			return
		}
		revision = ids.Counter(n)
		outcome := []string{"succeeded", "failed", "requeue", "requeue"}[rand.IntN(4)]
		cmd := task.Resolve{ExpectedRevision: &revision, Outcome: outcome, Reason: "chaos"}
		if outcome == "succeeded" {
			cmd.Result = strictjson.Raw(`{"v":2}`)
		}
		if _, err := c.Management.ResolveTask(context.Background(), c.tenant.Write(), id, cmd); err != nil && !errs.Is(err, errs.StateConflict) {
			t.Errorf("resolve: %v", err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
}
