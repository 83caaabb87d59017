package mysqld

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// refused runs Start, which must fail with an error that contains each of want.
func refused(t *testing.T, ctx context.Context, o Options, want ...string) error {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := Start(ctx, o)
	if err == nil {
		s.Kill()
		t.Fatalf("Start(%+v) succeeded; want an error with %q", o, want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("Start(%+v): %v\nwant it to contain %q", o, err, w)
		}
	}
	return err
}

func TestOneServerPerFolder(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	refused(t, testContext(t), Options{Dir: s.opts.Dir}, "already runs in "+s.opts.Dir, "pid "+strconv.Itoa(s.PID()))
	login(t, "tcp", s.Addr())
}

func TestAddressesRefused(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	for addr, want := range map[string]string{
		taken.Addr().String(): "port " + port + " of 127.0.0.1 is taken",
		"3307":                "want 127.0.0.1:port",
		"127.0.0.1:99999":     "from 0 to 65535",
		"127.0.0.1:http":      "from 0 to 65535",
		"0.0.0.0:3307":        "listens on 127.0.0.1 only",
	} {
		refused(t, testContext(t), Options{Addr: addr}, want)
	}
	s, err := Start(testContext(t), Options{})
	if err == nil {
		s.Kill()
		t.Error("Start accepts an empty Dir")
	}
}

func TestDeathAtStartShowsTheLog(t *testing.T) {
	t.Parallel()
	refused(t, testContext(t), Options{ExtraArgs: []string{"--no-such-setting=1"}}, "ended while starting: exit status", "the end of", "no-such-setting")
}

func TestFolderOfTheOtherFlavor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, Options{Dir: dir})
	if err := s.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "flavor"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, testContext(t), Options{Dir: dir}, "was made by another", s.program.path+" is "+s.Flavor())
}

func TestMissingProgram(t *testing.T) {
	// Not parallel: it changes the environment.
	t.Setenv("ORBIT_MYSQLD", "/no/such/mysqld")
	err := refused(t, testContext(t), Options{}, "ORBIT_MYSQLD is set to /no/such/mysqld")
	if !errors.Is(err, ErrNotInstalled) {
		t.Errorf("%v is not ErrNotInstalled", err)
	}

	t.Setenv("ORBIT_MYSQLD", "")
	t.Setenv("PATH", t.TempDir())
	_, err = findProgram(testContext(t), []string{t.TempDir()})
	if !errors.Is(err, ErrNotInstalled) {
		t.Fatalf("with no server on the machine: %v, want ErrNotInstalled", err)
	}
	for _, want := range []string{"apt-get install mariadb-server", "brew install mariadb", "ORBIT_MYSQLD"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant it to contain %q", err, want)
		}
	}
}

func TestStartIsBoundedByItsContext(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "never-answers")
	text := "#!/bin/sh\ncase \"$2\" in --version) echo MariaDB; exit;; esac\necho still thinking\nexec sleep 600\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ORBIT_MYSQLD", script)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	err := refused(t, ctx, Options{Dir: dir}, "does not answer yet", "still thinking")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is not DeadlineExceeded", err)
	}
	lock, err := lockDir(testContext(t), dir) // it would be held by a server left running
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
}
