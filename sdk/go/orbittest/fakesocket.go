package orbittest

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

const (
	eventsPath  = "/v1/events/connect"
	workersPath = "/v1/workers/connect"
	maxFrame    = 512 << 10
)

// frame is the envelope of both sockets (R6.1).
type frame struct {
	ProtocolVersion string          `json:"protocol_version"`
	Type            string          `json:"type"`
	MessageID       string          `json:"message_id"`
	ReplyTo         string          `json:"reply_to,omitempty"`
	SessionID       string          `json:"session_id,omitempty"`
	Body            json.RawMessage `json:"body,omitempty"`
	Error           json.RawMessage `json:"error,omitempty"`
}

// session is a connection after its hello; Fake.mu is held in all its methods.
type session interface {
	handle(f *frame) error
	gone()
}

// conn is one upgraded connection.
type conn struct {
	fake    *Fake
	ws      *websocket.Conn
	id      string // of the session
	hello   func(c *conn, f *frame) (session, []byte, error)
	first   string // the type of hello
	welcome string
	serving session
	closing bool

	mu   sync.Mutex
	out  []outgoing
	wake chan struct{}
	done chan struct{} // the reader has ended
}

// outgoing is a frame, or the close that ends the connection.
type outgoing struct {
	text   []byte
	code   int
	reason string
}

var closeCodes = map[orbit.Code]int{
	orbit.ErrUnauthenticated: orbit.CloseUnauthenticated, orbit.ErrPermissionDenied: orbit.ClosePermissionDenied, orbit.ErrNotFound: orbit.CloseNotFound,
	orbit.ErrResourceRetired: orbit.CloseGone, orbit.ErrEventHistoryExpired: orbit.CloseGone, orbit.ErrUnavailable: orbit.CloseTryAgainLater,
}

// upgrade checks what comes before the upgrade, in the contract's order (§6), and starts the connection.
func (f *Fake) upgrade(w http.ResponseWriter, r *http.Request, id string) {
	c := &conn{fake: f, id: orbit.NewID(), wake: make(chan struct{}, 1), done: make(chan struct{}), hello: greetConsumer, first: "events.hello", welcome: "events.welcome"}
	protocol := "orbit.events.v1"
	if r.URL.Path == workersPath {
		protocol, c.hello, c.first, c.welcome = "orbit.workers.v1", greetWorker, "worker.hello", "worker.welcome"
	}
	if err := f.door(r, protocol); err != nil {
		f.reply(w, id, 0, nil, err)
		return
	}
	up := websocket.Upgrader{Subprotocols: []string{protocol}, CheckOrigin: func(*http.Request) bool { return true }}
	ws, err := up.Upgrade(w, r, http.Header{"X-Request-ID": {id}})
	if err != nil {
		return // the upgrader has answered
	}
	ws.SetReadLimit(maxFrame)
	c.ws = ws
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = ws.Close()
		return
	}
	f.conns[c] = true
	f.running.Add(2)
	go c.write()
	go c.read()
}

func (f *Fake) door(r *http.Request, protocol string) error {
	if r.URL.RawQuery != "" {
		return refuse(orbit.ErrInvalidArgument, "query: this endpoint takes no query parameters")
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
			return refuse(orbit.ErrPermissionDenied, "Origin: connections from another site's pages are refused")
		}
	}
	if !websocket.IsWebSocketUpgrade(r) || !slices.Contains(websocket.Subprotocols(r), protocol) {
		return refuse(orbit.ErrProtocolRequired, "connect by WebSocket with Sec-WebSocket-Protocol: %s", protocol)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.admit(r)
}

// read takes frames to the end of the connection.
func (c *conn) read() {
	defer c.fake.running.Done()
	defer func() {
		close(c.done)
		_ = c.ws.Close()
		c.fake.mu.Lock()
		defer c.fake.mu.Unlock()
		delete(c.fake.conns, c)
		if c.serving != nil {
			c.serving.gone()
		}
	}()
	for {
		kind, text, err := c.ws.ReadMessage()
		if err != nil {
			return
		}
		c.fake.mu.Lock()
		c.take(kind, text)
		c.fake.mu.Unlock()
	}
}

