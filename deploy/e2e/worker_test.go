package e2e

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // to read the log itself

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// hangingWorker makes this test binary a worker that takes tasks, says so, and never finishes one.
const hangingWorker = "ORBIT_E2E_HANGING_WORKER"

func hang() int {
	w := orbit.Worker{
		URL: os.Getenv("ORBIT_GATEWAY_URL"), Token: os.Getenv("ORBIT_TOKEN"), QueueID: os.Getenv(hangingWorker), Name: "hanging", Concurrency: 40,
		Handler: func(ctx context.Context, a *orbit.Assignment) (json.RawMessage, error) {
			fmt.Println("holding", a.Task.ID)
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	if err := w.Run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// stackUp starts a stack for one test and returns its environment and a client.
func stackUp(t *testing.T) (map[string]string, *orbit.Client) {
	t.Helper()
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
	client, err := orbit.NewClient(vars["ORBIT_MANAGEMENT_URL"], vars["ORBIT_TOKEN"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return vars, client
}

// kill -9 of a worker that holds 20 safe and 20 unsafe tasks: the safe ones run again and succeed, the
// unsafe ones go to review with effect_uncertain and are resolved each way; the log says exactly that.
func TestAKilledWorkerForgetsNothing(t *testing.T) {
	t.Parallel()
	vars, client := stackUp(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	q, err := client.CreateQueue(ctx, orbit.NewKey(), orbit.CreateQueueRequest{Name: "fragile", LeaseDurationMS: 5000})
	if err != nil {
		t.Fatal(err)
	}
	safety := map[string]string{}
	for i := range 40 {
		kind := []orbit.RetrySafety{orbit.Safe, orbit.Unsafe}[i%2]
		task, err := client.SubmitTask(ctx, orbit.NewKey(), orbit.SubmitTaskRequest{QueueID: q.Queue.ID, Input: json.RawMessage(`1`), RetrySafety: kind})
		if err != nil {
			t.Fatal(err)
		}
		safety[task.Task.ID] = kind
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(withoutOrbit(os.Environ()), hangingWorker+"="+q.Queue.ID, "ORBIT_GATEWAY_URL="+vars["ORBIT_GATEWAY_URL"], "ORBIT_TOKEN="+vars["ORBIT_TOKEN"])
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for held := 0; held < 40; held++ {
		if !lines.Scan() {
			t.Fatalf("the worker ended after %d tasks", held)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed

	healthy, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	w := orbit.Worker{
		URL: vars["ORBIT_GATEWAY_URL"], Token: vars["ORBIT_TOKEN"], QueueID: q.Queue.ID, Name: "healthy", Concurrency: 8,
		Handler: func(context.Context, *orbit.Assignment) (json.RawMessage, error) { return json.RawMessage(`2`), nil },
	}
	go func() { ended <- w.Run(healthy) }()
	settled := func(want func(orbit.Task) bool) []orbit.Task {
		t.Helper()
		for {
			var done []orbit.Task
			for task, err := range client.AllTasks(ctx, orbit.ListTasksRequest{QueueID: q.Queue.ID, Limit: 100}) {
				if err != nil {
					t.Fatal(err)
				}
				if want(task) {
					done = append(done, task)
				}
			}
			if len(done) == 40 {
				return done
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	for i, task := range settled(func(task orbit.Task) bool {
		return task.State == "SUCCEEDED" && safety[task.ID] == orbit.Safe || task.State == "NEEDS_REVIEW" && safety[task.ID] == orbit.Unsafe
	}) {
		if safety[task.ID] == orbit.Safe {
			if task.Attempts != 2 || task.EffectUncertain {
				t.Errorf("safe task %+v", task)
			}
			continue
		}
		if !task.EffectUncertain {
			t.Errorf("unsafe task %+v", task)
		}
		outcome := []string{"succeeded", "failed", "requeue"}[i%3]
		if _, err := client.ResolveTask(ctx, task.ID, orbit.NewKey(), orbit.ResolveTaskRequest{ExpectedRevision: task.Revision, Outcome: outcome, Reason: "looked"}); err != nil {
			t.Fatal(err)
		}
	}
	settled(func(task orbit.Task) bool { return task.State == "SUCCEEDED" || task.State == "FAILED" })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	checkKilledLog(t, vars["ORBIT_DSN"], safety)
}

// checkKilledLog reads the events of each task in order.
func checkKilledLog(t *testing.T, dsn string, safety map[string]string) {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query("SELECT sequence, LOWER(HEX(aggregate_id)), type FROM result_events ORDER BY sequence")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	history, n := map[string]string{}, 0
	for rows.Next() {
		var sequence int
		var id, kind string
		if err := rows.Scan(&sequence, &id, &kind); err != nil {
			t.Fatal(err)
		}
		if n++; sequence != n {
			t.Errorf("event %d has sequence %d", n, sequence)
		}
		history[id] += " " + kind
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for id, kind := range safety {
		got := history[id]
		switch {
		case kind == orbit.Safe && got == " task.requeued task.succeeded":
		case kind == orbit.Unsafe && got == " task.needs_review task.succeeded":
		case kind == orbit.Unsafe && got == " task.needs_review task.failed":
		case kind == orbit.Unsafe && got == " task.needs_review task.requeued task.succeeded":
		default:
			t.Errorf("%s task %s:%s", kind, id, got)
		}
	}
}
