package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// offender is who commits one kind of offence again and again.
type offender struct {
	t      *testing.T
	node   *node
	tenant storetest.Tenant
	sub    ids.ID
}

// D4: whatever a client sends, only its own connection ends, with a typed answer; a thousand offences of a
// kind leave no more in the log at info than a handful, and a session beside them notices nothing.
func TestOffencesEndOnlyTheirConnection(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	core, logs := observer.New(zap.InfoLevel)
	n := startNodeLogging(t, db, db.Gateway, zap.New(core), func(c *config) { c.EventConns, c.IdleTimeout = 200, time.Hour })
	o := &offender{t: t, node: n, tenant: tenant, sub: db.Subscribe(t, tenant, subscription.Create{})}
	hasty := *o
	hasty.node = startNodeLogging(t, db, db.Gateway, zap.New(core), func(c *config) { c.HelloTimeout = 50 * time.Millisecond })
	quiet := db.Tenant(t)
	beside := n.events(quiet.Token, db.Subscribe(t, quiet, subscription.Create{}), 1)
	text := websocket.TextMessage
	deep := func(levels int) string { return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels) }
	for _, kind := range []struct {
		name   string
		times  int // 1 000 where an offence is cheap
		commit func() error
	}{
		{"another subprotocol", 1000, func() error { return o.refused(426, "Sec-Websocket-Protocol", "orbit.events.v2") }},
		{"an unknown token", 1000, func() error { return o.refused(401, "Authorization", "Bearer orbit_x") }},
		{"a malformed handshake", 1000, func() error { return o.refused(400, "Sec-Websocket-Version", "12") }},
		{"bare TCP", 1000, func() error { return o.tcp("") }},
		{"no HTTP", 1000, func() error { return o.tcp("\x16\x03\x01\x02\x00\x01\x00\r\n\r\n") }},
		{"no hello", 100, func() error { return hasty.closed(1008, false) }},
		{"a binary hello", 100, func() error { return o.closed(1008, false, websocket.BinaryMessage, "{}") }},
		{"not JSON", 300, func() error { return o.closed(1008, false, text, "hello") }},
		{"depth 10 001", 32, func() error { return o.closed(1008, true, text, o.command("events.ping", deep(10_001))) }},
		{"depth 9 000", 32, func() error { return o.answered("INVALID_ARGUMENT", o.command("events.ping", deep(9_000))) }},
		{"524 289 bytes", 50, func() error { return o.closed(1009, true, text, strings.Repeat(" ", 524_289)) }},
		{"two hellos", 50, func() error {
			return o.answered("INVALID_ARGUMENT", o.command("events.hello", fmt.Sprintf(`{"subscription_id":"%s","capacity":1}`, o.sub)))
		}},
		{"an unknown ack", 100, func() error {
			return o.closed(4404, true, text, o.command("event.ack", fmt.Sprintf(`{"delivery_id":"%s","epoch":"1","lease_secret":"%s"}`, ids.New(), zeroSecret)))
		}},
	} {
		before := logs.Len()
		var left atomic.Int64
		left.Store(int64(kind.times))
		var crowd sync.WaitGroup
		for range 8 {
			crowd.Go(func() {
				for left.Add(-1) >= 0 && !t.Failed() {
					if err := kind.commit(); err != nil {
						t.Errorf("%s: %v", kind.name, err)
					}
				}
			})
		}
		crowd.Wait()
		if lines := logs.Len() - before; lines > 5 {
			t.Errorf("%s: %d offences made %d lines of log, the last %v", kind.name, kind.times, lines, logs.All()[logs.Len()-1])
		}
		if enabled, _ := beside.ping(); !enabled {
			t.Errorf("%s: the session beside is disturbed", kind.name)
		}
	}
	o.commands(1000)
	if lines := logs.Len(); lines > 20 {
		t.Errorf("%d lines of log", lines)
	}
	beside.ping()
}

func (o *offender) refused(want int, header, value string) error {
	status, _, _ := o.node.knock("/v1/events/connect", upgradeHeader(o.tenant.Token, func(h http.Header) { h.Set(header, value) }))
	if status != want {
		return fmt.Errorf("status %d, want %d", status, want)
	}
	return nil
}

