package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/gorilla/websocket"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// envProcess makes this test binary a gateway instead.
const envProcess = "ORBIT_TEST_GATEWAY_PROCESS"

// gatewayProcess serves until it is killed, or until the test that started it is gone.
func gatewayProcess() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent
		os.Exit(0)
	}()
	cfg, err := parseConfig(env.ToMap(os.Environ()))
	if err == nil {
		err = run(context.Background(), cfg)
	}
	fmt.Fprintln(os.Stderr, "gateway process:", err)
	os.Exit(1)
}

// process is a gateway of its own process, always at the same address.
type process struct {
	t     *testing.T
	addr  string
	dsn   string
	cmd   *exec.Cmd
	stdin io.Closer
}

func newProcess(t *testing.T, db *storetest.DB) *process {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, addr: l.Addr().String(), dsn: db.GatewayDSN}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *process) start() {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), envProcess+"=1", "ORBIT_DSN="+p.dsn, "ORBIT_GATEWAY_ADDR="+p.addr, "ORBIT_LOG_LEVEL=error")
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// kill is kill -9: nothing is drained, no socket is closed properly.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself; Wait says so
	_ = p.cmd.Wait()
	_ = p.stdin.Close()
}

// events connects, for as long as the process takes to come up.
func (p *process) events(token string, sub ids.ID, capacity int) *socket {
	p.t.Helper()
	for deadline := time.Now().Add(6 * wait); ; time.Sleep(10 * time.Millisecond) {
		dialer := websocket.Dialer{Subprotocols: []string{"orbit.events.v1"}, HandshakeTimeout: wait}
		ws, _, err := dialer.Dial("ws://"+p.addr+"/v1/events/connect", map[string][]string{"Authorization": {"Bearer " + token}})
		if err == nil {
			s := &socket{t: p.t, ws: ws, frames: eventFrames}
			s.send("events.hello", map[string]any{"subscription_id": sub.String(), "capacity": capacity})
			s.session = s.expect("events.welcome").SessionID
			return s
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("gateway %s: %v", p.addr, err)
		}
	}
}

// cut ends a connection without a close frame, as a crash does.
func (s *socket) cut() {
	if tcp, ok := s.ws.NetConn().(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // RST, no FIN
	}
	_ = s.ws.NetConn().Close()
}

// backlog is what one statement, so one snapshot, sees of a subscription.
type backlog struct{ counter, rows, limit, acked int }

func readBacklog(t *testing.T, db *storetest.DB, sub ids.ID) backlog {
	t.Helper()
	var b backlog
	err := db.SQL.QueryRow(`
SELECT s.pending_count, s.max_pending,
  (SELECT COUNT(*) FROM deliveries d WHERE d.namespace_id = s.namespace_id AND d.subscription_id = s.id AND d.state IN ('PENDING', 'LEASED', 'EXPIRED')),
  (SELECT COUNT(*) FROM deliveries d WHERE d.namespace_id = s.namespace_id AND d.subscription_id = s.id AND d.state = 'ACKED')
FROM subscriptions s WHERE s.id = ?`, sub[:]).Scan(&b.counter, &b.limit, &b.rows, &b.acked)
	if err != nil {
		t.Fatal(err)
	}
	if b.counter != b.rows || b.counter < 0 || b.counter > b.limit {
		t.Fatalf("pending_count %d, rows %d, max_pending %d", b.counter, b.rows, b.limit)
	}
	return b
}

// B4: backlog places do not leak, whatever consumers and gateways do: three gateways, each killed and
// started again now and then, 500 connections that end without a close, with acks, lapses, pauses and
// releases in between. The counter always equals the rows, and delivery resumes by itself.
func TestBacklogPlacesSurviveCrashes(t *testing.T) {
	t.Parallel()
	const gateways, crashes, events = 3, 500, 250
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{MaxPending: 2, MaxAttempts: 100})
	// Connections that end before they read anything cost attempts too, and the budget is not what is tested.
	if _, err := db.SQL.Exec("UPDATE subscriptions SET max_attempts = 1000000 WHERE id = ?", sub[:]); err != nil {
		t.Fatal(err)
	}
	db.AppendEvents(t, tenant, events, `1`)
	t.Run("crashes", func(t *testing.T) {
		for i := range gateways {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				c := &crasher{t: t, db: db, tenant: tenant, sub: sub, node: newProcess(t, db), rng: rand.New(rand.NewPCG(uint64(i), 4)), pauses: i == 0}
				for n := range (crashes + i) / gateways {
					c.step(n)
				}
				c.resume()
				if len(c.old) < crashes/gateways/4 {
					t.Errorf("only %d deliveries were met", len(c.old))
				}
				t.Logf("%d deliveries in %d crashes", len(c.old), (crashes+i)/gateways)
			})
		}
	})
	for _, n := range []*node{startNode(t, db), startNode(t, db), startNode(t, db)} {
		go ackAll(n.events(tenant.Token, sub, 2))
	}
	for n, deadline := 0, time.Now().Add(6*wait); ; time.Sleep(20 * time.Millisecond) {
		if n++; n%100 == 1 {
			lapse(t, db, sub) // what the dead hold, 30 s sooner
		}
		b := readBacklog(t, db, sub)
		if b.acked == events {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("delivery has stopped: %+v", b)
		}
	}
}

