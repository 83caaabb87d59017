// Package examples_test runs every example as a user does: a program of its own against a real stack.
package examples_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/orbittest"
)

var (
	stack *orbittest.Stack
	built string // the folder of the examples' programs
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var err error
	if built, err = os.MkdirTemp("", "orbit-examples-"); err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(built) }()
	build := exec.Command("go", "build", "-o", built+"/", "./...")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fail(fmt.Errorf("build the examples: %w", err))
	}
	bin, err := programs()
	if err != nil {
		return fail(err)
	}
	if stack, err = orbittest.Open(context.Background(), orbittest.Options{Bin: bin, Private: true}); err != nil {
		return fail(err)
	}
	defer func() {
		if err := stack.Close(); err != nil {
			code = fail(err)
		}
	}()
	return m.Run()
}

// programs are Orbit's own, of ORBIT_BIN, or built from this checkout.
func programs() (string, error) {
	if bin := os.Getenv("ORBIT_BIN"); bin != "" {
		return bin, nil
	}
	bin, err := filepath.Abs(filepath.Join("..", "..", "..", "bin"))
	if err != nil {
		return "", err
	}
	build := exec.Command("make", "-C", filepath.Dir(bin), "build")
	build.Stderr = os.Stderr
	return bin, build.Run()
}

// program prepares an example in a folder of its own, for this endpoint.
func program(t *testing.T, e orbittest.Endpoint, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), filepath.Join(built, name), args...)
	cmd.Dir = dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ORBIT_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "ORBIT_MANAGEMENT_URL="+e.ManagementURL, "ORBIT_GATEWAY_URL="+e.GatewayURL, "ORBIT_TOKEN="+e.Token, "ORBIT_QUEUE_ID="+e.QueueID)
	return cmd
}

// output runs it to its end.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", filepath.Base(cmd.Path), err, out, stderr.String())
	}
	return string(out)
}

// running is a program that goes on until it is told to stop.
type running struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func start(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &running{cmd, bufio.NewScanner(out)}
}

// await reads what it says until n lines have begun with prefix.
func (r *running) await(t *testing.T, prefix string, n int) {
	t.Helper()
	for n > 0 {
		if !r.lines.Scan() {
			t.Fatalf("%s ended before it said %q: %v", filepath.Base(r.cmd.Path), prefix, r.cmd.Wait())
		}
		if strings.HasPrefix(r.lines.Text(), prefix) {
			n--
		}
	}
}

// stop asks it to end, as a deploy does, and it must end well.
func (r *running) stop(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for r.lines.Scan() {
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("%s ended with %v", filepath.Base(r.cmd.Path), err)
	}
}

// kill ends it as a crash does.
func (r *running) kill(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := r.cmd.Wait(); !errors.As(err, &exit) {
		t.Fatal(err)
	}
}

func TestSubscriptionManagement(t *testing.T) {
	t.Parallel()
	e, dir := stack.Namespace(t), t.TempDir()
	first := output(t, program(t, e, dir, "subscription-management", "operations.json"))
	again := output(t, program(t, e, dir, "subscription-management", "operations.json"))
	if want := strings.ReplaceAll(first, "deduplicated false", "deduplicated true"); again != want || first == again {
		t.Errorf("first\n%sagain\n%s", first, again)
	}
	if !strings.Contains(first, "paused revision 2") || !strings.Contains(first, "resumed revision 3") || !strings.HasSuffix(first, "now enabled true pending 0\n") {
		t.Errorf("it said\n%s", first)
	}
}

var acknowledged = regexp.MustCompile(`acknowledged ([0-9a-f]{32}) at (\S+) deduplicated (\w+)`)

func TestEventProtocol(t *testing.T) {
	t.Parallel()
	e, dir := stack.Namespace(t), t.TempDir()
	sub := e.NewSubscription(t, e.QueueID, nil)
	e.Results(t, e.QueueID, `1.0`)
	dying := program(t, e, dir, "event-protocol", "receive", sub, "saved.json")
	dying.Env = append(dying.Env, "EXAMPLE_DIE=1")
	var exit *exec.ExitError
	if err := dying.Run(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Fatalf("it should have died between saving and acknowledging: %v", err)
	}
	var reports [][]string
	for range 3 {
		reports = append(reports, acknowledged.FindStringSubmatch(output(t, program(t, e, dir, "event-protocol", "report", sub, "saved.json"))))
	}
	if reports[0] == nil || reports[0][3] != "false" {
		t.Fatalf("the first report said %v", reports[0])
	}
	for _, r := range reports[1:] {
		if r == nil || r[1] != reports[0][1] || r[2] != reports[0][2] || r[3] != "true" {
			t.Errorf("reported again: %v, first %v", r, reports[0])
		}
	}
	if s, err := e.Client(t).GetSubscription(t.Context(), sub); err != nil || s.PendingCount != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestWorker(t *testing.T) {
	t.Parallel()
	e := stack.Namespace(t)
	ids := e.Submit(t, e.QueueID, `{"text":"to be or not to be"}`, `{"text":""}`, `{}`, `[]`)
	w := start(t, program(t, e, t.TempDir(), "worker"))
	w.await(t, "task ", len(ids))
	w.stop(t)
	for i, want := range []string{
		`SUCCEEDED {"sha256":"2e9d72a733ae5a6c1c1ebd6802a33dfc92854bfc3439878e5d77dac320995f54","words":6}`,
		`SUCCEEDED {"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","words":0}`,
		`FAILED BAD_INPUT`, `FAILED BAD_INPUT`,
	} {
		task, err := e.Client(t).GetTask(t.Context(), ids[i])
		if err != nil {
			t.Fatal(err)
		}
		got := task.State + " " + string(task.Result)
		if task.Error != nil {
			got = task.State + " " + task.Error.Code
		}
		if got != want {
			t.Errorf("task %d: %s, want %s", i, got, want)
		}
	}
}

// What is listed and what is followed overlap; the copy ends equal to the server's word, also over a restart.
func TestLoadThenFollow(t *testing.T) {
	t.Parallel()
	e, dir := stack.Namespace(t), t.TempDir()
	e.Results(t, e.QueueID, `1`, `2`, `3`)
	e.Submit(t, e.QueueID, `4`, `5`)
	p := start(t, program(t, e, dir, "load-then-follow", "states.json"))
	p.await(t, "loaded 5", 1)
	e.Work(t, e.QueueID, 2, nil)
	p.await(t, "followed", 2)
	p.stop(t)
	e.Results(t, e.QueueID, `6`) // while it is away
	p = start(t, program(t, e, dir, "load-then-follow", "states.json"))
	p.await(t, "loaded 6", 1)
	p.await(t, "followed", 1)
	p.stop(t)
	f, err := os.Open(filepath.Join(dir, "states.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var view struct {
		Tasks map[string]struct{ Revision, State string }
	}
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &view); err != nil {
		t.Fatal(err)
	}
	n := 0
	for task, err := range e.Client(t).AllTasks(t.Context(), orbit.ListTasksRequest{QueueID: e.QueueID}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if got := view.Tasks[task.ID]; got.Revision != task.Revision || got.State != task.State || task.State != orbit.TaskStateSucceeded {
			t.Errorf("task %s is %s at %s, the copy says %+v", task.ID, task.State, task.Revision, got)
		}
	}
	if n != 6 || len(view.Tasks) != 6 {
		t.Errorf("%d tasks, %d in the copy", n, len(view.Tasks))
	}
}

const patience = 5 * time.Minute
