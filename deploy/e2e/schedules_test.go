package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/mysqld"
	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// replicas is a database with any number of management processes on it, and nothing else.
type replicas struct {
	dsn    string
	token  string
	queue  string
	db     *sql.DB
	client *orbit.Client // of the first
}

func startReplicas(t *testing.T) *replicas {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := mysqld.Start(ctx, mysqld.Options{Dir: t.TempDir(), DieWithParent: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	root, err := sql.Open("mysql", server.RootDSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := root.Exec("CREATE DATABASE orbit"); err != nil {
		t.Fatal(err)
	}
	r := &replicas{dsn: server.RootDSN("orbit")}
	r.admin(t, "migrate", "up")
	var made struct {
		QueueID string `json:"queue_id"`
		Token   string `json:"token"`
	}
	if err := json.Unmarshal(r.admin(t, "bootstrap", "-o", "json", "--all-queues"), &made); err != nil {
		t.Fatal(err)
	}
	r.queue, r.token = made.QueueID, made.Token
	if r.db, err = sql.Open("mysql", r.dsn+"?parseTime=true&time_zone=%27%2B00%3A00%27"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.db.Close() })
	return r
}

func (r *replicas) admin(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "orbit-management"), args...)
	cmd.Env = append(withoutOrbit(os.Environ()), "ORBIT_DSN="+r.dsn)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, out, &stderr)
	}
	return out
}

// replica is one management process.
type replica struct {
	cmd *exec.Cmd
	url string
}

func (r *replicas) start(t *testing.T) *replica {
	t.Helper()
	addr := freeAddr(t)
	one := &replica{cmd: exec.Command(filepath.Join(bin, "orbit-management"), "serve"), url: "http://" + addr}
	one.cmd.Env = append(withoutOrbit(os.Environ()), "ORBIT_DSN="+r.dsn, "ORBIT_MANAGEMENT_ADDR="+addr, "ORBIT_LOG_LEVEL=warn")
	one.cmd.Stderr = os.Stderr
	if err := one.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.kill() })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if res, err := http.Get(one.url + "/readyz"); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("a replica is never ready")
		}
	}
	if r.client == nil {
		client, err := orbit.NewClient(one.url, r.token)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		r.client = client
	}
	return one
}

func (o *replica) kill() {
	if o.cmd.ProcessState == nil {
		_ = o.cmd.Process.Kill()
		_ = o.cmd.Wait() // it was killed
	}
}