// ackAll acknowledges all that comes, until the connection ends.
func ackAll(s *socket) {
	for {
		f, err := s.read(6 * wait)
		if err != nil {
			return
		}
		if f.Type != "event.deliver" {
			continue
		}
		d := decode[delivered](s.t, f.Body)
		if s.ws.WriteMessage(websocket.TextMessage, []byte(s.ackText(d))) != nil {
			return
		}
	}
}

// ackText is an ack by hand, for loads.
func (s *socket) ackText(d delivered) string {
	return fmt.Sprintf(`{"protocol_version":"1","type":"event.ack","message_id":%q,"session_id":%q,"body":{"delivery_id":%q,"epoch":%q,"lease_secret":%q}}`,
		ids.New(), s.session, d.Delivery.ID, d.Delivery.LeaseEpoch, d.LeaseSecret)
}

// crasher lives through one gateway's crashes.
type crasher struct {
	t      *testing.T
	db     *storetest.DB
	tenant storetest.Tenant
	sub    ids.ID
	node   *process
	rng    *rand.Rand
	pauses bool // only one of them pauses, so that revisions do not race
	paused bool
	rev    uint64
	old    []delivered // got on connections that have ended
}

func (c *crasher) chance(percent int) bool { return c.rng.IntN(100) < percent }

func (c *crasher) step(n int) {
	s := c.node.events(c.tenant.Token, c.sub, 1+c.rng.IntN(2))
	if len(c.old) > 0 && c.chance(30) { // late, or of an epoch that is over: both have an answer
		if code := s.settled("event.ack", c.old[c.rng.IntN(len(c.old))].proof()); code != "" && code != "DELIVERY_LEASE_LOST" {
			c.t.Errorf("late ack: %s", code)
		}
	}
	for range c.rng.IntN(30) { // some crash before anything came
		if _, got := s.ping(); len(got) > 0 {
			for _, d := range got {
				c.receive(s, d)
			}
			break
		}
	}
	if n%20 == 10 {
		c.node.kill()
		c.check()
		c.node.start()
	} else {
		s.cut()
	}
	c.check()
	if c.chance(60) {
		lapse(c.t, c.db, c.sub)
	}
	if c.pauses && c.chance(15) {
		c.toggle()
	}
	c.check()
	if n%50 == 49 {
		c.resumes()
	}
}

func (c *crasher) receive(s *socket, d delivered) {
	switch p := c.rng.IntN(100); {
	case p < 35:
		if code := s.settled("event.ack", d.proof()); code != "" && code != "DELIVERY_LEASE_LOST" {
			c.t.Errorf("ack: %s", code)
		}
	case p < 50: // the connection ends before the answer
		s.send("event.ack", d.proof())
	case p < 65:
		body := d.proof()
		body["delay_ms"], body["refund"] = c.rng.IntN(2)*50, c.chance(50)
		s.send("event.release", body)
	}
	c.old = append(c.old, d)
}

// settled sends a command and reads past everything else to its error code, "" for an ack.
func (s *socket) settled(frameType string, body any) string {
	s.t.Helper()
	id := s.send(frameType, body)
	for {
		f := s.next()
		switch {
		case f.ReplyTo == id && f.Error != nil:
			return f.Error.Code
		case f.ReplyTo == id:
			return ""
		}
	}
}

func (c *crasher) check() {
	c.t.Helper()
	readBacklog(c.t, c.db, c.sub)
}

func (c *crasher) toggle() {
	c.rev++
	configure(c.t, c.db, c.tenant, c.sub, c.rev, c.paused)
	c.paused = !c.paused
}

func (c *crasher) resume() {
	if c.paused {
		c.toggle()
	}
}