// tcp connects, says this and goes.
func (o *offender) tcp(text string) error {
	conn, err := net.Dial("tcp", strings.TrimPrefix(o.node.url, "ws://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if text == "" {
		return nil
	}
	_, err = io.WriteString(conn, text)
	return err
}

// sessionHere stands for the connection's own session id in a frame.
const sessionHere = "SESSION"

func (o *offender) command(frameType, body string) string {
	return `{"protocol_version":"1","type":"` + frameType + `","message_id":"` + anID + `","session_id":"` + sessionHere + `","body":` + body + `}`
}

func (o *offender) dial(hello bool) (ws *websocket.Conn, session string, err error) {
	dialer := websocket.Dialer{Subprotocols: []string{"orbit.events.v1"}, HandshakeTimeout: wait}
	ws, _, err = dialer.Dial(o.node.url+"/v1/events/connect", http.Header{"Authorization": {"Bearer " + o.tenant.Token}})
	if err != nil || !hello {
		return ws, "", err
	}
	if err := ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"protocol_version":"1","type":"events.hello","message_id":"%s","body":{"subscription_id":"%s","capacity":1}}`, anID, o.sub)); err != nil {
		return ws, "", err
	}
	var welcome frame
	return ws, session, errors.Join(readInto(ws, &welcome, &session))
}

func readInto(ws *websocket.Conn, f *frame, session *string) error {
	_ = ws.SetReadDeadline(time.Now().Add(4 * wait))
	err := ws.ReadJSON(f)
	*session = f.SessionID
	return err
}

// closed sends messages, each given as its kind and text, and wants this close.
func (o *offender) closed(code int, hello bool, messages ...any) error {
	ws, session, err := o.dial(hello)
	if err != nil {
		return err
	}
	defer ws.Close()
	for i := 0; i < len(messages); i += 2 {
		_ = ws.WriteMessage(messages[i].(int), []byte(strings.ReplaceAll(messages[i+1].(string), sessionHere, session))) // it may be closed already
	}
	_ = ws.SetReadDeadline(time.Now().Add(4 * wait))
	for {
		if _, _, err = ws.ReadMessage(); err != nil {
			break
		}
	}
	if !websocket.IsCloseError(err, code) {
		return fmt.Errorf("ended by %w, want close %d", err, code)
	}
	return nil
}

// answered wants an error frame, and the connection to go on.
func (o *offender) answered(code, text string) error {
	ws, session, err := o.dial(true)
	if err != nil {
		return err
	}
	defer ws.Close()
	for _, one := range []string{text, o.command("events.ping", "{}")} {
		if err := ws.WriteMessage(websocket.TextMessage, []byte(strings.ReplaceAll(one, sessionHere, session))); err != nil {
			return err
		}
	}
	var refusal, pong frame
	if err := errors.Join(readInto(ws, &refusal, &session), readInto(ws, &pong, &session)); err != nil {
		return err
	}
	if refusal.Error == nil || refusal.Error.Code != code || pong.Type != "ack" {
		return fmt.Errorf("answered %+v, then %+v", refusal, pong)
	}
	return nil
}

// commands sends that many bad commands on one connection, which answers each and goes on.
func (o *offender) commands(times int) {
	s := o.node.events(o.tenant.Token, o.sub, 1)
	for range times {
		s.raw(strings.Replace(o.command("event.nack", "{}"), sessionHere, s.session, 1))
		if f := s.expect("error"); f.Error.Code != "INVALID_ARGUMENT" {
			o.t.Fatalf("%+v", f)
		}
	}
	s.ping()
}

// What breaks RFC 6455 itself, or is far too large, is told so, however much the peer has sent behind it.
func TestBrokenWebSocketFrames(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db)
	header := func(first byte, size int) []byte {
		return binary.BigEndian.AppendUint64([]byte{first, 0x80 | 127}, uint64(size)) // masked, as a client's must be
	}
	behind := make([]byte, 4<<20)
	for name, c := range map[string]struct {
		bytes []byte
		close int
	}{
		"an unknown opcode":             {append(header(0x83, 4<<20), behind...), 1002},
		"a compressed frame":            {append(header(0xc1, 4<<20), behind...), 1002},
		"not masked":                    {append([]byte{0x81, 127, 0, 0, 0, 0, 0, 64, 0, 0}, behind...), 1002},
		"a continuation of nothing":     {append([]byte{0x80, 0x80, 0, 0, 0, 0}, behind...), 1002},
		"4 MiB":                         {append(header(0x81, 4<<20), behind...), 1009},
		"2^62 bytes promised":           {append(header(0x81, 1<<62), behind...), 1009},
		"a close frame of a close code": {append([]byte{0x88, 0x82, 0, 0, 0, 0, 0x03, 0xed}, behind...), 1002}, // 1005 is never sent
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, greeted := range []bool{true, false} {
				s := n.dial("/v1/events/connect", "orbit.events.v1", tenant.Token)
				s.t = t
				if greeted {
					s.send("events.hello", map[string]any{"subscription_id": sub.String(), "capacity": 1})
					s.expect("events.welcome")
				}
				wrote := make(chan error, 1)
				go func() {
					_, err := s.ws.NetConn().Write(c.bytes)
					wrote <- err
				}()
				s.expectClose(c.close)
				if err := <-wrote; err != nil { // a reset could have overtaken the close
					t.Error(err)
				}
			}
		})
	}
}

// Bare connects and upgrades that trickle in hold no seat, are ended by the server, and keep nobody out.
func TestSlowUpgrades(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	core, logs := observer.New(zap.InfoLevel)
	n := startNodeLogging(t, db, db.Gateway, zap.New(core), func(c *config) { c.EventConns = 1 })
	before := logs.Len()
	var open sync.WaitGroup
	for i := range 200 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "ws://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open.Go(func() {
			if i%2 == 0 { // the other half says nothing at all
				go func() {
					_, err := io.WriteString(conn, "GET /v1/events/connect HTTP/1.1\r\nX-Slow: ")
					for ; err == nil; _, err = io.WriteString(conn, "x") {
						time.Sleep(200 * time.Millisecond)
					}
				}()
			}
			_ = conn.SetReadDeadline(time.Now().Add(4 * wait))
			if _, err := io.Copy(io.Discard, conn); err != nil && errors.Is(err, net.ErrClosed) {
				t.Error(err)
			} else if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
				t.Error("the server holds on to an upgrade that never comes")
			}
		})
	}
	s := n.events(tenant.Token, sub, 1) // the only seat is free
	s.ping()
	open.Wait()
	s.ping()
	if lines := logs.Len() - before; lines > 5 {
		t.Errorf("%d lines of log", lines)
	}
}

// C1: deadlocks that the database breaks at a gateway's expense are run again and reach no client.
func TestDeadlocksReachNobody(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{MaxPending: 1000})
	const events = 400
	db.AppendEvents(t, tenant, events, `1`)
	var asked, broken atomic.Int64
	decide := func(query string) storetest.Fate {
		verb := strings.TrimSpace(query)
		locks := strings.HasPrefix(verb, "UPDATE") || strings.HasPrefix(verb, "INSERT") || strings.Contains(verb, "FOR UPDATE")
		if locks && asked.Add(1)%29 == 0 {
			broken.Add(1)
			return storetest.Deadlock
		}
		return storetest.Pass
	}
	var consumers sync.WaitGroup
	var acks atomic.Int64
	var stores []*store.Store
	for range 2 {
		p := db.NewProxy(t)
		stores = append(stores, p.Store)
		n := startNodeOn(t, db, p.Store)
		s := n.events(tenant.Token, sub, 8)
		p.Decide(decide)
		consumers.Go(func() {
			for acks.Load() < events {
				f, err := s.read(wait)
				switch {
				case err != nil:
					if acks.Load() < events {
						t.Errorf("after %d acks: %v", acks.Load(), err)
					}
					return
				case f.Type == "event.deliver":
					d := decode[delivered](t, f.Body)
					s.raw(fmt.Sprintf(`{"protocol_version":"1","type":"event.ack","message_id":"%s","session_id":"%s","body":{"delivery_id":"%s","epoch":"%s","lease_secret":"%s"}}`,
						ids.New(), s.session, d.Delivery.ID, d.Delivery.LeaseEpoch, d.LeaseSecret))
				case f.Type == "ack":
					if acks.Add(1) == events {
						_ = s.ws.SetReadDeadline(time.Now())
					}
				default:
					t.Errorf("%+v", f)
					return
				}
			}
		})
	}
	consumers.Wait()
	if retries := stores[0].Retries() + stores[1].Retries(); broken.Load() < 10 || retries < broken.Load() {
		t.Errorf("%d deadlocks, %d transactions run again", broken.Load(), retries)
	}
	t.Logf("%d deadlocks", broken.Load())
}