func (c *conn) take(kind int, text []byte) {
	if c.closing {
		return
	}
	f := new(frame)
	wrong := kind != websocket.TextMessage || decode(text, f) != nil || f.ProtocolVersion != "1" || !idForm.MatchString(f.MessageID) || f.Body == nil || f.Error != nil
	switch {
	case wrong, c.serving == nil && (f.Type != c.first || f.SessionID != "" || f.ReplyTo != ""), c.serving != nil && f.SessionID != c.id:
		c.bye(orbit.ClosePolicy, "policy: malformed frame")
	case c.serving == nil:
		serving, welcome, err := c.hello(c, f)
		if err != nil {
			c.refuseHello(f, err)
			return
		}
		c.serving = serving
		c.send(c.welcome, f.MessageID, welcome)
		c.fake.pump()
	default:
		if err := c.serving.handle(f); err != nil {
			c.refuse(f.MessageID, err)
		}
		c.fake.pump()
	}
}

func (c *conn) send(kind, replyTo string, body []byte) {
	head := encode(frame{ProtocolVersion: "1", Type: kind, MessageID: orbit.NewKey(), ReplyTo: replyTo, SessionID: c.id})
	c.put(outgoing{text: with(head, "body", body)})
}

// refuse answers an error, and closes where its code says so; replyTo "" is nobody's request.
func (c *conn) refuse(replyTo string, err error) {
	c.sendError(replyTo, c.id, err)
	var e *orbit.Error
	if errors.As(err, &e) && closeCodes[e.Code] != 0 {
		c.bye(closeCodes[e.Code], string(e.Code))
	}
}

func (c *conn) refuseHello(f *frame, err error) {
	c.sendError(f.MessageID, "", err)
	code, reason := orbit.ClosePolicy, ""
	var e *orbit.Error
	if errors.As(err, &e) {
		reason = string(e.Code)
		if n := closeCodes[e.Code]; n != 0 {
			code = n
		}
	}
	c.bye(code, reason)
}

func (c *conn) sendError(replyTo, session string, err error) {
	head := encode(frame{ProtocolVersion: "1", Type: "error", MessageID: orbit.NewKey(), ReplyTo: replyTo, SessionID: session})
	c.put(outgoing{text: with(head, "error", errorText(err))})
}

func errorText(err error) []byte {
	code, message := orbit.ErrInternal, err.Error()
	var e *orbit.Error
	if errors.As(err, &e) {
		code, message = e.Code, e.Message
	}
	return encode(map[string]string{"code": string(code), "message": message})
}

// bye ends the connection after what was sent before.
func (c *conn) bye(code int, reason string) {
	if !c.closing {
		c.closing = true
		c.put(outgoing{code: code, reason: reason})
	}
}

func (c *conn) put(o outgoing) {
	c.mu.Lock()
	c.out = append(c.out, o)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write sends what was put, so that nobody waits for a slow peer under the fake's lock.
func (c *conn) write() {
	defer c.fake.running.Done()
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		c.mu.Lock()
		out := c.out
		c.out = nil
		c.mu.Unlock()
		for _, o := range out {
			_ = c.ws.SetWriteDeadline(time.Now().Add(5 * time.Second))
			if o.text != nil {
				if c.ws.WriteMessage(websocket.TextMessage, o.text) != nil {
					_ = c.ws.Close()
				}
				continue
			}
			_ = c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(o.code, o.reason), time.Now().Add(time.Second))
			select { // the peer answers the close, which ends the reader
			case <-c.done:
			case <-time.After(time.Second):
				_ = c.ws.Close()
			}
			return
		}
	}
}

// pump moves whatever can move now. It is called after every change and as time passes.
func (f *Fake) pump() {
	at := now()
	for _, q := range f.state.queues {
		f.lapse(q, at)
		f.assign(q, at)
		f.tell(q)
	}
	for _, s := range f.state.subscriptions {
		f.turn(s, at)
	}
}
