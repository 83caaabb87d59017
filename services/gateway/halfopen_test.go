package main

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/session"
)

// middlebox is what stands between clients and a gateway: it ends connections that were idle for
// too long, and can lose what one side sends while the connections stay open on both ends.
type middlebox struct {
	listener net.Listener
	gateway  string
	idle     time.Duration
	loseUp   atomic.Bool // what clients send
	loseDown atomic.Bool // what the gateway sends
	cuts     atomic.Int64
	copying  sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newMiddlebox(t *testing.T, n *node, idle time.Duration) *middlebox {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &middlebox{listener: l, gateway: strings.TrimPrefix(n.url, "ws://"), idle: idle}
	m.copying.Go(m.accept)
	t.Cleanup(func() {
		_ = l.Close()
		m.mu.Lock()
		for _, c := range m.conns {
			_ = c.Close()
		}
		m.mu.Unlock()
		m.copying.Wait()
	})
	return m
}

// behind is the gateway as seen through it.
func (m *middlebox) behind(n *node) *node {
	return &node{t: n.t, url: "ws://" + m.listener.Addr().String(), g: n.g}
}

func (m *middlebox) accept() {
	for {
		client, err := m.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", m.gateway)
		if err != nil {
			_ = client.Close()
			continue
		}
		m.mu.Lock()
		m.conns = append(m.conns, client, server)
		m.mu.Unlock()
		var last atomic.Int64
		last.Store(time.Now().UnixNano())
		over := make(chan struct{})
		var once sync.Once
		end := func() { once.Do(func() { close(over); _ = client.Close(); _ = server.Close() }) }
		m.copying.Go(func() { defer end(); m.copy(server, client, &m.loseUp, &last) })
		m.copying.Go(func() { defer end(); m.copy(client, server, &m.loseDown, &last) })
		m.copying.Go(func() { m.reap(over, end, &last) })
	}
}

func (m *middlebox) copy(to io.Writer, from io.Reader, lose *atomic.Bool, last *atomic.Int64) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		last.Store(time.Now().UnixNano())
		if lose.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// reap ends the connection once nothing has passed for the idle time; 0 never does.
func (m *middlebox) reap(over chan struct{}, end func(), last *atomic.Int64) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
			if m.idle > 0 && time.Since(time.Unix(0, last.Load())) > m.idle {
				m.cuts.Add(1)
				end()
				return
			}
		}
	}
}

// scale is by how much time is compressed: the read limit and a proxy's usual 60 s become 5 s, and the
// heartbeat that welcome asks for keeps its proportion to them.
const scale = 12

// D3. The three take lease time each, waiting, so they share it: one slot of the test run, not three.
func TestIdleProxiesAndHalfOpenPeers(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	all.Go(func() { aHeartbeatKeepsAnIdleConnection(t) })
	all.Go(func() {
		aHalfOpenPeerIsFound(t, "its packets are lost", func(m *middlebox, s *socket) {
			m.loseUp.Store(true)
			s.send("events.ping", map[string]any{}) // it believes that all is well
		})
	})
	all.Go(func() {
		aHalfOpenPeerIsFound(t, "ours are lost", func(m *middlebox, s *socket) {
			m.loseDown.Store(true)
			s.send("events.ping", map[string]any{}) // arrives; its answer does not, and the client sends no more
		})
	})
	all.Wait()
}

// Through a proxy that ends idle connections after as long as the gateway's own read limit, a client
// that keeps the heartbeat is never dropped, though no event comes for six (scaled) minutes.
func aHeartbeatKeepsAnIdleConnection(t *testing.T) {
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	var limit time.Duration
	n := startNode(t, db, func(c *config) { c.IdleTimeout /= scale; limit = c.IdleTimeout })
	if session.Heartbeat*2 > limit*scale {
		t.Fatalf("a heartbeat of %s leaves no room for a lost one in %s", session.Heartbeat, limit*scale)
	}
	box := newMiddlebox(t, n, 60*time.Second/scale)
	healthy, silent := box.behind(n).events(tenant.Token, sub, 1), box.behind(n).events(tenant.Token, sub, 1)
	heart := time.NewTicker(session.Heartbeat / scale)
	defer heart.Stop()
	for began := time.Now(); time.Since(began) < 6*time.Minute/scale; <-heart.C {
		healthy.ping()
	}
	if _, err := silent.read(wait); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("a connection without heartbeat is still there: %v", err)
	}
	db.Outcome(t, tenant, `1`)
	if _, code := healthy.answer("event.ack", healthy.delivery().proof()); code != "" {
		t.Errorf("the healthy connection's ack: %s", code)
	}
}

// A peer whose packets no longer arrive is found within the read limit; nobody closed anything. Its
// lease ends in lease time and another connection gets the delivery, without any new event. A peer that
// our packets no longer reach gives up by its own read limit, and then it is the same.
func aHalfOpenPeerIsFound(t *testing.T, name string, lose func(*middlebox, *socket)) {
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	var limit time.Duration
	n := startNode(t, db, func(c *config) { c.IdleTimeout /= scale; limit = c.IdleTimeout })
	box := newMiddlebox(t, n, 0)
	dead := box.behind(n).events(tenant.Token, sub, 1)
	db.Outcome(t, tenant, `1`)
	d := dead.delivery()
	leased := time.Now()
	lose(box, dead)
	began := time.Now()
	healthy := startNode(t, db).events(tenant.Token, sub, 1) // on another node, which knows nothing of the first
	for deadline := time.Now().Add(limit + wait); n.g.eventDoor.Open() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: still open after %s", name, time.Since(began))
		}
	}
	found := time.Since(began)
	f, err := healthy.read(delivery.LeaseDuration + wait)
	if err != nil {
		t.Fatal(err)
	}
	again := decode[delivered](t, f.Body)
	if again.Delivery.ID != d.Delivery.ID || again.Delivery.LeaseEpoch != "2" {
		t.Errorf("got %s %+v", f.Type, again.Delivery)
	}
	if _, code := healthy.answer("event.ack", again.proof()); code != "" {
		t.Error(code)
	}
	t.Logf("%s: found after %s (limit %s); delivered again %s after the lease began", name, found, limit, time.Since(leased))
}
