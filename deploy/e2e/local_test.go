package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// local runs orbit-local with this environment and returns what it printed.
func local(t *testing.T, env []string, command string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "orbit-local"), command)
	cmd.Env = append(withoutOrbit(os.Environ()), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// withoutOrbit drops what a developer's shell may have set.
func withoutOrbit(env []string) []string {
	var out []string
	for _, v := range env {
		if !strings.HasPrefix(v, "ORBIT_") && !strings.HasPrefix(v, "DEMO_") {
			out = append(out, v)
		}
	}
	return out
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestDemoLosesNothingWhenTheGatewayIsKilled(t *testing.T) {
	t.Parallel()
	files := t.TempDir()
	const n = 120
	for i := range n {
		if err := os.WriteFile(filepath.Join(files, fmt.Sprintf("%03d.txt", i)), []byte(strings.Repeat("to be or not to be\n", i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := local(t, []string{"ORBIT_HOME=" + t.TempDir(), "DEMO_DIR=" + files, "DEMO_KILL=gateway", "DEMO_RATE=100"}, "demo")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := fmt.Sprintf("demo: %d tasks = %d inbox rows, 0 lost\n", n, n); !strings.HasSuffix(out, want) {
		t.Errorf("the demo ends with\n%s\nwant %s", out, want)
	}
	if !strings.Contains(out, "kill -9 of orbit-gateway") {
		t.Errorf("nothing was killed:\n%s", out)
	}
}

func TestTwoStacksSideBySide(t *testing.T) {
	t.Parallel()
	var homes [2]string
	for i := range homes {
		homes[i] = t.TempDir()
		env := []string{
			"ORBIT_HOME=" + homes[i], "ORBIT_MANAGEMENT_ADDR=" + freeAddr(t), "ORBIT_GATEWAY_ADDR=" + freeAddr(t), "ORBIT_MYSQL_ADDR=127.0.0.1:",
		}
		if out, err := local(t, env, "up"); err != nil {
			t.Fatalf("up: %v\n%s", err, out)
		}
		t.Cleanup(func() {
			if out, err := local(t, env, "down"); err != nil || !strings.Contains(out, "down") {
				t.Errorf("down: %v\n%s", err, out)
			}
		})
		if out, err := local(t, env, "up"); err != nil || !strings.Contains(out, "already up") {
			t.Errorf("second up: %v\n%s", err, out)
		}
	}
	var queues [2]string
	for i, home := range homes {
		env := readEnv(t, filepath.Join(home, "env"))
		client, err := orbit.NewClient(env["ORBIT_MANAGEMENT_URL"], env["ORBIT_TOKEN"])
		if err != nil {
			t.Fatal(err)
		}
		q, err := client.GetQueue(context.Background(), env["ORBIT_QUEUE_ID"])
		if err != nil {
			t.Fatal(err)
		}
		queues[i] = q.ID
		task, err := client.SubmitTask(context.Background(), orbit.NewKey(), orbit.SubmitTaskRequest{QueueID: q.ID, Input: []byte(`{"n":1.0}`)})
		if err != nil || task.Task.State != orbit.TaskStateQueued {
			t.Errorf("submit: %+v, %v", task, err)
		}
	}
	if queues[0] == queues[1] {
		t.Errorf("both stacks have queue %s", queues[0])
	}
}

func TestAMissingDatabaseServerIsNamed(t *testing.T) {
	t.Parallel()
	out, err := local(t, []string{"ORBIT_HOME=" + t.TempDir(), "ORBIT_MYSQLD=/nonexistent/mariadbd"}, "demo")
	if err == nil || !strings.Contains(out, "/nonexistent/mariadbd") {
		t.Errorf("%v\n%s", err, out)
	}
}

func readEnv(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	env := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		env[name] = strings.Trim(value, "'")
	}
	return env
}
