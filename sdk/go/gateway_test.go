package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testToken    = "orbit_88888888888888888888888888888888_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	testSub      = "22222222222222222222222222222222"
	testQueue    = "11111111111111111111111111111111"
	testSecret   = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	patience     = 20 * time.Second // a test that waits longer has failed
	testLease    = 30000
	testInterval = 15000
)

// gateway is a real server of one socket protocol; tests accept its connections and script them frame by
// frame.
type gateway struct {
	*httptest.Server
	peers chan *peer

	mu   sync.Mutex
	all  []*websocket.Conn // not yet seen off
	kept []*websocket.Conn
}

// seeOff reads what is left on every connection, so that a client's drain and goodbye are answered. Nothing
// else may read or write any more.
func (g *gateway) seeOff() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, ws := range g.all {
		go func() {
			for {
				_, text, err := ws.ReadMessage()
				if err != nil {
					return
				}
				var f frame
				if json.Unmarshal(text, &f) == nil && strings.HasSuffix(f.Type, ".drain") {
					_ = ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"protocol_version":"1","type":"ack","message_id":%q,"session_id":%q,"reply_to":%q,"body":{"draining":true}}`,
						randomHex(), f.SessionID, f.MessageID))
				}
			}
		}()
	}
	g.all = nil
}

func newGateway(t *testing.T) *gateway {
	g := &gateway{peers: make(chan *peer, 64)}
	up := websocket.Upgrader{Subprotocols: []string{"orbit.events.v1", "orbit.workers.v1"}}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+testToken || r.URL.RawQuery != "" {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		g.mu.Lock()
		g.all, g.kept = append(g.all, ws), append(g.kept, ws)
		g.mu.Unlock()
		g.peers <- &peer{t: t, ws: ws, path: r.URL.Path}
	}))
	t.Cleanup(func() {
		g.Close()
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, ws := range g.kept {
			_ = ws.Close()
		}
	})
	return g
}

// peer is the server's end of one connection.
type peer struct {
	t       *testing.T
	ws      *websocket.Conn
	path    string
	session string
	hello   frame
}

// accept waits for a client and reads its hello.
func (g *gateway) accept(t *testing.T) *peer {
	t.Helper()
	select {
	case p := <-g.peers:
		p.t = t
		p.hello = p.read()
		return p
	case <-time.After(patience):
		t.Fatal("no connection")
		return nil
	}
}

// open accepts a client and welcomes it; lease and interval are in milliseconds.
func (g *gateway) open(t *testing.T, lease, interval int) *peer {
	t.Helper()
	p := g.accept(t)
	p.session = randomHex()
	var hello struct{ Capacity int }
	p.into(p.hello, &hello)
	typ := map[string]string{"events.hello": "events.welcome", "worker.hello": "worker.welcome"}[p.hello.Type]
	p.reply(p.hello, typ, fmt.Sprintf(`{"session_id":%q,"subscription_id":%q,"queue_id":%q,"capacity":%d,"lease_duration_ms":%d,`+
		`"heartbeat_interval_ms":%d,"server_time":"2026-09-17T10:00:00Z","enabled":true}`,
		p.session, testSub, testQueue, hello.Capacity, lease, interval))
	return p
}

// capacity is what hello asked for.
func (p *peer) capacity() int {
	var hello struct{ Capacity int }
	p.into(p.hello, &hello)
	return hello.Capacity
}

func (p *peer) into(f frame, v any) {
	p.t.Helper()
	if err := json.Unmarshal(f.Body, v); err != nil {
		p.t.Fatalf("body %s: %v", f.Body, err)
	}
}

// read returns the client's next frame and checks its envelope.
func (p *peer) read() frame {
	p.t.Helper()
	f, err := p.tryRead()
	if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	return f
}

func (p *peer) tryRead() (frame, error) {
	_ = p.ws.SetReadDeadline(time.Now().Add(patience))
	_, text, err := p.ws.ReadMessage()
	if err != nil {
		return frame{}, err
	}
	var f frame
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return f, fmt.Errorf("frame %s: %w", text, err)
	}
	if f.ProtocolVersion != "1" || !isID(f.MessageID) || f.SessionID != p.session || f.ReplyTo != "" || f.Body == nil {
		return f, fmt.Errorf("malformed envelope %s", text)
	}
	return f, nil
}

// next returns the client's next frame, which must be of a type.
func (p *peer) next(typ string) frame {
	p.t.Helper()
	f := p.read()
	if f.Type != typ {
		p.t.Fatalf("got %s %s, want %s", f.Type, f.Body, typ)
	}
	return f
}

func (p *peer) write(typ, replyTo, member, value string) {
	p.t.Helper()
	text := fmt.Sprintf(`{"protocol_version":"1","type":%q,"message_id":%q,"session_id":%q,%q:%s`, typ, randomHex(), p.session, member, value)
	if replyTo != "" {
		text += fmt.Sprintf(`,"reply_to":%q`, replyTo)
	}
	if err := p.ws.WriteMessage(websocket.TextMessage, []byte(text+"}")); err != nil {
		p.t.Errorf("write: %v", err)
	}
}

func (p *peer) push(typ, body string) { p.t.Helper(); p.write(typ, "", "body", body) }
func (p *peer) reply(f frame, typ, body string) {
	p.t.Helper()
	p.write(typ, f.MessageID, "body", body)
}

func (p *peer) refuse(f frame, code Code) {
	p.t.Helper()
	p.write("error", f.MessageID, "error", fmt.Sprintf(`{"code":%q,"message":"no"}`, string(code)))
}

// bye ends the connection with a close frame, or without one for 1006.
func (p *peer) bye(code int, reason string) {
	if code != CloseAbnormal {
		_ = p.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(time.Second))
	}
	_ = p.ws.Close()
}

// closed reads until the client's close frame and returns its code.
func (p *peer) closed() int {
	p.t.Helper()
	for {
		f, err := p.tryRead()
		var closed *websocket.CloseError
		switch {
		case errors.As(err, &closed):
			return closed.Code
		case err != nil:
			p.t.Fatalf("want a close frame, got %v", err)
		default:
			p.t.Fatalf("want a close frame, got %s %s", f.Type, f.Body)
		}
	}
}

// background runs f until the test's end and returns its error.
func (g *gateway) background(t *testing.T, f func(context.Context) error) (stop context.CancelFunc, ended <-chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		result <- f(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		g.seeOff()
		<-finished
	})
	return cancel, result
}

// must waits for a value.
func must[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("timed out: %s", what)
		panic("unreachable")
	}
}

// id makes a readable id of 32 hex characters.
func id(n int) string { return fmt.Sprintf("%032x", n) }

// deliverBody is the document's event.deliver with the n-th ids.
func deliverBody(n int, epoch, result string) string {
	return fmt.Sprintf(`{"delivery":{"created_at":"2026-09-17T10:00:00Z","id":%q,"subscription_id":%q,"event_id":%q,"sequence":"13","revision":"2",`+
		`"state":"LEASED","available_at":"2026-09-17T10:00:00Z","lease_epoch":%q,"lease_until":"2026-09-17T10:00:30Z","attempts":1,"attempt_budget":20},`+
		`"event":%s,"lease_secret":%q}`, id(n), testSub, id(n+1000), epoch, eventText(n, result), testSecret)
}

func eventText(n int, result string) string {
	return fmt.Sprintf(`{"id":%q, "sequence":"13","type":"task.succeeded","aggregate_kind":"task","aggregate_id":%q,"aggregate_revision":"2",`+
		`"occurred_at":"2026-09-17T10:00:00.123456Z","details":{"state":"SUCCEEDED"},"snapshot":{"schema_version":1,"task_id":%q,"queue_id":%q,`+
		`"state":"SUCCEEDED","revision":"2","effect_uncertain":false,"result":%s}}`, id(n+1000), id(n+2000), id(n+2000), testQueue, result)
}

func ackBody(p Proof, deduplicated bool) string {
	return fmt.Sprintf(`{"delivery_id":%q,"event_id":%q,"epoch":%q,"acknowledged_at":"2026-09-17T10:00:01Z","deduplicated":%v}`,
		p.DeliveryID, id(1), p.Epoch, deduplicated)
}

// ack reads an event.ack and answers it.
func (p *peer) ack() Proof {
	p.t.Helper()
	f := p.next("event.ack")
	var proof Proof
	p.into(f, &proof)
	p.reply(f, "ack", ackBody(proof, false))
	return proof
}
