package mysqld

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// parentDir, when set, makes this binary a parent that starts a server there, prints its pid and waits to be killed.
const parentDir = "ORBIT_TEST_PARENT_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentDir); dir != "" {
		s, err := Start(context.Background(), Options{Dir: dir, BufferPoolMB: 32, DieWithParent: true})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(s.PID())
		select {}
	}
	os.Exit(m.Run())
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// start runs a server for one test.
func start(t *testing.T, o Options) *Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	o.BufferPoolMB, o.DieWithParent = 32, true
	s, err := Start(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Kill() })
	return s
}

func TestStartAnswersRootOnTCPAndSocket(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})

	if want := "127.0.0.1:" + strconv.Itoa(s.Port()); s.Addr() != want {
		t.Errorf("Addr() = %s, want %s", s.Addr(), want)
	}
	if got, want := s.RootDSN("orbit"), "root@tcp("+s.Addr()+")/orbit"; got != want {
		t.Errorf("RootDSN(orbit) = %s, want %s", got, want)
	}
	login(t, "unix", s.Socket())
	c := login(t, "tcp", s.Addr())
	version := c.query(t, "SELECT VERSION()")
	if isMaria := strings.Contains(version, "MariaDB"); isMaria != (s.Flavor() == "mariadb") {
		t.Errorf("Flavor() = %s, the server says %s", s.Flavor(), version)
	}
	if got, want := c.query(t, "SELECT @@pid_file"), filepath.Join(s.opts.Dir, "mysqld.pid"); got != want {
		t.Errorf("pid file %s, want %s", got, want)
	}
	for name, want := range map[string]string{
		"innodb_flush_log_at_trx_commit": "1",
		"log_bin":                        "0",
		"skip_name_resolve":              "1",
		"max_connections":                "500",
		"character_set_server":           "utf8mb4",
		"collation_server":               "utf8mb4_bin",
		"bind_address":                   "127.0.0.1",
		"innodb_buffer_pool_size":        strconv.Itoa(32 << 20),
	} {
		if got := c.query(t, "SELECT @@"+name); got != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
	c.query(t, "CREATE DATABASE orbit")
	c.query(t, "CREATE USER app@'%'")
	c.query(t, "GRANT SELECT ON orbit.* TO app@'%'")
}

func TestBinlogAndExtraArgs(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Binlog: true, ExtraArgs: []string{"--max-connections=77"}})
	c := login(t, "tcp", s.Addr())
	for name, want := range map[string]string{"log_bin": "1", "sync_binlog": "1", "binlog_format": "ROW", "max_connections": "77"} {
		if got := c.query(t, "SELECT @@"+name); got != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
}

func TestTwoServersSideBySide(t *testing.T) {
	t.Parallel()
	a, b := start(t, Options{}), start(t, Options{})
	if a.Port() == b.Port() || a.Socket() == b.Socket() || a.PID() == b.PID() {
		t.Fatalf("the servers share something: %s %s, %s %s", a.Addr(), a.Socket(), b.Addr(), b.Socket())
	}
	inA, inB := login(t, "tcp", a.Addr()), login(t, "tcp", b.Addr())
	if tmp := inA.query(t, "SELECT @@tmpdir"); tmp == inB.query(t, "SELECT @@tmpdir") {
		t.Errorf("both servers keep temporary tables in %s, where each removes the other's at its start", tmp)
	}
	inA.query(t, "CREATE DATABASE only_in_a")
	if got := inB.query(t, "SHOW DATABASES LIKE 'only_in_a'"); got != "" {
		t.Error("a database made in one server is in the other")
	}
}

func TestRestartKeepsDataPortAndSocket(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	addr, socket, pid, done := s.Addr(), s.Socket(), s.PID(), s.Done()
	login(t, "tcp", addr).query(t, "CREATE DATABASE kept")

	if err := s.Restart(testContext(t)); err != nil {
		t.Fatal(err)
	}
	<-done
	if s.Addr() != addr || s.Socket() != socket || s.PID() == pid {
		t.Errorf("after Restart: %s %s pid %d; before: %s %s pid %d", s.Addr(), s.Socket(), s.PID(), addr, socket, pid)
	}
	if got := login(t, "tcp", addr).query(t, "SHOW DATABASES LIKE 'kept'"); got != "kept" {
		t.Error("the data are gone")
	}
}

