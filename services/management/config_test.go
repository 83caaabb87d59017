package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	cfg, err := loadConfig([]string{"ORBIT_DSN=u:hunter2@tcp(h:1)/d", "ORBIT_GATEWAY_ADDR=ignored"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Addr != "127.0.0.1:8080" || cfg.SweepInterval != time.Second || cfg.ReceiptRetention != minReceiptRetention || cfg.MaxInFlight != 256 {
		t.Errorf("defaults: %+v", cfg)
	}
}

// TestConfigReportsAllFaultsAtOnce, each with its variable.
func TestConfigReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	bad := map[string]string{
		"ORBIT_DSN": "", "ORBIT_MANAGEMENT_ADDR": "nowhere", "ORBIT_LOG_LEVEL": "loud", "ORBIT_LOG_FORMAT": "xml", "ORBIT_DB_MAX_OPEN": "1",
		"ORBIT_DB_MAX_LIFETIME": "1ms", "ORBIT_MAX_IN_FLIGHT": "0", "ORBIT_SWEEP_INTERVAL": "0s", "ORBIT_RECEIPT_RETENTION": "719h", "ORBIT_SHUTDOWN_GRACE": "1h",
	}
	var environ []string
	for name, value := range bad {
		environ = append(environ, name+"="+value)
	}
	_, err := loadConfig(environ)
	if err == nil {
		t.Fatal("accepted")
	}
	for name := range bad {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in: %v", name, err)
		}
	}
	if _, err := loadConfig([]string{"ORBIT_DSN=x", "ORBIT_SWEEP_INTERVAL=soon", "ORBIT_DB_MAX_OPEN=many"}); err == nil ||
		!strings.Contains(err.Error(), "SweepInterval") || !strings.Contains(err.Error(), "DBMaxOpen") {
		t.Errorf("unreadable values: %v", err)
	}
}

func TestSecretsNeverPrint(t *testing.T) {
	t.Parallel()
	cfg, err := loadConfig([]string{"ORBIT_DSN=u:hunter2@tcp(h:1)/d", "ORBIT_CONSOLE_PASSWORD=hunter2"})
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if text := fmt.Sprintf(verb, cfg); strings.Contains(text, "hunter2") || strings.Contains(text, fmt.Sprintf("%x", "hunter2")) {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}

// TestHelpNamesEveryVariable with what it does.
func TestHelpNamesEveryVariable(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs([]string{"serve", "--help"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(envHelp()) {
		if !strings.Contains(out.String(), line) {
			t.Errorf("serve --help lacks %q", line)
		}
		if fields := strings.Fields(line); strings.HasPrefix(fields[0], "ORBIT_") && len(fields) < 3 {
			t.Errorf("%q says nothing", line)
		}
	}
}
