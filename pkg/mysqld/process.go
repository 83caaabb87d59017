package mysqld

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// poll is the pause between two looks at something that sends no signal.
	poll = 10 * time.Millisecond

	// lockLimit is how long the lock of a server that is just dying is waited for.
	lockLimit = 2 * time.Second

	// Free ports come from below the range that systems use for outgoing connections: there, a client that reconnects
	// while the server is down can take its port.
	lowPort, highPort = 20000, 32000
)

// process is one run of the server program.
type process struct {
	cmd     *exec.Cmd
	done    chan struct{} // closed after err is set
	err     error
	asked   atomic.Bool // we ended it
	log     string
	logFrom int64 // where this run's part of the log begins
}

// launch runs the server and waits until it answers. The folder's lock is handed to the server, so it lives exactly as
// long as the server does, even when this process dies first.
func (s *Server) launch(ctx context.Context) error {
	lock, err := lockDir(ctx, s.opts.Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := s.program.initialise(ctx, s.opts.Dir); err != nil {
		return err
	}
	fixed := s.Port()
	for {
		port := fixed
		if port == 0 {
			if port, err = freePort(); err != nil {
				return err
			}
		} else if !available(port) {
			return fmt.Errorf("mysqld: port %d of 127.0.0.1 is taken by another program: stop that program or choose another port", port)
		}
		p, err := s.run(lock, port)
		if err != nil {
			return err
		}
		if err = p.ready(ctx, s.socket, port); err == nil {
			s.mu.Lock()
			s.port, s.proc = port, p
			s.mu.Unlock()
			return nil
		}
		_ = p.kill() // its end is known or comes now; err says why
		if fixed == 0 && ctx.Err() == nil && !available(port) {
			continue // another program took the free port in between
		}
		return err
	}
}

// run starts the server program.
func (s *Server) run(lock *os.File, port int) (*process, error) {
	p := &process{done: make(chan struct{}), log: filepath.Join(s.opts.Dir, "error.log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("mysqld: open the error log: %w", err)
	}
	defer log.Close()
	if p.logFrom, err = log.Seek(0, io.SeekEnd); err != nil {
		return nil, fmt.Errorf("mysqld: open the error log: %w", err)
	}
	p.cmd = exec.Command(s.program.path, s.program.args(s.opts, s.socket, port)...)
	p.cmd.Dir = s.opts.Dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.ExtraFiles = []*os.File{lock}
	// Its own process group: a Ctrl-C in the terminal is for us, and we then stop the server in our order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	started := make(chan error)
	go func() {
		if s.opts.DieWithParent {
			// The kernel takes the end of the starting thread for the end of the parent, so that thread stays with this
			// goroutine until the server has ended.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			dieWithParent(p.cmd.SysProcAttr)
		}
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("mysqld: start %s: %w", s.program.path, err)
	}
	return p, nil
}

// ready waits until the server greets on its socket, which nobody else can own, and then on TCP.
func (p *process) ready(ctx context.Context, socket string, port int) error {
	tcp := net.JoinHostPort(loopback, strconv.Itoa(port))
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return fmt.Errorf("mysqld: the server ended while starting: %w%s", p.exit(), p.tail())
		case <-ctx.Done():
			return fmt.Errorf("mysqld: the server does not answer yet: %w%s", ctx.Err(), p.tail())
		case <-tick.C:
			if greets(ctx, "unix", socket) && greets(ctx, "tcp", tcp) {
				return nil
			}
		}
	}
}

// greets reports whether a server sends its handshake packet, protocol version 10.
func greets(ctx context.Context, network, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return false
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var head [5]byte // length (3), packet number, protocol version
	_, err = io.ReadFull(conn, head[:])
	return err == nil && head[4] == 10
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) wait() error {
	<-p.done
	if p.asked.Load() {
		return nil
	}
	return fmt.Errorf("mysqld: the server ended by itself: %w%s", p.exit(), p.tail())
}

// exit says how the process ended; it is never nil.
func (p *process) exit() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

func (p *process) stop(ctx context.Context) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	if err := p.kill(); err != nil {
		return err
	}
	return fmt.Errorf("mysqld: the server had to be killed, it did not stop in time: %w%s", ctx.Err(), p.tail())
}

func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// signal sends sig unless the process has ended.
func (p *process) signal(sig syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	p.asked.Store(true)
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("mysqld: send %v to the server: %w", sig, err)
	}
	return nil
}

// tail returns the end of what this run has written to the log, with a hint where one is known.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil || int64(len(text)) <= p.logFrom {
		return fmt.Sprintf("\n(nothing was written to %s)", p.log)
	}
	last := lastLines(string(text[p.logFrom:]))
	hint := ""
	if strings.Contains(strings.ToLower(last), "permission denied") {
		hint = "\nhint: if the folder belongs to this user, AppArmor may confine the server to its own folders: see dmesg"
	}
	return fmt.Sprintf("\nthe end of %s:\n%s%s", p.log, last, hint)
}

// lastLines returns the last 15 lines of text, where a server says why it ended, each indented.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return indent(lines[max(0, len(lines)-15):])
}

// firstLines returns the first 15 lines of text, where the installation script says what failed, each indented.
func firstLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return indent(lines[:min(15, len(lines))])
}

func indent(lines []string) string { return "  " + strings.Join(lines, "\n  ") }

// lockDir takes the folder for one server.
func lockDir(ctx context.Context, dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("mysqld: open the folder's lock: %w", err)
	}
	for end := time.Now().Add(lockLimit); ; time.Sleep(poll) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || ctx.Err() != nil || time.Now().After(end) {
			break
		}
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		pid, _ := os.ReadFile(filepath.Join(dir, "mysqld.pid")) // absent while another start is under way
		return nil, fmt.Errorf("mysqld: a server already runs in %s (pid %s): stop it first", dir, strings.TrimSpace(string(pid)))
	}
	return nil, fmt.Errorf("mysqld: lock %s: %w", dir, err)
}

// freePort returns a port that nobody listens on at this moment.
func freePort() (int, error) {
	for range 100 {
		if port := lowPort + rand.IntN(highPort-lowPort); available(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("mysqld: found no free port from %d to %d on 127.0.0.1", lowPort, highPort-1)
}

// available reports whether a server could listen on port.
func available(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
