package orbittest

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Gateway is one more gateway of a stack, which a test may stop, kill and start again.
type Gateway struct {
	URL string

	stack *Stack
	env   []string
	cmd   *exec.Cmd
	ended chan error
	out   *lastLines
}

// StartGateway adds a gateway to a stack that this process started; it ends with the test.
func (s *Stack) StartGateway(tb testing.TB, env ...string) *Gateway {
	tb.Helper()
	if s.DSN == "" {
		tb.Fatal("orbittest: this stack was started by somebody else; Options.Private starts one")
	}
	addr, err := freeAddr()
	if err != nil {
		tb.Fatalf("orbittest: %v", err)
	}
	g := &Gateway{URL: "http://" + addr, stack: s, env: append(append([]string{"ORBIT_DSN=" + s.DSN, "ORBIT_GATEWAY_ADDR=" + addr}, env...), "ORBIT_LOG_LEVEL=warn")}
	g.Start(tb)
	tb.Cleanup(func() {
		if g.cmd != nil {
			_ = g.cmd.Process.Kill()
			tb.Logf("orbittest: a gateway was left running: %v", <-g.ended)
		}
	})
	return g
}

// Start starts it, again, at the same address, and returns when it is ready.
func (g *Gateway) Start(tb testing.TB) {
	tb.Helper()
	g.out = new(lastLines)
	g.cmd = exec.Command(filepath.Join(g.stack.bin, "orbit-gateway"))
	g.cmd.Env, g.cmd.Stdout, g.cmd.Stderr = append(cleanEnv(), g.env...), g.out, g.out
	if err := g.cmd.Start(); err != nil {
		tb.Fatalf("orbittest: %v", err)
	}
	g.ended = make(chan error, 1)
	go func() { g.ended <- g.cmd.Wait() }()
	for deadline := time.Now().Add(startLimit); ; time.Sleep(20 * time.Millisecond) {
		r, err := http.Get(g.URL + "/readyz")
		if err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			tb.Fatalf("orbittest: the gateway is not ready:\n%s", g.out)
		}
	}
}

// Stop drains it as a deploy does (SIGTERM) and returns when it has ended.
func (g *Gateway) Stop(tb testing.TB) { tb.Helper(); g.end(tb, syscall.SIGTERM) }

// Kill ends it as a crash does (SIGKILL).
func (g *Gateway) Kill(tb testing.TB) { tb.Helper(); g.end(tb, syscall.SIGKILL) }

func (g *Gateway) end(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	if err := g.cmd.Process.Signal(signal); err != nil {
		tb.Fatalf("orbittest: %v", err)
	}
	select {
	case err := <-g.ended:
		if err != nil && signal != syscall.SIGKILL {
			tb.Errorf("orbittest: the gateway ended with %v:\n%s", err, g.out)
		}
	case <-time.After(stopLimit):
		tb.Fatalf("orbittest: the gateway did not stop within %s", stopLimit)
	}
	g.cmd = nil
}

// lastLines keeps the end of what a process says, for failures.
type lastLines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lastLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	if n := len(l.text) - 8<<10; n > 0 {
		l.text = l.text[n:]
	}
	return len(b), nil
}

func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprint(strings.TrimSpace(string(l.text)))
}
