package orbittest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Options say how a real stack comes up; the zero value is right for most.
type Options struct {
	// Bin is the folder of Orbit's programs: orbit-local, orbit-management, orbit-gateway (`make build` in a
	// checkout makes them). "": $ORBIT_BIN, or the folder of the orbit-local in $PATH.
	Bin string
	// Dir keeps database and logs. "": a temporary folder, removed at the end.
	Dir string
	// Env is added to the services' environment, like ORBIT_GATEWAY_DRAIN_TIMEOUT=1s.
	Env []string
	// Private starts a stack even if $ORBIT_MANAGEMENT_URL, $ORBIT_GATEWAY_URL, $ORBIT_TOKEN and
	// $ORBIT_QUEUE_ID name a running one, which is used otherwise.
	Private bool
}

// Stack is a real Orbit.
type Stack struct {
	Endpoint
	DSN string // of the stack's database, as its owner; "" when it is not ours

	bin string
	dir string
	own bool // dir is removed at the end
	env []string
	cmd *exec.Cmd
	in  io.Closer // when it closes, the stack stops, so it cannot outlive this process
	out *lastLines
}

const (
	startLimit = 2 * time.Minute
	stopLimit  = time.Minute
)

// Start brings a stack up for one test. Tests of a package that can share one use [Open] in TestMain.
func Start(tb testing.TB, o Options) *Stack {
	tb.Helper()
	s, err := Open(tb.Context(), o)
	if err != nil {
		tb.Fatalf("orbittest: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("orbittest: %v", err)
		}
	})
	return s
}

// Open brings a stack up, and returns when it answers, which takes a few seconds. Close ends it; should
// this process die first, the stack stops by itself.
func Open(ctx context.Context, o Options) (*Stack, error) {
	running := Endpoint{os.Getenv("ORBIT_MANAGEMENT_URL"), os.Getenv("ORBIT_GATEWAY_URL"), os.Getenv("ORBIT_TOKEN"), os.Getenv("ORBIT_QUEUE_ID")}
	if running.ManagementURL != "" && running.GatewayURL != "" && running.Token != "" && running.QueueID != "" && !o.Private {
		return &Stack{Endpoint: running}, nil
	}
	bin, err := findBin(o.Bin)
	if err != nil {
		return nil, err
	}
	s := &Stack{bin: bin, dir: o.Dir, own: o.Dir == "", out: new(lastLines)}
	if s.own {
		if s.dir, err = os.MkdirTemp("", "orbittest-"); err != nil {
			return nil, err
		}
	}
	if err := s.start(ctx, o.Env); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func findBin(bin string) (string, error) {
	if bin == "" {
		bin = os.Getenv("ORBIT_BIN")
	}
	if bin == "" {
		path, err := exec.LookPath("orbit-local")
		if err != nil {
			return "", errors.New("orbit-local is not found: run `make build` in a checkout of Orbit and set ORBIT_BIN to its bin folder, or set ORBIT_MANAGEMENT_URL, ORBIT_GATEWAY_URL, ORBIT_TOKEN and ORBIT_QUEUE_ID of a running Orbit")
		}
		bin = filepath.Dir(path)
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return "", err
	}
	for _, name := range []string{"orbit-local", "orbit-management", "orbit-gateway"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return "", fmt.Errorf("%w; run `make build` in a checkout of Orbit", err)
		}
	}
	return bin, nil
}

func (s *Stack) start(ctx context.Context, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	management, err := freeAddr()
	if err != nil {
		return err
	}
	gateway, err := freeAddr()
	if err != nil {
		return err
	}
	s.env = append(cleanEnv(), "ORBIT_HOME="+s.dir, "ORBIT_MANAGEMENT_ADDR="+management, "ORBIT_GATEWAY_ADDR="+gateway, "ORBIT_MYSQL_ADDR=127.0.0.1:")
	s.env = append(s.env, env...)
	cmd := exec.Command(filepath.Join(s.bin, "orbit-local"), "run")
	cmd.Env, cmd.Stderr = s.env, s.out
	if s.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	ready := make(chan bool, 1)
	go func() {
		ready <- bufio.NewScanner(out).Scan() // one line when it is up, or the end
		_, _ = io.Copy(io.Discard, out)
	}()
	select {
	case up := <-ready:
		if !up {
			return fmt.Errorf("the stack did not start:\n%s", s.out)
		}
	case <-ctx.Done():
		return fmt.Errorf("the stack did not start in time: %w\n%s", ctx.Err(), s.out)
	}
	return s.readEnv()
}

// readEnv takes what the stack says of itself.
func (s *Stack) readEnv() error {
	text, err := os.ReadFile(filepath.Join(s.dir, "env"))
	if err != nil {
		return err
	}
	said := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		said[name] = strings.Trim(value, "'")
	}
	s.Endpoint = Endpoint{said["ORBIT_MANAGEMENT_URL"], said["ORBIT_GATEWAY_URL"], said["ORBIT_TOKEN"], said["ORBIT_QUEUE_ID"]}
	s.DSN = said["ORBIT_DSN"]
	return nil
}

// Close stops the stack and returns when it has stopped.
func (s *Stack) Close() error {
	var errs []error
	if s.cmd != nil {
		_ = s.in.Close()
		ended := make(chan error, 1)
		go func() { ended <- s.cmd.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				errs = append(errs, fmt.Errorf("the stack ended with %w:\n%s", err, s.out))
			}
		case <-time.After(stopLimit):
			errs = append(errs, fmt.Errorf("the stack did not stop within %s", stopLimit), s.cmd.Process.Kill())
		}
		s.cmd = nil
	}
	if s.own {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// Admin runs an administration command of orbit-management on the stack's database, such as
// "credential", "revoke", id, and returns what it printed.
func (s *Stack) Admin(tb testing.TB, args ...string) string {
	tb.Helper()
	if s.DSN == "" {
		tb.Fatal("orbittest: this stack was started by somebody else; Options.Private starts one")
	}
	cmd := exec.CommandContext(tb.Context(), filepath.Join(s.bin, "orbit-management"), args...)
	cmd.Env = append(cleanEnv(), "ORBIT_DSN="+s.DSN)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("orbittest: orbit-management %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// cleanEnv is this process's environment without what a shell may have set for another stack.
func cleanEnv() []string {
	var out []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ORBIT_") || strings.HasPrefix(v, "ORBIT_MYSQLD=") {
			out = append(out, v)
		}
	}
	return out
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
