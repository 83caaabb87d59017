package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// serving runs the service on this database until the test ends.
func serving(t *testing.T, dsn string) (url string, stop func() error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close() // the service takes the port
	cfg, err := loadConfig([]string{"ORBIT_DSN=" + dsn, "ORBIT_MANAGEMENT_ADDR=" + addr, "ORBIT_LOG_LEVEL=error"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- run(ctx, cfg) }()
	return "http://" + addr, func() error { cancel(); return <-done }
}

// waitFor asks until the status comes.
func waitFor(t *testing.T, url string, status int) {
	t.Helper()
	last := 0
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		res, err := http.Get(url)
		if err != nil {
			continue
		}
		_ = res.Body.Close()
		if last = res.StatusCode; last == status {
			return
		}
	}
	t.Fatalf("%s: %d, never %d", url, last, status)
}

func TestServeUntilStopped(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	url, stop := serving(t, db.ManagementDSN)
	waitFor(t, url+"/readyz", 200)
	waitFor(t, url+"/v1/queues", 401)
	if err := stop(); err != nil {
		t.Errorf("run: %v", err)
	}
}

// TestServeRefusesAnotherSchema and says which it needs: R7.4.
func TestServeRefusesAnotherSchema(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct{ query, want string }{
		"newer":        {"UPDATE schema_migrations SET version = version + 1", "deploy a newer binary"},
		"older":        {"UPDATE schema_migrations SET version = version - 1", "migrate up"},
		"half applied": {"UPDATE schema_migrations SET dirty = 1", "half applied"},
		"none":         {"DROP TABLE schema_migrations", "no schema"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			if _, err := db.SQL.Exec(change.query); err != nil {
				t.Fatal(err)
			}
			cfg, err := loadConfig([]string{"ORBIT_DSN=" + db.ManagementDSN, "ORBIT_MANAGEMENT_ADDR=127.0.0.1:0", "ORBIT_LOG_LEVEL=error"})
			if err != nil {
				t.Fatal(err)
			}
			if err := run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), change.want) {
				t.Errorf("run: %v, want %q", err, change.want)
			}
		})
	}
}

// TestServeWaitsForItsDatabase: alive, not ready, every call UNAVAILABLE, and no end of the process.
func TestServeWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	away, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := away.Addr().String()
	_ = away.Close()
	url, stop := serving(t, "u@tcp("+addr+")/d")
	waitFor(t, url+"/livez", 200)
	waitFor(t, url+"/readyz", 503)
	waitFor(t, url+"/v1/queues", 503)
	if err := stop(); err != nil {
		t.Errorf("run: %v", err)
	}
}
