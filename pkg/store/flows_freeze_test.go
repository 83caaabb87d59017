package store_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// TestF3AFrozenReplicaIsFenced plays scenario F3 for flows, at the worst moments: a replica stops before
// its transaction has locked a run, and just before it moves the cursor. Another takes over, the run
// goes on to its end, and what the thawed one still sends changes nothing.
func TestF3AFrozenReplicaIsFenced(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"before the runs are locked": "FROM flow_runs FORCE INDEX (PRIMARY)", "before the cursor moves": "UPDATE flow_progress SET cursor_sequence", "at the commit": "COMMIT$",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFlowRig(t)
			run := f.start(t, f.publish(t, f.step("a", `1`), f.step("b", `{"$step":"a","path":"/v"}`, "a"), f.step("c", `3`, "b")), `1`)
			f.finish(t, task.Outcome{Result: strictjson.Raw(`{"v":1.0}`)})
			ctx := context.Background()
			lags, err := f.Management.FlowLags(ctx)
			if err != nil || len(lags) != 1 {
				t.Fatal(lags, err)
			}
			frozen, thaw := make(chan struct{}), make(chan struct{})
			var once sync.Once
			p := f.NewProxy(t)
			p.Decide(func(query string) storetest.Fate {
				if strings.Contains(query+"$", statement) {
					once.Do(func() { close(frozen); <-thaw })
				}
				return storetest.Pass
			})
			done := make(chan error, 1)
			go func() {
				_, err := p.Store.FollowLog(ctx, lags[0])
				done <- err
			}()
			<-frozen
			began := time.Now()
			for f.get(t, run).Steps[1].State != flow.StepSubmitted {
				lags, err := f.Management.FlowLags(ctx)
				must(t, err)
				if _, err := f.Management.FollowLog(ctx, lags[0]); err != nil {
					t.Logf("after %s: %v", time.Since(began).Round(time.Second), err)
				}
				if time.Since(began) > 2*time.Minute {
					t.Fatalf("nobody takes over: %s", f.states(t, run))
				}
			}
			t.Logf("taken over after %s", time.Since(began).Round(time.Millisecond))
			f.complete(t, `1`)
			close(thaw)
			if err := <-done; err != nil {
				t.Logf("the thawed one: %v", err)
			}
			f.want(t, run, "RUNNING a=SUCCEEDED.1 b=SUCCEEDED.1 c=SUBMITTED.1")
			f.complete(t, `1`)
			f.want(t, run, "SUCCEEDED a=SUCCEEDED.1 b=SUCCEEDED.1 c=SUCCEEDED.1")
			var tasks int
			if err := f.SQL.QueryRow("SELECT COUNT(*) FROM tasks").Scan(&tasks); err != nil || tasks != 3 {
				t.Errorf("%d tasks, %v", tasks, err)
			}
			f.checkOneTaskATry(t)
		})
	}
}
