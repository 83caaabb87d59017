// Package mysqld starts a private MariaDB or MySQL server from a folder: for the local stack, for tests and for benchmarks.
//
// The server listens on 127.0.0.1 and on a Unix socket, flushes its redo log at every commit, and lets root in without a
// password; it is for one machine and never for production data. The package runs on Linux and macOS.
package mysqld

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

const (
	loopback = "127.0.0.1"

	// maxSocketPath is what every system allows in sockaddr_un: 104 bytes on macOS, 108 on Linux, one for the final zero.
	maxSocketPath = 103

	// stopLimit is how long Stop waits for a clean end when its context has no deadline.
	stopLimit = 30 * time.Second
)

// Options says where and how to run a server. Only Dir is required.
type Options struct {
	// Dir holds the data, the socket, the pid file and the error log. It is created when missing, and its data are used
	// again when they are there. One server at a time may run in it.
	Dir string

	// Addr is the TCP address, "127.0.0.1:3307". Without a port, a free one is chosen and then kept over Restart.
	Addr string

	// BufferPoolMB is the size of InnoDB's buffer pool in MiB; 0 means 128.
	BufferPoolMB int

	// Binlog turns the binary log on, flushed at every commit.
	Binlog bool

	// DieWithParent has the kernel kill the server when this process ends, however it ends. Only Linux can do that;
	// elsewhere it has no effect.
	DieWithParent bool

	// ExtraArgs are added to the server's command line after all others, so they win.
	ExtraArgs []string
}

// Server is a running server. Its methods may be called from any goroutine.
type Server struct {
	program   program
	opts      Options
	socketDir string // made by us outside Dir, "" when the socket is in Dir
	socket    string

	mu   sync.Mutex
	port int
	proc *process
}

// Start runs a server and returns once it answers on its socket and on TCP, within ctx; ctx has no effect afterwards.
// An empty folder is initialised first, which takes about a second. On an error nothing is left running.
func Start(ctx context.Context, o Options) (*Server, error) {
	port, err := parseAddr(o.Addr)
	if err != nil {
		return nil, err
	}
	if o.Dir == "" {
		return nil, errors.New("mysqld: Options.Dir is empty: name a folder for the data")
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("mysqld: find the data folder: %w", err)
	}
	if o.BufferPoolMB == 0 {
		o.BufferPoolMB = 128
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("mysqld: make the data folder: %w", err)
	}
	prog, err := findProgram(ctx, places())
	if err != nil {
		return nil, err
	}
	s := &Server{program: prog, opts: o, port: port, socket: filepath.Join(o.Dir, "s.sock")}
	if len(s.socket) > maxSocketPath {
		if s.socketDir, err = shortTempDir(); err != nil {
			return nil, err
		}
		s.socket = filepath.Join(s.socketDir, "s.sock")
	}
	if err := s.launch(ctx); err != nil {
		s.removeSocketDir()
		return nil, err
	}
	return s, nil
}

// Addr returns the TCP address, "127.0.0.1:port".
func (s *Server) Addr() string { return net.JoinHostPort(loopback, strconv.Itoa(s.Port())) }

// Port returns the TCP port.
func (s *Server) Port() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port
}

// Socket returns the path of the Unix socket. It may lie outside Dir when that path is too long for a socket.
func (s *Server) Socket() string { return s.socket }

// PID returns the process id of the server started last.
func (s *Server) PID() int { return s.current().pid() }

// Flavor returns "mariadb" or "mysql".
func (s *Server) Flavor() string { return s.program.flavor }

// RootDSN returns a DSN for go-sql-driver/mysql, without parameters, as root over TCP. An empty database selects none.
func (s *Server) RootDSN(database string) string {
	return fmt.Sprintf("root@tcp(%s)/%s", s.Addr(), url.PathEscape(database))
}

// Done returns a channel that closes when the process started last has ended. After a Restart, ask again.
func (s *Server) Done() <-chan struct{} { return s.current().done }

// Wait blocks until the process started last has ended. It returns nil when Stop, Kill or Restart ended it, and otherwise
// an error with the end of its log.
func (s *Server) Wait() error { return s.current().wait() }

// Stop shuts the server down cleanly and waits for its end. When ctx, or 30 seconds if ctx has no deadline, runs out first,
// the server is killed, and Stop returns an error after its end. Stopping a server that has ended returns nil.
func (s *Server) Stop(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, stopLimit)
		defer cancel()
	}
	err := s.current().stop(ctx)
	s.removeSocketDir()
	return err
}

// Kill ends the server with SIGKILL, as a crash would, and waits for its end. Restart, or Start on the same folder,
// recovers it.
func (s *Server) Kill() error {
	err := s.current().kill()
	s.removeSocketDir()
	return err
}

// Restart stops the server, if it runs, and starts it again on the same folder, port and socket. It returns once the server
// answers, within ctx.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	if s.socketDir != "" {
		// Mkdir and not MkdirAll: a folder that somebody else made under this name is refused.
		if err := os.Mkdir(s.socketDir, 0o700); err != nil {
			return fmt.Errorf("mysqld: make the socket's folder: %w", err)
		}
	}
	if err := s.launch(ctx); err != nil {
		s.removeSocketDir()
		return err
	}
	return nil
}

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *Server) removeSocketDir() {
	if s.socketDir != "" {
		_ = os.RemoveAll(s.socketDir) // an empty folder left in the temporary place harms nobody
	}
}

// shortTempDir makes a folder whose path leaves room for a socket's name.
func shortTempDir() (string, error) {
	parent := os.TempDir()
	if len(parent) > maxSocketPath-40 {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "orbit-")
	if err != nil {
		return "", fmt.Errorf("mysqld: make the socket's folder: %w", err)
	}
	return dir, nil
}

// parseAddr returns the port in addr, 0 when a free one is to be chosen.
func parseAddr(addr string) (int, error) {
	if addr == "" {
		return 0, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, fmt.Errorf("mysqld: address %q: want 127.0.0.1:port", addr)
	}
	if host != "" && host != loopback && host != "localhost" {
		return 0, fmt.Errorf("mysqld: address %q: root has no password here, so the server listens on 127.0.0.1 only", addr)
	}
	if port == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("mysqld: address %q: the port must be a number from 0 to 65535", addr)
	}
	return int(n), nil
}
