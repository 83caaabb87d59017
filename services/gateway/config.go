package main

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/caarlos0/env/v11"

	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/pipeline"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/upgrade"
)

// config is the gateway's environment. The node guards' defaults are those of R6.7.
type config struct {
	DSN       string `env:"ORBIT_DSN,required,notEmpty"`
	Addr      string `env:"ORBIT_GATEWAY_ADDR" envDefault:"127.0.0.1:8081"`
	LogLevel  string `env:"ORBIT_LOG_LEVEL" envDefault:"info"`
	LogFormat string `env:"ORBIT_LOG_FORMAT" envDefault:"json"`
	DBConns   int    `env:"ORBIT_GATEWAY_DB_CONNS" envDefault:"24"`

	EventConns   int `env:"ORBIT_GATEWAY_EVENT_CONNS" envDefault:"128"`
	WorkerConns  int `env:"ORBIT_GATEWAY_WORKER_CONNS" envDefault:"128"`
	Claims       int `env:"ORBIT_GATEWAY_CLAIMS" envDefault:"4"`
	ClaimsPerApp int `env:"ORBIT_GATEWAY_CLAIMS_PER_APP" envDefault:"1"`
	ClaimQueue   int `env:"ORBIT_GATEWAY_CLAIM_QUEUE" envDefault:"128"`
	ClaimsPer    int `env:"ORBIT_GATEWAY_CLAIMS_PER_SCAN" envDefault:"4"`
	AckCommits   int `env:"ORBIT_GATEWAY_ACK_COMMITS" envDefault:"4"`
	TaskClaims   int `env:"ORBIT_GATEWAY_TASK_CLAIMS" envDefault:"4"`
	TaskCommits  int `env:"ORBIT_GATEWAY_TASK_COMMITS" envDefault:"4"`
	ReadQueue    int `env:"ORBIT_GATEWAY_READ_QUEUE" envDefault:"4"`
	WriteQueue   int `env:"ORBIT_GATEWAY_WRITE_QUEUE" envDefault:"8"`

	HelloTimeout time.Duration `env:"ORBIT_GATEWAY_HELLO_TIMEOUT" envDefault:"5s"`
	IdleTimeout  time.Duration `env:"ORBIT_GATEWAY_IDLE_TIMEOUT" envDefault:"60s"`
	WriteTimeout time.Duration `env:"ORBIT_GATEWAY_WRITE_TIMEOUT" envDefault:"5s"`
	DrainTimeout time.Duration `env:"ORBIT_GATEWAY_DRAIN_TIMEOUT" envDefault:"10s"`
}

const usage = `orbit-gateway delivers results and runs workers over WebSocket. It takes no arguments; its environment:

  ORBIT_DSN                      user:password@tcp(host:port)/database (required)
  ORBIT_GATEWAY_ADDR             listen address (127.0.0.1:8081)
  ORBIT_LOG_LEVEL, ORBIT_LOG_FORMAT   debug|info|warn|error (info), json|console (json)
  ORBIT_GATEWAY_DB_CONNS         database connections (24)
  ORBIT_GATEWAY_EVENT_CONNS, ORBIT_GATEWAY_WORKER_CONNS   sockets (128 each)
  ORBIT_GATEWAY_CLAIMS, _CLAIMS_PER_APP, _CLAIM_QUEUE, _CLAIMS_PER_SCAN   claim pool (4, 1, 128, 4)
  ORBIT_GATEWAY_ACK_COMMITS, _TASK_CLAIMS, _TASK_COMMITS   transactions at once (4 each)
  ORBIT_GATEWAY_READ_QUEUE, _WRITE_QUEUE   frames per connection (4, 8)
  ORBIT_GATEWAY_HELLO_TIMEOUT, _IDLE_TIMEOUT, _WRITE_TIMEOUT, _DRAIN_TIMEOUT   (5s, 60s, 5s, 10s)
`

func parseConfig(environment map[string]string) (config, error) {
	var c config
	if err := env.ParseWithOptions(&c, env.Options{Environment: environment}); err != nil {
		return c, fmt.Errorf("environment: %w", err)
	}
	return c, c.validate()
}

// validate names every fault at once; the DSN is never printed.
func (c *config) validate() error {
	var faults []error
	if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		faults = append(faults, fmt.Errorf("ORBIT_GATEWAY_ADDR: want host:port, is %q", c.Addr))
	}
	for name, n := range map[string]int{
		"DB_CONNS": c.DBConns, "EVENT_CONNS": c.EventConns, "WORKER_CONNS": c.WorkerConns, "CLAIMS": c.Claims, "CLAIMS_PER_APP": c.ClaimsPerApp,
		"CLAIM_QUEUE": c.ClaimQueue, "CLAIMS_PER_SCAN": c.ClaimsPer, "ACK_COMMITS": c.AckCommits, "TASK_CLAIMS": c.TaskClaims,
		"TASK_COMMITS": c.TaskCommits, "READ_QUEUE": c.ReadQueue, "WRITE_QUEUE": c.WriteQueue,
	} {
		if n < 1 {
			faults = append(faults, fmt.Errorf("ORBIT_GATEWAY_%s: must be at least 1, is %d", name, n))
		}
	}
	for name, d := range map[string]time.Duration{"HELLO": c.HelloTimeout, "IDLE": c.IdleTimeout, "WRITE": c.WriteTimeout, "DRAIN": c.DrainTimeout} {
		if d <= 0 {
			faults = append(faults, fmt.Errorf("ORBIT_GATEWAY_%s_TIMEOUT: must be above 0, is %s", name, d))
		}
	}
	return errors.Join(faults...)
}

func (c *config) limits() upgrade.Limits {
	return upgrade.Limits{Hello: c.HelloTimeout, Idle: c.IdleTimeout, Write: c.WriteTimeout, ReadQueue: c.ReadQueue, WriteQueue: c.WriteQueue}
}

func (c *config) claimLimits() pipeline.ClaimLimits {
	return pipeline.ClaimLimits{InFlight: c.Claims, PerApp: c.ClaimsPerApp, Queued: c.ClaimQueue, PerScan: c.ClaimsPer, TurnTimeout: 10 * time.Second}
}
