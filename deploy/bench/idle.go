package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// environs are what a scenario's stack gets beyond the defaults.
var environs = map[string][]string{
	"connections": {"ORBIT_GATEWAY_EVENT_CONNS=6000", "ORBIT_GATEWAY_IDLE_TIMEOUT=10m"}, // nobody pings while memory is read
}

// idle is what 128 attached subscriptions cost while nothing happens but their heartbeats. Statements
// are the whole server's, those of the management service included.
func idle(ctx context.Context, s *stack, scale int) ([]metric, error) {
	gateway, err := s.process("orbit-gateway")
	if err != nil {
		return nil, err
	}
	database, err := s.process(databaseProgram)
	if err != nil {
		return nil, err
	}
	length := time.Duration(max(30*scale/100, 3)) * time.Second
	others, err := s.usage(ctx, gateway, database, length/3) // the gateway asks nothing while nobody is attached
	if err != nil {
		return nil, err
	}
	const perNamespace = 64 // R5.3
	var sockets []*socket
	for range 2 {
		t, err := s.tenant(ctx)
		if err != nil {
			return nil, err
		}
		_, subs, err := t.queue(ctx, perNamespace)
		if err != nil {
			return nil, err
		}
		for _, sub := range subs {
			c, err := s.open(t, sub, 1)
			if err != nil {
				return nil, err
			}
			defer c.ws.Close()
			go c.read(func(proof) {}, nil) //nolint:errcheck // a ping on it says so
			sockets = append(sockets, c)
		}
	}
	var cost usage
	err = beating(ctx, sockets, func() (err error) {
		cost, err = s.usage(ctx, gateway, database, length)
		return err
	})
	if err != nil {
		return nil, err
	}
	return []metric{
		{"statements of the gateway", cost.statements - others.statements, "1/s"}, {"gateway, of a core", cost.gateway * 100, "%"}, {"database, of a core", cost.database * 100, "%"}, loadAverage(),
	}, nil
}

// beating keeps the heartbeat that welcome asks for, spread over its interval, while work runs.
func beating(ctx context.Context, sockets []*socket, work func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		tick := time.NewTicker(15 * time.Second / time.Duration(len(sockets)))
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				failed <- nil
				return
			case <-tick.C:
				if _, err := sockets[i%len(sockets)].timed("events.ping", "{}"); err != nil {
					failed <- err
					return
				}
			}
		}
	}()
	err := work()
	cancel()
	return errors.Join(err, <-failed)
}

type usage struct{ statements, gateway, database float64 }

// usage measures shares of a core and statements a second over a while.
func (s *stack) usage(ctx context.Context, gateway, database process, length time.Duration) (usage, error) {
	var at [2]struct{ statements, gateway, database float64 }
	began := time.Now()
	for i := range at {
		if i == 1 {
			select {
			case <-ctx.Done():
				return usage{}, ctx.Err()
			case <-time.After(length):
			}
		}
		status, err := s.status(ctx, "Questions")
		if err != nil {
			return usage{}, err
		}
		g, err := gateway.cpu()
		if err != nil {
			return usage{}, err
		}
		d, err := database.cpu()
		if err != nil {
			return usage{}, err
		}
		at[i].statements, at[i].gateway, at[i].database = status["Questions"], g.Seconds(), d.Seconds()
	}
	took := time.Since(began).Seconds()
	return usage{
		(at[1].statements - at[0].statements) / took, (at[1].gateway - at[0].gateway) / took, (at[1].database - at[0].database) / took,
	}, nil
}

// connections is the resident memory of an idle connection, of the gateway and of a server that only
// upgrades and reads.
func connections(ctx context.Context, s *stack, scale int) ([]metric, error) {
	n := scaled(5000, scale)
	gateway, err := s.process("orbit-gateway")
	if err != nil {
		return nil, err
	}
	t, err := s.tenant(ctx)
	if err != nil {
		return nil, err
	}
	_, subs, err := t.queue(ctx, 64)
	if err != nil {
		return nil, err
	}
	ours, err := memoryEach(gateway, n, func(i int) (*websocket.Conn, error) {
		c, err := s.open(t, subs[i%len(subs)], 1)
		if err != nil {
			return nil, err
		}
		return c.ws, nil
	})
	if err != nil {
		return nil, err
	}
	bare, url, stop, err := startBare(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	theirs, err := memoryEach(bare, n, func(int) (*websocket.Conn, error) {
		dialer := websocket.Dialer{HandshakeTimeout: frameLimit, ReadBufferSize: 1024, WriteBufferSize: 1024}
		ws, _, err := dialer.Dial(url, nil) //nolint:bodyclose // an upgrade has no body
		return ws, err
	})
	if err != nil {
		return nil, err
	}
	return []metric{{"gateway, resident each", ours, "KB"}, {"bare server, resident each", theirs, "KB"}, loadAverage()}, nil
}

// settle is how long a server gets to give back what connecting took.
const settle = 5 * time.Second

// memoryEach opens n connections after a few that warm the server, and divides what it grew by.
func memoryEach(p process, n int, dial func(i int) (*websocket.Conn, error)) (float64, error) {
	const warm, dialers = 100, 16
	var mu sync.Mutex
	var open []*websocket.Conn
	defer func() {
		for _, ws := range open {
			_ = ws.Close() // the measurement is over
		}
	}()
	grow := func(to int) (float64, error) {
		next := make(chan int, to)
		for i := len(open); i < to; i++ {
			next <- i
		}
		close(next)
		err := parallel(dialers, func() error {
			for i := range next {
				ws, err := dial(i)
				if err != nil {
					return fmt.Errorf("connection %d: %w", i, err)
				}
				mu.Lock()
				open = append(open, ws)
				mu.Unlock()
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		time.Sleep(settle)
		return p.resident()
	}
	before, err := grow(warm)
	if err != nil {
		return 0, err
	}
	after, err := grow(warm + n)
	return (after - before) / float64(n), err
}

// envBare makes this program the bare server.
const envBare = "ORBIT_BENCH_BARE_SERVER"

// serveBare upgrades and reads, no more, until its standard input ends.
func serveBare() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	up := websocket.Upgrader{ReadBufferSize: 0, WriteBufferPool: &sync.Pool{}, WriteBufferSize: 4096}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			return // it has answered
		}
		defer ws.Close()
		for {
			if _, _, err := ws.ReadMessage(); err != nil {
				return
			}
		}
	})
	go http.Serve(l, handler) //nolint:errcheck,gosec // ends with the process; loopback only
	_, _ = os.Stdin.Read(make([]byte, 1))
}

func startBare(ctx context.Context) (p process, url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, "", nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), envBare+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, "", nil, err
	}
	stop = func() { _ = in.Close(); _ = cmd.Wait() }
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err != nil {
		stop()
		return 0, "", nil, fmt.Errorf("bare server: %w", err)
	}
	return process(cmd.Process.Pid), "ws://" + strings.TrimSpace(string(line[:n])), stop, nil
}
