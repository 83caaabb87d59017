package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// stack is a fresh one of orbit-local's, with nothing in it.
type stack struct {
	bin, home string
	environ   []string
	client    *orbit.Client
	gateway   string
	token     string
}

func startStack(ctx context.Context, bin string) (*stack, error) {
	home, err := os.MkdirTemp("", "orbit-bench-")
	if err != nil {
		return nil, err
	}
	s := &stack{bin: bin, home: home}
	for _, name := range []string{"ORBIT_MANAGEMENT_ADDR", "ORBIT_GATEWAY_ADDR"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		s.environ = append(s.environ, name+"="+l.Addr().String())
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
	s.environ = append(s.environ, "ORBIT_HOME="+home, "ORBIT_MYSQL_ADDR=127.0.0.1:", "ORBIT_DSN=")
	if err := s.local(ctx, "up"); err != nil {
		return nil, err
	}
	return s, s.connect()
}

func (s *stack) local(ctx context.Context, command string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "orbit-local"), command)
	cmd.Env = append(os.Environ(), s.environ...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("orbit-local %s: %w\n%s", command, err, out)
	}
	return nil
}

func (s *stack) connect() error {
	f, err := os.Open(filepath.Join(s.home, "env"))
	if err != nil {
		return err
	}
	defer f.Close()
	env := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		env[name] = strings.Trim(value, "'")
	}
	s.gateway, s.token = env["ORBIT_GATEWAY_URL"], env["ORBIT_TOKEN"]
	s.client, err = orbit.NewClient(env["ORBIT_MANAGEMENT_URL"], s.token)
	return errors.Join(err, lines.Err())
}

func (s *stack) stop() error {
	return errors.Join(s.local(context.Background(), "down"), os.RemoveAll(s.home))
}
