package e2e

import (
	"bufio"
	"context"
	"database/sql"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// patience is far more than anything here takes on a busy machine.
const patience = 2 * time.Minute

// fleet is a stack with services of the test's own beside it, and the database to look at.
type fleet struct {
	t      *testing.T
	vars   map[string]string
	client *orbit.Client
	db     *sql.DB
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t}
	f.vars, f.client = stackUp(t)
	db, err := sql.Open("mysql", f.vars["ORBIT_DSN"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	f.db = db
	return f
}

// dsn is the stack's database for a user with every right on it, made where it is missing.
func (f *fleet) dsn(user string) string {
	f.t.Helper()
	for _, statement := range []string{"CREATE USER IF NOT EXISTS '" + user + "'@'%'", "GRANT ALL ON orbit.* TO '" + user + "'@'%'"} {
		if _, err := f.db.Exec(statement); err != nil {
			f.t.Fatal(err)
		}
	}
	_, address, _ := strings.Cut(f.vars["ORBIT_DSN"], "@")
	return user + "@" + address
}

// service is a gateway or management process that can be started again at its address.
type service struct {
	*process
	url   string
	start func() *process
}

func (f *fleet) gateway(user string, env ...string) *service {
	f.t.Helper()
	addr := freeAddr(f.t)
	return f.service(addr, func() *process {
		return startProcess(f.t, filepath.Join(bin, "orbit-gateway"), nil, append(env, "ORBIT_DSN="+f.dsn(user), "ORBIT_GATEWAY_ADDR="+addr)...)
	})
}

func (f *fleet) management(user string, env ...string) *service {
	f.t.Helper()
	addr := freeAddr(f.t)
	return f.service(addr, func() *process {
		return startProcess(f.t, filepath.Join(bin, "orbit-management"), []string{"serve"}, append(env, "ORBIT_DSN="+f.dsn(user), "ORBIT_MANAGEMENT_ADDR="+addr)...)
	})
}

func (f *fleet) service(addr string, start func() *process) *service {
	s := &service{url: "http://" + addr, start: start}
	s.process = start()
	s.awaitReady()
	return s
}

func (s *service) restart() {
	s.t.Helper()
	s.stop()
	s.process = s.start()
	s.awaitReady()
}

func (s *service) awaitReady() {
	s.t.Helper()
	eventually(s.t, s.url+" to be ready", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/readyz", nil)
		if err != nil {
			s.t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close() // only the status counts
		return resp.StatusCode == http.StatusOK
	})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s", patience, what)
		}
	}
}

// process is one child; its output is kept, line by line.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{}
	err   error // after ended

	mu    sync.Mutex
	lines []string
}

func startProcess(t *testing.T, path string, args []string, env ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Env = append(withoutOrbit(os.Environ()), env...)
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // the child has its own
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, lines.Text())
			p.mu.Unlock()
		}
		_ = out.Close()
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // a frozen process does not die of SIGTERM, and none may stay
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Logf("%s %v said:\n%s", filepath.Base(path), args, strings.Join(p.lines[max(0, len(p.lines)-15):], "\n"))
		}
	})
	return p
}

// said returns the rest of each line that begins with a word.
func (p *process) said(word string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, line := range p.lines {
		if rest, ok := strings.CutPrefix(line, word+" "); ok {
			out = append(out, rest)
		}
	}
	return out
}

// stop asks for a clean end and requires one.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		if p.err != nil {
			p.t.Errorf("a clean stop of process %d ended with %v", p.cmd.Process.Pid, p.err)
		}
	case <-time.After(patience):
		p.t.Fatalf("process %d did not stop", p.cmd.Process.Pid)
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// freezeIn stops the process while a transaction of its user holds locks: it freezes at some moment, looks,
// and lets go on until it has met one.
func (f *fleet) freezeIn(p *process, user string) {
	f.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		p.signal(syscall.SIGSTOP)
		time.Sleep(250 * time.Millisecond) // the server shows transactions as of up to 0.1 s ago
		if f.count(`SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id
WHERE p.user = ? AND x.trx_rows_locked > 0`, user) > 0 {
			return
		}
		p.signal(syscall.SIGCONT)
		time.Sleep(time.Duration(1+rand.IntN(30)) * time.Millisecond)
	}
	f.t.Fatalf("%s never had a transaction open", user)
}

