package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// TestResourceLifecycle runs the example as its reader would: the order of the document on a real stack; what is in the
// way is reported with its id and ends it with code 1, and nothing is lost or thrown away; run again, it goes on.
func TestResourceLifecycle(t *testing.T) {
	t.Parallel()
	vars, client := stackUp(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	program := filepath.Join(dir, "resource-lifecycle")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "git.yuntuo.hk/k2safe/orbit/sdk/go/examples/resource-lifecycle").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	state := filepath.Join(dir, "run.json")
	example := func(code int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, program, append([]string{"-state", state, "-tasks", "3"}, args...)...)
		for _, name := range []string{"ORBIT_MANAGEMENT_URL", "ORBIT_GATEWAY_URL", "ORBIT_TOKEN"} {
			cmd.Env = append(cmd.Env, name+"="+vars[name])
		}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) || cmd.ProcessState.ExitCode() != code {
			t.Fatalf("ended with %v, want %d\n%s", err, code, out)
		}
		return string(out)
	}
	saved := func() int {
		t.Helper()
		text, err := os.ReadFile(state + ".events")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
	wants := func(out string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if !strings.Contains(out, text) {
				t.Errorf("the output lacks %q:\n%s", text, out)
			}
		}
	}

	out := example(0, "-keep")
	wants(out, "\nkept\n")
	queue := regexp.MustCompile(`(?m)^queue ([0-9a-f]{32})$`).FindStringSubmatch(out)
	subscription := regexp.MustCompile(`(?m)^subscription ([0-9a-f]{32})$`).FindStringSubmatch(out)
	if len(queue) != 2 || len(subscription) != 2 || strings.Count(out, "\ntask ") != 3 {
		t.Fatalf("the ids are not printed:\n%s", out)
	}
	live := func() {
		t.Helper()
		q, err := client.GetQueue(ctx, queue[1])
		s, err2 := client.GetSubscription(ctx, subscription[1])
		if err != nil || err2 != nil || q.RetiredAt != nil || s.RetiredAt != nil {
			t.Fatalf("%+v %v, %+v %v", q, err, s, err2)
		}
	}

	// A task that is not due: the example must not get rid of it.
	late, err := client.SubmitTask(ctx, orbit.NewKey(), orbit.SubmitTaskRequest{QueueID: queue[1], Input: json.RawMessage(`1`), RunAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	wants(example(1, "-wait", "2s"), "blocked by task "+late.Task.ID+", QUEUED", "blocked by subscription "+subscription[1], "nothing was discarded")
	live()
	if task, err := client.GetTask(ctx, late.Task.ID); err != nil || task.State != orbit.TaskStateQueued || task.Revision != late.Task.Revision {
		t.Errorf("the task is now %+v, %v", task, err)
	}

	// A result that cannot be delivered, since somebody paused the subscription.
	configure := func(revision orbit.Counter, enabled bool) {
		t.Helper()
		_, err := client.ConfigureSubscription(ctx, subscription[1], orbit.NewKey(), orbit.ConfigureSubscriptionRequest{ExpectedRevision: revision, Enabled: enabled, Reason: "test"})
		if err != nil {
			t.Fatal(err)
		}
	}
	configure("1", false)
	if _, err := client.CancelTask(ctx, late.Task.ID, orbit.NewKey(), orbit.CancelTaskRequest{ExpectedRevision: late.Task.Revision, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	wants(example(1, "-wait", "2s"), "RESOURCE_BUSY", "1 event of its queue and types", "enabled false", "nothing was discarded")
	live()
	configure("2", true)
	wants(example(1), "STATE_CONFLICT") // the kept request names the revision of then; it never took effect
	live()

	out = example(0)
	wants(out, "retired subscription "+subscription[1]+" at sequence ", "retired queue "+queue[1], "\nretired\n")
	if n := saved(); n != 4 {
		t.Errorf("%d events were saved, of 3 results and a cancel", n)
	}
	again := example(0) // the receipts answer for ever
	wants(again, "retired subscription "+subscription[1], "retired queue "+queue[1])

	q, err := client.GetQueue(ctx, queue[1])
	if err != nil || q.RetiredAt == nil || !q.Paused {
		t.Errorf("queue %+v, %v", q, err)
	}
	s, err := client.GetSubscription(ctx, subscription[1])
	if err != nil || s.RetiredAt == nil || s.Enabled || s.RetiredSequence != s.CursorSequence || s.PendingCount != 0 {
		t.Errorf("subscription %+v, %v", s, err)
	}
	acked, err := client.ListEventDeliveries(ctx, subscription[1], orbit.ListEventDeliveriesRequest{State: "ACKED"})
	if err != nil || len(acked.Items) != 4 {
		t.Errorf("deliveries %+v, %v", acked, err)
	}
	if _, err := client.SubmitTask(ctx, orbit.NewKey(), orbit.SubmitTaskRequest{QueueID: queue[1], Input: json.RawMessage(`1`)}); !errors.Is(err, orbit.ErrResourceRetired) {
		t.Errorf("a new task: %v", err)
	}
}
