package main_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Where the programs under test were built, and the environment of the stack of this test process.
var (
	bin   string
	stack []string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "orbitctl-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bin = dir
	for name, pkg := range map[string]string{
		"orbit-management": "services/management", "orbit-gateway": "services/gateway", "orbit-local": "deploy/local", "orbitctl": "sdk/orbitctl",
	} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, name), "git.yuntuo.hk/k2safe/orbit/"+pkg).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", name, err, out)
			return 1
		}
	}
	home := filepath.Join(dir, "home")
	var addrs [2]string
	for i := range addrs {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		addrs[i] = l.Addr().String()
		_ = l.Close() // nobody else takes it that soon
	}
	local := func(command string) error {
		cmd := exec.Command(filepath.Join(dir, "orbit-local"), command)
		cmd.Env = append(clean(), "ORBIT_HOME="+home, "ORBIT_MANAGEMENT_ADDR="+addrs[0], "ORBIT_GATEWAY_ADDR="+addrs[1], "ORBIT_MYSQL_ADDR=127.0.0.1:")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", command, err, out)
		}
		return nil
	}
	if err := local("up"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	text, err := os.ReadFile(filepath.Join(home, "env"))
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		stack = append(stack, name+"="+strings.Trim(value, "'"))
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if err := local("down"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// clean is the environment without what a developer's shell may have set.
func clean() []string {
	var out []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ORBIT_") {
			out = append(out, v)
		}
	}
	return out
}

func get(name string) string {
	for _, v := range stack {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// outcome is what a finished orbitctl left.
type outcome struct {
	out, errs string
	code      int
}

func command(ctx context.Context, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "orbitctl"), args...)
	cmd.Env = append(clean(), stack...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	return cmd, &out, &errs
}

// ctl runs orbitctl; env overrides the stack's.
func ctl(t *testing.T, env []string, stdin string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd, out, errs := command(ctx, args...)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdin = strings.NewReader(stdin)
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	o := outcome{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
	if secret := get("ORBIT_TOKEN"); strings.Contains(o.out+o.errs, secret) {
		t.Errorf("orbitctl %v prints the token", args)
	}
	return o
}

// must fails the test unless orbitctl exits 0.
func must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	o := ctl(t, nil, stdin, args...)
	if o.code != 0 {
		t.Fatalf("orbitctl %v: exit %d\n%s%s", args, o.code, o.out, o.errs)
	}
	return o.out
}