func TestStopReleasesPortAndFolder(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	addr := s.Addr()
	idle := login(t, "tcp", addr) // an open connection must not hold the server up
	if err := s.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.Wait(); err != nil {
		t.Errorf("Wait() = %v after Stop, want nil", err)
	}
	if _, err := idle.try("SELECT 1"); err == nil {
		t.Error("a connection outlived the server")
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("the port is still taken: %v", err)
	}
	l.Close()
	if err := s.Stop(testContext(t)); err != nil {
		t.Errorf("second Stop: %v, want nil", err)
	}
	again := start(t, Options{Dir: s.opts.Dir, Addr: addr})
	if again.Addr() != addr {
		t.Errorf("asked for %s, got %s", addr, again.Addr())
	}
}

func TestStopKillsWhenTimeRunsOut(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	if err := syscall.Kill(s.PID(), syscall.SIGSTOP); err != nil { // now it cannot act on SIGTERM
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "had to be killed") {
		t.Errorf("Stop() = %v, want it to say that the server had to be killed", err)
	}
	<-s.Done()
}

func TestKillThenStartRecovers(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	c := login(t, "tcp", s.Addr())
	c.query(t, "CREATE DATABASE d")
	c.query(t, "CREATE TABLE d.t (id INT PRIMARY KEY) ENGINE=InnoDB")
	for i := range 50 {
		c.query(t, fmt.Sprintf("INSERT INTO d.t VALUES (%d)", i))
	}
	c.query(t, "BEGIN")
	c.query(t, "INSERT INTO d.t VALUES (1000)")

	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.Wait(); err != nil {
		t.Errorf("Wait() = %v after Kill, want nil", err)
	}
	count := func(s *Server) {
		t.Helper()
		if got := login(t, "tcp", s.Addr()).query(t, "SELECT COUNT(*) FROM d.t"); got != "50" {
			t.Errorf("%s rows after the crash, want the 50 committed", got)
		}
	}
	again := start(t, Options{Dir: s.opts.Dir})
	count(again)
	if err := again.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := again.Restart(testContext(t)); err != nil {
		t.Fatal(err)
	}
	count(again)
}

func TestWaitReportsACrash(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	err := s.Wait()
	if err == nil || !strings.Contains(err.Error(), "ended by itself: signal: killed") || !strings.Contains(err.Error(), "ready for connections") {
		t.Errorf("Wait() = %v, want the signal and the end of the log", err)
	}
	if err := s.Stop(testContext(t)); err != nil {
		t.Errorf("Stop() after a crash = %v, want nil", err)
	}
}

func TestLongFolderGetsAShortSocket(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 25))
	s := start(t, Options{Dir: dir})
	if len(s.Socket()) > maxSocketPath || strings.HasPrefix(s.Socket(), dir) {
		t.Fatalf("socket %s", s.Socket())
	}
	login(t, "unix", s.Socket())
	if err := s.Restart(testContext(t)); err != nil {
		t.Fatal(err)
	}
	login(t, "unix", s.Socket())
	if err := s.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(s.Socket())); !os.IsNotExist(err) {
		t.Errorf("the socket's folder is left behind: %v", err)
	}
}

func TestHalfMadeFolderIsMadeAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "data.new", "mysql"), 0o700); err != nil {
		t.Fatal(err)
	}
	login(t, "tcp", start(t, Options{Dir: dir}).Addr())
}

func TestDiesWithItsParent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can tie a child's life to its parent's")
	}
	dir := t.TempDir()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentDir+"="+dir)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer parent.Wait()
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, bad := strconv.Atoi(strings.TrimSpace(line))
	if kill := parent.Process.Kill(); err != nil || bad != nil || kill != nil {
		t.Fatalf("the parent said %q: %v %v %v", line, err, bad, kill)
	}
	// The lock is the server's: it is free when the server has died.
	lock, err := lockDir(testContext(t), dir)
	if err != nil {
		syscall.Kill(pid, syscall.SIGKILL)
		t.Fatalf("the server outlived its parent: %v", err)
	}
	lock.Close()
}

func TestSurvivesTheThreadThatCalledStart(t *testing.T) {
	t.Parallel()
	servers := make(chan *Server)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		s, err := Start(testContext(t), Options{Dir: t.TempDir(), BufferPoolMB: 32, DieWithParent: true})
		if err != nil {
			t.Error(err)
		}
		servers <- s
	}()
	s := <-servers
	if s == nil {
		return
	}
	defer s.Kill()
	login(t, "tcp", s.Addr()).query(t, "SELECT SLEEP(0.3)")
	select {
	case <-s.Done():
		t.Errorf("the server died: %v", s.Wait())
	default:
	}
}
