package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql" // the stack prepares its own database

	"git.yuntuo.hk/k2safe/orbit/migrations"
	"git.yuntuo.hk/k2safe/orbit/pkg/mysqld"
)

// stack is a database and the two services, each a process of its own.
type stack struct {
	home       home
	addrs      addrs
	env        stackEnv
	dsns       dsns
	server     *mysqld.Server // nil when ORBIT_DSN names an existing database
	management *service
	gateway    *service

	cancel  context.CancelFunc
	running sync.WaitGroup
	failed  chan error
}

// addrs are where the stack listens.
type addrs struct{ management, gateway, mysql string }

func addrsFromEnv(management, gateway, mysql string) addrs {
	return addrs{orEnv("ORBIT_MANAGEMENT_ADDR", management), orEnv("ORBIT_GATEWAY_ADDR", gateway), orEnv("ORBIT_MYSQL_ADDR", mysql)}
}

func orEnv(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

// dsns are the owner's and the services' ways into the database.
type dsns struct{ owner, management, gateway string }

const database = "orbit"

const readyTimeout = 60 * time.Second

// start brings the whole stack up and returns when it answers; stop must follow even after an error.
func start(ctx context.Context, h home, a addrs) (*stack, error) {
	s := &stack{home: h, addrs: a, failed: make(chan error, 2)}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := s.openDatabase(ctx); err != nil {
		return s, err
	}
	if err := s.administer(ctx); err != nil {
		return s, err
	}
	s.launch()
	for _, url := range []string{s.env.ManagementURL, s.env.GatewayURL} {
		if err := s.await(ctx, url+"/readyz"); err != nil {
			return s, err
		}
	}
	return s, s.env.write(h.env())
}

// openDatabase starts the private server, or takes the one that ORBIT_DSN names as it is.
func (s *stack) openDatabase(ctx context.Context) error {
	if dsn := os.Getenv("ORBIT_DSN"); dsn != "" && !s.ownDSN(dsn) {
		s.dsns = dsns{dsn, dsn, dsn}
		return nil
	}
	server, err := mysqld.Start(ctx, mysqld.Options{Dir: s.home.database(), Addr: s.addrs.mysql, BufferPoolMB: 256})
	if err != nil {
		return err
	}
	s.server = server
	s.dsns = dsns{
		owner:      server.RootDSN(database),
		management: "orbit_management@tcp(" + server.Addr() + ")/" + database,
		gateway:    "orbit_gateway@tcp(" + server.Addr() + ")/" + database,
	}
	return s.prepareUsers(ctx)
}

// ownDSN reports that ORBIT_DSN is that of this home's private database, as in a shell that has
// sourced the env file.
func (s *stack) ownDSN(dsn string) bool {
	known, found, err := readEnv(s.home.env())
	_, private := os.Stat(s.home.database())
	return err == nil && found && private == nil && known.DSN == dsn
}

func (s *stack) prepareUsers(ctx context.Context) error {
	root, err := sql.Open("mysql", s.server.RootDSN(""))
	if err != nil {
		return err
	}
	defer root.Close()
	for _, statement := range []string{
		"CREATE DATABASE IF NOT EXISTS " + database,
		"CREATE USER IF NOT EXISTS 'orbit_management'@'%'",
		"CREATE USER IF NOT EXISTS 'orbit_gateway'@'%'",
	} {
		if _, err := root.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// administer migrates, grants, and makes the first namespace unless an earlier run of this home did.
func (s *stack) administer(ctx context.Context) error {
	if _, err := s.admin(ctx, "migrate", "up"); err != nil {
		return err
	}
	if err := s.grant(ctx); err != nil {
		return err
	}
	known, found, err := readEnv(s.home.env())
	if err != nil {
		return err
	}
	if found && known.DSN == s.dsns.owner {
		s.env = known
	} else if err := s.bootstrap(ctx); err != nil {
		return err
	}
	if s.env.ConsolePassword == "" {
		s.env.ConsolePassword = rand.Text()
	}
	s.env.ConsoleURL = "http://" + s.addrs.management + "/console"
	s.env.ManagementURL, s.env.GatewayURL, s.env.DSN = "http://"+s.addrs.management, "http://"+s.addrs.gateway, s.dsns.owner
	return nil
}

func (s *stack) grant(ctx context.Context) error {
	if s.server == nil {
		return nil
	}
	root, err := sql.Open("mysql", s.dsns.owner)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, statement := range migrations.Grants(database, "'orbit_management'@'%'", "'orbit_gateway'@'%'") {
		if _, err := root.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// bootstrap makes a namespace of its own for this home, so that a shared database can serve several.
func (s *stack) bootstrap(ctx context.Context) error {
	out, err := s.admin(ctx, "bootstrap", "-o", "json", "--event-access", "--all-queues",
		"--namespace", fmt.Sprintf("local-%x", time.Now().UnixNano()), "--application", "local", "--queue", "default", "--credential", "local")
	if err != nil {
		return err
	}
	var made struct {
		NamespaceID string `json:"namespace_id"`
		QueueID     string `json:"queue_id"`
		Token       string `json:"token"`
	}
	if err := json.Unmarshal(out, &made); err != nil {
		return fmt.Errorf("read bootstrap's answer: %w", err)
	}
	s.env = stackEnv{NamespaceID: made.NamespaceID, QueueID: made.QueueID, Token: made.Token}
	return nil
}

// admin runs a subcommand of orbit-management as the schema's owner.
func (s *stack) admin(ctx context.Context, args ...string) ([]byte, error) {
	path, err := binary("orbit-management")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "ORBIT_DSN="+s.dsns.owner)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("orbit-management %s: %s", args[0], strings.TrimSpace(string(exit.Stderr)))
	}
	return out, err
}

func (s *stack) launch() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.management = &service{name: "orbit-management", args: []string{"serve"}, log: s.home.log("management"),
		env: []string{"ORBIT_DSN=" + s.dsns.management, "ORBIT_MANAGEMENT_ADDR=" + s.addrs.management, "ORBIT_CONSOLE_PASSWORD=" + s.env.ConsolePassword}}
	s.gateway = &service{name: "orbit-gateway", log: s.home.log("gateway"),
		env: []string{"ORBIT_DSN=" + s.dsns.gateway, "ORBIT_GATEWAY_ADDR=" + s.addrs.gateway}}
	for _, svc := range []*service{s.management, s.gateway} {
		s.running.Go(func() {
			if err := svc.run(ctx); err != nil {
				s.failed <- err
			}
		})
	}
}

// await polls a service until it is ready; a service that cannot be started ends the wait.
func (s *stack) await(ctx context.Context, url string) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close() // only the status counts
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-s.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready within %s; the logs are in %s", url, readyTimeout, s.home.dir)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the services, then the database.
func (s *stack) stop() error {
	if s.cancel != nil {
		s.cancel()
		s.running.Wait()
	}
	if s.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	return s.server.Stop(ctx)
}

// freeAddr finds a loopback port for a stack that nobody addresses from outside.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