// count runs a query of one number.
func (f *fleet) count(query string, args ...any) int {
	f.t.Helper()
	var n int
	if err := f.db.QueryRow(query, args...).Scan(&n); err != nil {
		f.t.Fatalf("%v: %s", err, query)
	}
	return n
}

// checkAtRest requires that tasks, permits, attempts and the log agree. Nothing may run any more.
func (f *fleet) checkAtRest() {
	f.t.Helper()
	for what, query := range map[string]string{
		"tasks that run without a permit": `SELECT COUNT(*) FROM tasks t LEFT JOIN permits p ON p.namespace_id = t.namespace_id AND p.attempt_id = t.current_attempt_id
 WHERE t.state = 'RUNNING' AND p.attempt_id IS NULL`,
		"permits without a running task": `SELECT COUNT(*) FROM permits p LEFT JOIN tasks t ON t.namespace_id = p.namespace_id AND t.id = p.task_id AND t.current_attempt_id = p.attempt_id AND t.state = 'RUNNING'
 WHERE t.id IS NULL`,
		"queued tasks that nobody can claim": `SELECT COUNT(*) FROM tasks t LEFT JOIN ready_tasks r ON r.namespace_id = t.namespace_id AND r.queue_id = t.queue_id AND r.task_id = t.id
 WHERE t.state = 'QUEUED' AND r.task_id IS NULL`,
		"claimable tasks that are not queued": `SELECT COUNT(*) FROM ready_tasks r LEFT JOIN tasks t ON t.namespace_id = r.namespace_id AND t.id = r.task_id AND t.state = 'QUEUED' WHERE t.id IS NULL`,
		"events with the revision of another": `SELECT COUNT(*) - COUNT(DISTINCT aggregate_id, aggregate_revision) FROM result_events`,
		"holes in the log": `SELECT COALESCE(SUM(n <> head OR n <> last), 0) FROM (
 SELECT s.namespace_id, s.head, COUNT(e.sequence) AS n, COALESCE(MAX(e.sequence), 0) AS last FROM result_streams s LEFT JOIN result_events e ON e.namespace_id = s.namespace_id GROUP BY s.namespace_id, s.head) x`,
		"final tasks without exactly one final event, of their state and revision": `SELECT COUNT(*) FROM tasks t LEFT JOIN (
 SELECT namespace_id, aggregate_id, COUNT(*) AS n, MAX(type) AS type, MAX(aggregate_revision) AS revision FROM result_events
 WHERE type IN ('task.succeeded', 'task.failed', 'task.cancelled') GROUP BY namespace_id, aggregate_id) e ON e.namespace_id = t.namespace_id AND e.aggregate_id = t.id
 WHERE t.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED') AND (e.n IS NULL OR e.n <> 1 OR e.type <> CONCAT('task.', LOWER(t.state)) OR e.revision <> t.revision)`,
		"final events of tasks that are not final": `SELECT COUNT(*) FROM result_events e JOIN tasks t ON t.namespace_id = e.namespace_id AND t.id = e.aggregate_id
 WHERE e.type IN ('task.succeeded', 'task.failed', 'task.cancelled') AND t.state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED')`,
		"tasks with two successful attempts": `SELECT COUNT(*) FROM (SELECT task_id FROM attempts WHERE outcome = 'SUCCEEDED' GROUP BY namespace_id, task_id HAVING COUNT(*) > 1) x`,
		"tasks whose attempts are not those that are recorded": `SELECT COUNT(*) FROM tasks t LEFT JOIN (
 SELECT namespace_id, task_id, COUNT(*) AS n FROM attempts GROUP BY namespace_id, task_id) a ON a.namespace_id = t.namespace_id AND a.task_id = t.id
 WHERE t.state <> 'RUNNING' AND t.attempts <> COALESCE(a.n, 0)`,
	} {
		if n := f.count(query); n != 0 {
			f.t.Errorf("%d %s", n, what)
		}
	}
}
