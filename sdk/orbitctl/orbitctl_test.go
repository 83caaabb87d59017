package main_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// id reads resource.id, or resource when what is "", of a command's JSON.
func id(t *testing.T, text, what string) string {
	t.Helper()
	var o map[string]struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(text, `"deduplicated": false`, `"d": {}`)), &o); err != nil || o[what].ID == "" {
		t.Fatalf("no %s in %s (%v)", what, text, err)
	}
	return o[what].ID
}

func newQueue(t *testing.T, name string) string {
	t.Helper()
	return id(t, must(t, "", "queue", "create", name, "-o", "json"), "queue")
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	newQueue(t, "taken")
	none := "00000000000000000000000000000000"
	for name, c := range map[string]struct {
		env  []string
		args []string
		code int
		says string
	}{
		"unknown command":    {nil, []string{"nope"}, 2, "unknown command"},
		"unknown subcommand": {nil, []string{"queue", "nope"}, 2, "no command"},
		"unknown flag":       {nil, []string{"queue", "list", "--token", "x"}, 2, "unknown flag"},
		"missing flag":       {nil, []string{"task", "list"}, 2, "queue"},
		"bad id":             {nil, []string{"queue", "show", "x"}, 2, "INVALID_ARGUMENT"},
		"not found":          {nil, []string{"queue", "show", none}, 3, "request id: "},
		"name in use":        {nil, []string{"queue", "create", "taken"}, 4, "STATE_CONFLICT"},
		"wrong token":        {[]string{"ORBIT_TOKEN=wrong"}, []string{"queue", "list"}, 5, "UNAUTHENTICATED"},
		"no token":           {[]string{"ORBIT_TOKEN="}, []string{"queue", "list"}, 2, "ORBIT_TOKEN_FILE"},
		"unreachable":        {nil, []string{"queue", "list", "--management-url", "http://127.0.0.1:1"}, 6, "what to do: "},
		"bench elsewhere":    {nil, []string{"bench", "--gateway-url", "https://orbit.example.com"}, 2, "--yes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if o := ctl(t, c.env, "", c.args...); o.code != c.code || !strings.Contains(o.errs, c.says) {
				t.Errorf("exit %d, %q; want %d and %q", o.code, o.errs, c.code, c.says)
			}
		})
	}
}

func TestWorkThenConsume(t *testing.T) {
	t.Parallel()
	queue := newQueue(t, "tour")
	sub := id(t, must(t, "", "subscription", "create", "tour", "--queue", queue, "-o", "json"), "subscription")
	batch := []string{"task", "submit", "--queue", queue, "--batch", "-", "--key", "tour"}
	lines := "{\"n\":9007199254740993}\n{\"exit\":3}\n"
	first := must(t, lines, batch...)
	if again := must(t, lines, batch...); again != first {
		t.Errorf("the same key gave\n%swant\n%s", again, first)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	worker, _, said := command(ctx, "worker", "--queue", queue, "--exec", `i=$(cat); case $i in *exit*) echo broken >&2; exit 3;; esac; echo "$i"`)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	out := must(t, "", "consume", sub, "--ack-after", "grep -q sequence", "--max", "2")
	if strings.Count(out, "\n") != 2 || !strings.Contains(out, "9007199254740993") || !strings.Contains(out, "task.failed") {
		t.Errorf("consume printed\n%s", out)
	}
	stop(t, worker)
	tasks := strings.Fields(first)
	if shown := must(t, "", "task", "show", tasks[1]); !strings.Contains(shown, "EXIT_3: broken") || !strings.Contains(shown, "FAILED") {
		t.Errorf("the failed task shows\n%s%s", shown, said)
	}
	delivery := regexp.MustCompile(`[0-9a-f]{32}`).FindString(must(t, "", "delivery", "list", sub))
	shown := must(t, "", "delivery", "show", sub, delivery)
	shown = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`).ReplaceAllString(shown[strings.Index(shown, "\n\n")+2:], "TIME                    ")
	const want = "TIME                      * appended to the log as "
	if !strings.HasPrefix(shown, want) || !strings.Contains(shown, "* lease 1: sent\nTIME                      * acknowledged\n") {
		t.Errorf("timeline:\n%s", shown)
	}
	if audit := must(t, "", "audit", "--limit", "0"); !strings.Contains(audit, queue) {
		t.Errorf("the audit lacks the queue:\n%s", audit)
	}
}

// stop ends a process as an operator would, and wants a clean end.
func stop(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, cmd.Stderr)
	}
}

// waitFile waits until a command of ours has made the file.
func waitFile(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	t.Fatalf("%s was never made", path)
}

func TestSIGTERMWithWorkInFlight(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	queue := newQueue(t, "drain")
	sub := id(t, must(t, "", "subscription", "create", "drain", "--queue", queue, "-o", "json"), "subscription")
	task := id(t, must(t, `{"slow":true}`, "task", "submit", "--queue", queue, "-o", "json"), "task")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	slow := func(name string) string {
		return "cat >/dev/null; touch " + filepath.Join(dir, name) + "; sleep 1; echo 1"
	}
	worker, _, _ := command(ctx, "worker", "--queue", queue, "--exec", slow("w"))
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	waitFile(t, filepath.Join(dir, "w"))
	stop(t, worker)
	if shown := must(t, "", "task", "show", task); !strings.Contains(shown, "SUCCEEDED") {
		t.Errorf("the task in flight was not finished:\n%s", shown)
	}
	consumer, _, _ := command(ctx, "consume", sub, "--ack-after", slow("c"))
	if err := consumer.Start(); err != nil {
		t.Fatal(err)
	}
	waitFile(t, filepath.Join(dir, "c"))
	stop(t, consumer)
	if listed := must(t, "", "delivery", "list", sub, "--state", "acked", "-o", "json"); !strings.Contains(listed, `"ACKED"`) {
		t.Errorf("the event in flight was not acknowledged:\n%s", listed)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  []string
		code int
		says string
	}{
		"all right":    {nil, 0, "ok    action workers:execute"},
		"wrong token":  {[]string{"ORBIT_TOKEN=wrong"}, 7, "FAIL  token"},
		"gateway down": {[]string{"ORBIT_GATEWAY_URL=http://127.0.0.1:1"}, 7, "FAIL  gateway reachable"},
		"unknown host": {[]string{"ORBIT_MANAGEMENT_URL=http://orbit.invalid"}, 7, "FAIL  management reachable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := ctl(t, c.env, "", "doctor")
			if o.code != c.code || !strings.Contains(o.out, c.says) || (c.code != 0) != strings.Contains(o.out, "fix: ") {
				t.Errorf("exit %d\n%s%s", o.code, o.out, o.errs)
			}
		})
	}
}