// resumes shows that a healthy consumer gets on from here, unless the log is used up.
func (c *crasher) resumes() {
	if !c.pauses {
		return
	}
	c.resume()
	before := readBacklog(c.t, c.db, c.sub)
	s := c.node.events(c.tenant.Token, c.sub, 2)
	go ackAll(s)
	defer s.cut()
	for deadline := time.Now().Add(6 * wait); ; time.Sleep(10 * time.Millisecond) {
		lapse(c.t, c.db, c.sub)
		now := readBacklog(c.t, c.db, c.sub)
		if now.acked > before.acked || now.rows == 0 {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("delivery has stopped: %+v", now)
		}
	}
}

// B5: a claim turn that recovers lapsed leases is stopped at one of its statements while an ack comes
// in. Whoever is first, the delivery ends as ACKED, once, and the counter fits.
func TestAStoppedRecoveryDoesNotUndoAnAck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stopAt   string
		budget   int
		unlocked bool // the ack does not even ask for the subscription's lock
	}{
		"before its lock":               {"FROM subscriptions", 2, false},
		"before it reads":               {"SELECT id, event_id, sequence, state, session_id", 2, false},
		"before it writes PENDING":      {"SET state = 'PENDING'", 2, false},
		"before it writes EXPIRED":      {"SET state = 'EXPIRED'", 1, false},
		"an ack past the lock, PENDING": {"SET state = 'PENDING'", 2, true},
		"an ack past the lock, EXPIRED": {"SET state = 'EXPIRED'", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			tenant := db.Tenant(t)
			sub := db.Subscribe(t, tenant, subscription.Create{MaxAttempts: c.budget})
			first := startNode(t, db).events(tenant.Token, sub, 1)
			db.Outcome(t, tenant, `1`)
			d := first.delivery()
			lapse(t, db, sub)
			p := db.NewProxy(t)
			stopped, resume := make(chan struct{}), make(chan struct{})
			p.Decide(stopOnce(c.stopAt, stopped, resume))
			turn := make(chan error, 1)
			go func() {
				_, err := p.Store.ClaimDeliveries(context.Background(), tenant.NamespaceID, sub, nil)
				turn <- err
			}()
			select {
			case <-stopped:
			case err := <-turn:
				t.Fatalf("the turn ended without a statement that has %q: %v", c.stopAt, err)
			}
			acks := make(chan error, 1)
			if c.unlocked {
				ackPastTheLock(t, db, sub)
				acks <- nil
			} else {
				id := first.send("event.ack", d.proof())
				go func() {
					f, err := first.read(wait)
					if err == nil && (f.ReplyTo != id || f.Error != nil) {
						err = fmt.Errorf("answered by %+v", f)
					}
					acks <- err
				}()
				if c.stopAt == "FROM subscriptions" { // nothing is locked yet: the ack goes first
					if err := <-acks; err != nil {
						t.Error(err)
					}
					acks <- nil
				}
			}
			close(resume)
			if err := <-turn; (err != nil) != c.unlocked { // a guard that found another state gives the turn up
				t.Errorf("the turn: %v", err)
			}
			if err := <-acks; err != nil {
				t.Error(err)
			}
			if c.unlocked {
				if _, err := db.SQL.Exec("UPDATE subscriptions SET pending_count = 0 WHERE id = ?", sub[:]); err != nil {
					t.Fatal(err)
				}
			}
			recoverLeases(t, db, tenant, sub)
			if got := stateOf(t, db, tenant, sub, d.Delivery.ID); got != delivery.Acked {
				t.Errorf("it is %s", got)
			}
			if b := readBacklog(t, db, sub); b.counter != 0 || b.acked != 1 {
				t.Errorf("%+v", b)
			}
		})
	}
}

// stopOnce holds the first statement that has this text until resume.
func stopOnce(text string, stopped, resume chan struct{}) func(string) storetest.Fate {
	var done atomic.Bool
	return func(query string) storetest.Fate {
		if strings.Contains(strings.Join(strings.Fields(query), " "), text) && done.CompareAndSwap(false, true) {
			close(stopped)
			<-resume
		}
		return storetest.Pass
	}
}

// ackPastTheLock is what an acknowledging writer without our lock order would do: only the guard in
// the recovery's UPDATE is left to notice. The counter follows when the lock is free.
func ackPastTheLock(t *testing.T, db *storetest.DB, sub ids.ID) {
	t.Helper()
	if _, err := db.SQL.Exec(`
UPDATE deliveries SET state = 'ACKED', revision = revision + 1, acknowledged_at = UTC_TIMESTAMP(6)
WHERE subscription_id = ?`, sub[:]); err != nil {
		t.Fatal(err)
	}
}
