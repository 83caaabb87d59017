package main

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"git.yuntuo.hk/k2safe/orbit/pkg/logging"
)

// secret is text that no printing verb shows.
type secret string

func (s secret) String() string   { return "[secret]" }
func (s secret) GoString() string { return "[secret]" }

// MarshalText keeps it out of encoders too.
func (s secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// config is read from the environment; the doc tags are the help text.
type config struct {
	DSN              secret        `env:"ORBIT_DSN" doc:"database, as user:password@tcp(host:port)/name (required)"`
	Addr             string        `env:"ORBIT_MANAGEMENT_ADDR" envDefault:"127.0.0.1:8080" doc:"address to listen on"`
	ConsolePassword  secret        `env:"ORBIT_CONSOLE_PASSWORD" doc:"password of /console for the user orbit; empty turns the console off"`
	LogLevel         string        `env:"ORBIT_LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	LogFormat        string        `env:"ORBIT_LOG_FORMAT" envDefault:"json" doc:"json or text"`
	DBMaxOpen        int           `env:"ORBIT_DB_MAX_OPEN" envDefault:"16" doc:"database connections at most"`
	DBMaxLifetime    time.Duration `env:"ORBIT_DB_MAX_LIFETIME" envDefault:"10m" doc:"age at which a database connection is replaced"`
	MaxInFlight      int           `env:"ORBIT_MAX_IN_FLIGHT" envDefault:"256" doc:"requests at once; more answer CAPACITY_EXCEEDED"`
	SweepInterval    time.Duration `env:"ORBIT_SWEEP_INTERVAL" envDefault:"1s" doc:"how often to look for lost attempts"`
	ReceiptRetention time.Duration `env:"ORBIT_RECEIPT_RETENTION" envDefault:"720h" doc:"how long an Idempotency-Key keeps its answer, at least 720h"`
	ShutdownGrace    time.Duration `env:"ORBIT_SHUTDOWN_GRACE" envDefault:"10s" doc:"how long requests in flight may go on after SIGTERM"`
}

const minReceiptRetention = 30 * 24 * time.Hour // R3.4

// loadConfig reads an environment (os.Environ) and returns every fault at once. Unknown ORBIT_
// variables are not faults: other services share the environment.
func loadConfig(environ []string) (config, error) {
	var cfg config
	err := env.ParseWithOptions(&cfg, env.Options{Environment: env.ToMap(environ)})
	return cfg, errors.Join(err, cfg.Validate())
}

// Validate returns all faults, each naming its variable.
func (c config) Validate() error {
	var faults []error
	fault := func(name, format string, args ...any) {
		faults = append(faults, fmt.Errorf(name+" "+format, args...))
	}
	if c.DSN == "" {
		fault("ORBIT_DSN", "is required, as user:password@tcp(host:port)/name")
	}
	if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		fault("ORBIT_MANAGEMENT_ADDR", "must be host:port, is %q", c.Addr)
	}
	if err := logging.Check(c.LogLevel, ""); err != nil {
		fault("ORBIT_LOG_LEVEL:", "%w", err)
	}
	if err := logging.Check("", c.LogFormat); err != nil {
		fault("ORBIT_LOG_FORMAT:", "%w", err)
	}
	if c.DBMaxOpen < 2 || c.DBMaxOpen > 10_000 {
		fault("ORBIT_DB_MAX_OPEN", "must be 2…10000, is %d", c.DBMaxOpen)
	}
	if c.DBMaxLifetime < time.Second {
		fault("ORBIT_DB_MAX_LIFETIME", "must be at least 1s, is %s", c.DBMaxLifetime)
	}
	if c.MaxInFlight < 1 {
		fault("ORBIT_MAX_IN_FLIGHT", "must be at least 1, is %d", c.MaxInFlight)
	}
	if c.SweepInterval < 10*time.Millisecond || c.SweepInterval > time.Hour {
		fault("ORBIT_SWEEP_INTERVAL", "must be 10ms…1h, is %s", c.SweepInterval)
	}
	if c.ReceiptRetention < minReceiptRetention {
		fault("ORBIT_RECEIPT_RETENTION", "must be at least %s (30 days), is %s", minReceiptRetention, c.ReceiptRetention)
	}
	if c.ShutdownGrace < 0 || c.ShutdownGrace > 10*time.Minute {
		fault("ORBIT_SHUTDOWN_GRACE", "must be 0s…10m, is %s", c.ShutdownGrace)
	}
	return errors.Join(faults...)
}

// envHelp lists the variables with their defaults.
func envHelp() string {
	var b strings.Builder
	b.WriteString("Environment:\n")
	for field := range reflect.TypeFor[config]().Fields() {
		fmt.Fprintf(&b, "  %-24s %s", field.Tag.Get("env"), field.Tag.Get("doc"))
		if def := field.Tag.Get("envDefault"); def != "" {
			fmt.Fprintf(&b, " [%s]", def)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
