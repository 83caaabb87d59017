package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // the server's own counters

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// stack is a fresh one of orbit-local's, with nothing in it.
type stack struct {
	bin, home string
	environ   []string
	client    *orbit.Client
	gateway   string
	token     string
	db        *sql.DB

	management, dsn, namespace string
}

func startStack(ctx context.Context, bin string, environ ...string) (*stack, error) {
	home, err := os.MkdirTemp("", "orbit-bench-")
	if err != nil {
		return nil, err
	}
	s := &stack{bin: bin, home: home, environ: environ}
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
	s.management, s.dsn, s.namespace = env["ORBIT_MANAGEMENT_URL"], env["ORBIT_DSN"], env["ORBIT_NAMESPACE_ID"]
	s.client, err = orbit.NewClient(env["ORBIT_MANAGEMENT_URL"], s.token)
	if err == nil {
		s.db, err = sql.Open("mysql", env["ORBIT_DSN"])
	}
	return errors.Join(err, lines.Err())
}

// status reads counters of the database server.
func (s *stack) status(ctx context.Context, names ...string) (map[string]float64, error) {
	out := map[string]float64{}
	for _, name := range names {
		var key string
		var value float64
		if err := s.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&key, &value); err != nil {
			return nil, fmt.Errorf("read status %s: %w", name, err)
		}
		out[name] = value
	}
	return out, nil
}

// counted runs work and adds what it cost the database per item.
func (s *stack) counted(ctx context.Context, what string, n int, work func() error) ([]metric, error) {
	names := []string{"Com_commit", "Questions", "Innodb_data_fsyncs"}
	before, err := s.status(ctx, names...)
	if err != nil {
		return nil, err
	}
	cpu, err := s.cpuTimes()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := work(); err != nil {
		return nil, err
	}
	took := time.Since(began)
	cpuAfter, err := s.cpuTimes()
	if err != nil {
		return nil, err
	}
	after, err := s.status(ctx, names...)
	if err != nil {
		return nil, err
	}
	per := func(name string) float64 { return (after[name] - before[name]) / float64(n) }
	out := []metric{
		perSecond(what, n, took), {"transactions each", per("Com_commit"), ""}, {"statements each", per("Questions"), ""},
		{"file syncs each", per("Innodb_data_fsyncs"), ""},
	}
	for _, part := range []string{"database", "gateway", "management", "client"} {
		out = append(out, metric{"CPU each, " + part, float64((cpuAfter[part] - cpu[part]).Microseconds()) / float64(n), "µs"})
	}
	return out, nil
}

func (s *stack) stop() error {
	_ = s.db.Close() // the server goes next
	return errors.Join(s.local(context.Background(), "down"), os.RemoveAll(s.home))
}