func (o *replica) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := o.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// schedules creates and publishes n of them.
func (r *replicas) schedules(t *testing.T, n int, spec orbit.ScheduleSpec) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	spec.Task = orbit.ScheduleTask{Input: json.RawMessage(`1`), RetrySafety: orbit.Safe}
	var all sync.WaitGroup
	next := make(chan int)
	for range 8 {
		all.Go(func() {
			for i := range next {
				made, err := r.client.CreateSchedule(ctx, orbit.NewKey(), orbit.CreateScheduleRequest{Name: fmt.Sprintf("s%d", i), QueueID: r.queue, ScheduleSpec: spec})
				if err != nil {
					t.Error(err)
					continue
				}
				if _, err := r.client.PublishSchedule(ctx, made.Schedule.ID, orbit.NewKey(), orbit.ScheduleCommandRequest{ExpectedRevision: "1", Reason: "test"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

func (r *replicas) count(t *testing.T, query string) (n int) {
	t.Helper()
	if err := r.db.QueryRow(query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// number reads a size that a longer run sets.
func number(t *testing.T, name string, small int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return small
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// F3 and kill -9 between due and fired: schedules that fire every second, while replicas are killed,
// frozen for ORBIT_FREEZE_SECONDS (4; 60 is the scenario's own) and all gone at once. Each fire time
// of each schedule has exactly one task, none is left out. ORBIT_FREEZE_ROUNDS (1) repeats it all.
func TestSchedulesWhileReplicasDieAndFreeze(t *testing.T) {
	t.Parallel()
	freeze := time.Duration(number(t, "ORBIT_FREEZE_SECONDS", 4)) * time.Second
	r := startReplicas(t)
	a, b := r.start(t), r.start(t)
	const schedules = 25
	r.schedules(t, schedules, orbit.ScheduleSpec{Every: 1, CatchUp: orbit.CatchUpAll})
	fired := func() int { return r.count(t, "SELECT COUNT(*) FROM schedule_fires") }
	for range number(t, "ORBIT_FREEZE_ROUNDS", 1) {
		time.Sleep(time.Second)
		a.kill()
		time.Sleep(time.Second)
		a = r.start(t)

		before := fired()
		b.signal(t, syscall.SIGSTOP)
		time.Sleep(freeze)
		if n := fired() - before; n == 0 {
			t.Error("nothing fired while one of two replicas was frozen")
		}
		b.signal(t, syscall.SIGCONT)
		time.Sleep(time.Second)

		a.kill()
		b.kill()
		time.Sleep(2 * time.Second) // fire times pass
		a, b = r.start(t), r.start(t)
	}
	deadline := time.Now().Add(time.Minute)
	for r.count(t, "SELECT COUNT(*) FROM schedules WHERE next_at < UTC_TIMESTAMP(6) - INTERVAL 2 SECOND") > 0 {
		if time.Now().After(deadline) {
			t.Fatal("schedules stay behind")
		}
		time.Sleep(100 * time.Millisecond)
	}
	a.kill()
	b.kill()
	time.Sleep(100 * time.Millisecond) // the server notices
	if n := r.count(t, "SELECT COUNT(*) FROM schedule_fires WHERE task_id IS NULL"); n != 0 {
		t.Errorf("%d entries without a task", n)
	}
	if n := r.count(t, "SELECT COUNT(*) FROM (SELECT schedule_id FROM schedule_fires GROUP BY schedule_id HAVING COUNT(*) = TIMESTAMPDIFF(SECOND, MIN(fire_at), MAX(fire_at)) + 1) x"); n != schedules {
		t.Errorf("only %d of %d schedules fired in every second", n, schedules)
	}
	total, tasks := fired(), r.count(t, "SELECT COUNT(*) FROM tasks")
	if matched := r.count(t, "SELECT COUNT(*) FROM schedule_fires f JOIN tasks t ON t.namespace_id = f.namespace_id AND t.id = f.task_id AND t.run_at = f.fire_at"); tasks != total || matched != total {
		t.Errorf("%d entries, %d tasks, %d that match", total, tasks, matched)
	}
	t.Logf("%d fire times of %d schedules", total, schedules)
}

// Many schedules that are due together fire once each on two replicas; make bench SCENARIO=schedules
// measures 10 000.
func TestManySchedulesDueTogether(t *testing.T) {
	t.Parallel()
	r := startReplicas(t)
	r.start(t)
	r.start(t)
	n := number(t, "ORBIT_SCHEDULES", 400)
	r.schedules(t, n, orbit.ScheduleSpec{Cron: "0 0 29 2 *"})
	if _, err := r.db.Exec("UPDATE schedules SET next_at = UTC_TIMESTAMP(6) + INTERVAL 1 SECOND"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); r.count(t, "SELECT COUNT(*) FROM schedule_fires") < n; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d fired", r.count(t, "SELECT COUNT(*) FROM schedule_fires"), n)
		}
	}
	if fires, tasks := r.count(t, "SELECT COUNT(*) FROM schedule_fires WHERE task_id IS NOT NULL"), r.count(t, "SELECT COUNT(*) FROM tasks"); fires != n || tasks != n {
		t.Errorf("%d entries and %d tasks of %d schedules", fires, tasks, n)
	}
	t.Logf("the last of %d after %d ms", n, r.count(t, "SELECT TIMESTAMPDIFF(MICROSECOND, MIN(fire_at), MAX(created_at)) DIV 1000 FROM schedule_fires"))
}
