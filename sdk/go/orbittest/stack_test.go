package orbittest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/orbittest"
)

func TestOpenUsesARunningStack(t *testing.T) {
	e := stack.Namespace(t)
	t.Setenv("ORBIT_MANAGEMENT_URL", e.ManagementURL)
	t.Setenv("ORBIT_GATEWAY_URL", e.GatewayURL)
	t.Setenv("ORBIT_TOKEN", e.Token)
	t.Setenv("ORBIT_QUEUE_ID", e.QueueID)
	running := must[*orbittest.Stack](t)(orbittest.Open(t.Context(), orbittest.Options{Bin: "/nonexistent"}))
	if running.Endpoint != e || running.DSN != "" {
		t.Errorf("got %+v", running)
	}
	if err := running.Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.Client(t).GetQueue(t.Context(), e.QueueID); err != nil {
		t.Errorf("somebody else's stack was stopped: %v", err)
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	t.Setenv("ORBIT_BIN", "")
	t.Setenv("PATH", t.TempDir())
	for bin, want := range map[string]string{"": "ORBIT_BIN", "/nonexistent": "/nonexistent/orbit-local"} {
		_, err := orbittest.Open(t.Context(), orbittest.Options{Bin: bin, Private: true})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "make build") {
			t.Errorf("%q: %v", bin, err)
		}
	}
}

// A test process that is killed leaves no stack behind.
func TestAStackEndsWithItsOwner(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	dir := t.TempDir()
	cmd.Env = append(childEnv("owner", "CHILD_BIN="+bin), "TMPDIR="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("the child started no stack: %v", cmd.Wait())
	}
	url := lines.Text()
	alive := func() bool {
		r, err := http.Get(url + "/livez")
		if err == nil {
			_ = r.Body.Close()
		}
		return err == nil
	}
	if !alive() {
		t.Fatal("the child's stack does not answer")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	orbittest.Await(t, "the stack has stopped", func() bool {
		left, err := filepath.Glob(filepath.Join(dir, "orbittest-*", "stack.pid")) // the last that goes
		return !alive() && err == nil && len(left) == 0
	})
}

// A gateway that is killed takes its connections along, without a word; the same address serves again later,
// and a proof of before is as good there.
func TestAGatewayIsKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	e := stack.Namespace(t)
	g := stack.StartGateway(t)
	e.GatewayURL = g.URL
	queue, ctx := e.NewQueue(t), soon(t)
	sub := e.NewSubscription(t, queue, nil)
	e.Results(t, queue, `1`)
	conn := dial(t, e, sub, 1)
	d := must[*orbit.Delivery](t)(conn.Receive(ctx))
	g.Kill(t)
	_, err := conn.Receive(ctx)
	var closed *orbit.CloseError
	if !errors.As(err, &closed) || closed.Code != orbit.CloseAbnormal || !closed.Reconnect() {
		t.Errorf("the connection ended with %v", err)
	}
	g.Start(t)
	if ack := must[orbit.AckResult](t)(dial(t, e, sub, 1).Ack(ctx, d.Proof())); ack.Deduplicated {
		t.Errorf("acknowledged %+v", ack)
	}
	g.Stop(t)
}

// owningChild starts a stack and waits to be killed.
func owningChild() int {
	s, err := orbittest.Open(context.Background(), orbittest.Options{Bin: os.Getenv("CHILD_BIN")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.ManagementURL)
	select {}
}
