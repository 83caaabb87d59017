package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// management starts one more replica and returns it with its address.
func management(t *testing.T, dsn string) (*exec.Cmd, string) {
	t.Helper()
	addr := freeAddr(t)
	cmd := exec.Command(filepath.Join(bin, "orbit-management"), "serve")
	cmd.Env = append(withoutOrbit(os.Environ()), "ORBIT_DSN="+dsn, "ORBIT_MANAGEMENT_ADDR="+addr)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, addr
}

// flowScale is how many diamonds are run; ORBIT_FLOW_RUNS=1000 is the full size.
func flowScale(t *testing.T) int {
	text := os.Getenv("ORBIT_FLOW_RUNS")
	if text == "" {
		return 60
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFlowsOutliveTheirReplicas: diamonds of ten steps in parallel while replicas of management are
// killed with -9, and one is frozen and thawed. Every run succeeds and each step has one task.
func TestFlowsOutliveTheirReplicas(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	env := []string{"ORBIT_HOME=" + home, "ORBIT_MANAGEMENT_ADDR=" + freeAddr(t), "ORBIT_GATEWAY_ADDR=" + freeAddr(t), "ORBIT_MYSQL_ADDR=127.0.0.1:"}
	if out, err := local(t, env, "up"); err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := local(t, env, "down"); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
	})
	vars := readEnv(t, filepath.Join(home, "env"))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	client, err := orbit.NewClient(vars["ORBIT_MANAGEMENT_URL"], vars["ORBIT_TOKEN"])
	if err != nil {
		t.Fatal(err)
	}
	queue := vars["ORBIT_QUEUE_ID"]
	steps := []orbit.FlowStep{{Name: "first", QueueID: queue, Input: orbit.RunInput("/n"), RetrySafety: orbit.Safe}}
	last := orbit.FlowStep{Name: "last", QueueID: queue, Input: orbit.StepResult("first", ""), RetrySafety: orbit.Safe}
	for i := range 8 {
		name := fmt.Sprintf("middle-%d", i)
		steps = append(steps, orbit.FlowStep{Name: name, QueueID: queue, Input: orbit.StepResult("first", ""), DependsOn: []string{"first"}, RetrySafety: orbit.Safe})
		last.DependsOn = append(last.DependsOn, name)
	}
	flow, err := client.CreateFlow(ctx, orbit.NewKey(), orbit.CreateFlowRequest{Name: "diamond", Steps: append(steps, last)})
	if err != nil {
		t.Fatal(err)
	}

	working, stopWork := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() {
		w := orbit.Worker{
			URL: vars["ORBIT_GATEWAY_URL"], Token: vars["ORBIT_TOKEN"], QueueID: queue, Name: "flows", Concurrency: 32,
			Handler: func(_ context.Context, a *orbit.Assignment) (json.RawMessage, error) { return a.Task.Input, nil },
		}
		worked <- w.Run(working)
	}()
	frozen, _ := management(t, vars["ORBIT_DSN"])
	chaos, calm := context.WithCancel(ctx)
	restless := make(chan int)
	go func() {
		kills := 0
		for ; chaos.Err() == nil; kills++ {
			victim, _ := management(t, vars["ORBIT_DSN"])
			time.Sleep(700 * time.Millisecond)
			if err := victim.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = victim.Wait() // it was killed
		}
		restless <- kills
	}()
	n := flowScale(t)
	var runs []string
	for i := range n {
		run, err := client.StartFlow(ctx, flow.Flow.ID, orbit.NewKey(), orbit.StartFlowRequest{Input: json.RawMessage(`{"n":[1.0,9007199254740993]}`)})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run.Run.ID)
		switch i {
		case n / 4:
			_ = frozen.Process.Signal(syscall.SIGSTOP)
		case 3 * n / 4:
			_ = frozen.Process.Signal(syscall.SIGCONT)
		}
	}
	for _, id := range runs {
		for {
			run, err := client.GetRun(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if run.State == orbit.RunStateSucceeded {
				break
			}
			if run.FinishedAt != nil || ctx.Err() != nil {
				t.Fatalf("run %s is %s: %+v", id, run.State, run.Steps)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	calm()
	kills := <-restless
	if err := frozen.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = frozen.Wait() // it was killed
	stopWork()
	if err := <-worked; err != nil {
		t.Error(err)
	}
	db, err := sql.Open("mysql", vars["ORBIT_DSN"])
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var tasks, links, exact int
	err = db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM tasks), (SELECT COUNT(DISTINCT run_id, step, try_number) FROM flow_tasks),
(SELECT COUNT(*) FROM tasks t JOIN attempts a ON a.namespace_id = t.namespace_id AND a.id = t.current_attempt_id WHERE t.input = '[1.0,9007199254740993]' AND a.result = t.input)`).Scan(&tasks, &links, &exact)
	if err != nil || tasks != 10*n || links != 10*n || exact != 10*n {
		t.Errorf("%d tasks, %d steps, %d exact results for %d runs of 10 steps, %v", tasks, links, exact, n, err)
	}
	t.Logf("%d runs, %d tasks, %d replicas killed", n, tasks, kills)
}
