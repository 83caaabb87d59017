package main_test

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// works runs a worker with a shell command until the test ends.
func works(t *testing.T, queue, shell string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	worker, _, _ := command(ctx, "worker", "--queue", queue, "--exec", shell)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop(t, worker)
		cancel()
	})
}

// eventually repeats a command until its output holds what is wanted.
func eventually(t *testing.T, want string, args ...string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out := must(t, "", args...)
		if strings.Contains(out, want) {
			return out
		}
		if time.Now().After(end) {
			t.Fatalf("orbitctl %v never printed %q:\n%s", args, want, out)
		}
	}
}

func TestScheduleFromDraftToFires(t *testing.T) {
	t.Parallel()
	queue := newQueue(t, "schedule")
	draft := fmt.Sprintf(`{"name":"tick","queue_id":%q,"every":1,"task":{"input":{"n":9007199254740993}}}`, queue)
	schedule := id(t, must(t, draft, "schedule", "create", "-", "-o", "json"), "schedule")
	if o := ctl(t, nil, `{"name":"x","colour":1}`, "schedule", "create", "-"); o.code != 2 || !strings.Contains(o.errs, "colour") {
		t.Errorf("an unknown member: exit %d, %s", o.code, o.errs)
	}
	if out := must(t, "", "schedule", "preview", schedule, "--draft", "--count", "3"); strings.Count(out, "\n") != 4 {
		t.Errorf("preview:\n%s", out)
	}
	must(t, "", "schedule", "publish", schedule, "--reason", "test")
	eventually(t, "FIRED", "schedule", "fires", schedule)
	if out := must(t, "", "schedule", "pause", schedule, "--reason", "test"); !strings.Contains(out, "PAUSED") {
		t.Errorf("pause:\n%s", out)
	}
	if out := must(t, "", "schedule", "run", schedule, "--reason", "now"); !regexp.MustCompile(`task +[0-9a-f]{32}`).MatchString(out) {
		t.Errorf("run:\n%s", out)
	}
	must(t, `{"cron":"30 2 * * *","time_zone":"America/New_York","task":{"input":1}}`, "schedule", "update", schedule, "-", "--reason", "nightly")
	if out := must(t, "", "schedule", "show", schedule); !strings.Contains(out, "30 2 * * * (America/New_York)") || !strings.Contains(out, "every 1 s") {
		t.Errorf("show:\n%s", out)
	}
	if out := must(t, "", "schedule", "list", "--queue", queue); !strings.Contains(out, schedule) {
		t.Errorf("list:\n%s", out)
	}
}

func TestFlowFromFileToDrawnRun(t *testing.T) {
	t.Parallel()
	queue := newQueue(t, "flow")
	step := func(name, after, input string) string {
		return fmt.Sprintf(`{"name":%q,"queue_id":%q,"depends_on":[%s],"input":%s,"max_attempts":1}`, name, queue, after, input)
	}
	steps := strings.Join([]string{
		step("fetch", ``, `{"of":{"$run":"/url"}}`), step("left", `"fetch"`, `{"$step":"fetch","path":"/of"}`), step("right", `"fetch"`, `"right"`), step("join", `"left","right"`, `1`),
	}, ",")
	flow := id(t, must(t, `{"name":"import","steps":[`+steps+`]}`, "flow", "create", "-", "-o", "json"), "flow")
	if o := ctl(t, nil, `{"name":"loop","steps":[`+step("a", `"a"`, `1`)+`]}`, "flow", "create", "-"); o.code != 2 || !strings.Contains(o.errs, "steps.0.depends_on.0") {
		t.Errorf("a cycle: exit %d, %s", o.code, o.errs)
	}
	works(t, queue, `i=$(cat); case $i in *right*) test -e /nonexistent; exit 3;; esac; echo "$i"`)
	run := id(t, must(t, "", "flow", "start", flow, `{"url":"u"}`, "-o", "json"), "run")
	out := eventually(t, "FAILED", "run", "show", run)
	for _, want := range []string{"● fetch", "└─ ● left", "└─ ✗ right", "   └─ – join", "EXIT_3"} {
		if !strings.Contains(out, want) {
			t.Errorf("the drawn run lacks %q:\n%s", want, out)
		}
	}
	if out := must(t, "", "run", "retry-step", run, "right", "--reason", "again"); !strings.Contains(out, "RUNNING") && !strings.Contains(out, "FAILED") {
		t.Errorf("retry-step:\n%s", out)
	}
	eventually(t, "FAILED", "flow", "runs", flow)
	if out := must(t, "", "flow", "show", flow); !strings.Contains(out, "left,right") {
		t.Errorf("show:\n%s", out)
	}
	must(t, `{"steps":[`+step("only", ``, `2`)+`]}`, "flow", "publish", flow, "-", "--reason", "simpler")
	second := id(t, must(t, "", "flow", "start", flow, "-o", "json"), "run")
	eventually(t, "SUCCEEDED", "run", "show", second)
	if out := must(t, "", "flow", "list", "--limit", "0"); !strings.Contains(out, flow) {
		t.Errorf("list:\n%s", out)
	}
}

func TestRetireSaysWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	queue := newQueue(t, "retire")
	sub := id(t, must(t, "", "subscription", "create", "retire", "--queue", queue, "-o", "json"), "subscription")
	task := id(t, must(t, "1", "task", "submit", "--queue", queue, "-o", "json"), "task")
	o := ctl(t, nil, "", "retire", "queue", queue, "--reason", "over")
	if o.code != 4 || !strings.Contains(o.errs, "RESOURCE_BUSY") || !strings.Contains(o.errs, "1 QUEUED task") || !strings.Contains(o.errs, "1 subscription") {
		t.Errorf("exit %d: %s", o.code, o.errs)
	}
	must(t, "", "task", "cancel", task, "--reason", "over")
	if o := ctl(t, nil, "", "retire", "subscription", sub, "--reason", "over"); o.code != 4 || !strings.Contains(o.errs, "RESOURCE_BUSY") {
		t.Errorf("exit %d: %s", o.code, o.errs)
	}
	must(t, "", "consume", sub, "--max", "1")
	if out := must(t, "", "retire", "subscription", sub, "--reason", "over"); !strings.Contains(out, "retired") {
		t.Errorf("subscription:\n%s", out)
	}
	if out := must(t, "", "retire", "queue", queue, "--reason", "over"); !strings.Contains(out, "retired") {
		t.Errorf("queue:\n%s", out)
	}
	if o := ctl(t, nil, "", "task", "submit", "--queue", queue, "1"); o.code != 4 || !strings.Contains(o.errs, "RESOURCE_RETIRED") {
		t.Errorf("exit %d: %s", o.code, o.errs)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out := must(t, "", "completion", shell); !strings.Contains(out, "orbitctl") {
			t.Errorf("%s: %d bytes", shell, len(out))
		}
	}
	bash := exec.Command("bash", "-n")
	bash.Stdin = strings.NewReader(must(t, "", "completion", "bash"))
	if out, err := bash.CombinedOutput(); err != nil {
		t.Errorf("bash does not read its completion: %v\n%s", err, out)
	}
}
