package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envProcess) != "" { // this process is a gateway that a test may kill
		gatewayProcess()
		return
	}
	code := storetest.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

const wait = 10 * time.Second

// node is a gateway under test, on a loopback port, with the gateway user's grants.
type node struct {
	t    *testing.T
	url  string
	g    *gateway
	stop func() error
}

func startNode(t *testing.T, db *storetest.DB, change ...func(*config)) *node {
	t.Helper()
	return startNodeOn(t, db, db.Gateway, change...)
}

// startNodeOn takes another way into the database.
func startNodeOn(t *testing.T, db *storetest.DB, s *store.Store, change ...func(*config)) *node {
	t.Helper()
	return startNodeLogging(t, db, s, zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), change...)
}

// startNodeLogging takes a log of the test's own.
func startNodeLogging(t *testing.T, db *storetest.DB, s *store.Store, log *zap.Logger, change ...func(*config)) *node {
	t.Helper()
	cfg, err := parseConfig(map[string]string{"ORBIT_DSN": db.GatewayDSN})
	if err != nil {
		t.Fatal(err)
	}
	cfg.DrainTimeout = 2 * time.Second
	for _, c := range change {
		c(&cfg)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(cfg, s, log)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.serve(ctx, listener) }()
	n := &node{t: t, url: "ws://" + listener.Addr().String(), g: g}
	n.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(wait):
			t.Error("the gateway did not stop")
			return nil
		}
	})
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	})
	for !g.ready.Load() {
		time.Sleep(time.Millisecond)
	}
	return n
}

// socket is a raw client: it knows frames and nothing of the SDK.
type socket struct {
	t       *testing.T
	ws      *websocket.Conn
	session string
	frames  protocol // every frame is validated against its schema
	mu      sync.Mutex
	judged  map[string]error // what the schema says of the unanswered frames of a worker, by message id
}

type frame struct {
	ProtocolVersion string          `json:"protocol_version"`
	Type            string          `json:"type"`
	MessageID       string          `json:"message_id"`
	ReplyTo         string          `json:"reply_to,omitempty"`
	SessionID       string          `json:"session_id,omitempty"`
	Body            json.RawMessage `json:"body,omitempty"`
	Error           *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

func (n *node) dial(path string, frames protocol, token string) *socket {
	n.t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{string(frames)}, HandshakeTimeout: wait}
	ws, resp, err := dialer.Dial(n.url+path, http.Header{"Authorization": {"Bearer " + token}})
	if err != nil {
		n.t.Fatalf("dial: %v (%v)", err, resp)
	}
	s := &socket{t: n.t, ws: ws, frames: frames, judged: map[string]error{}}
	n.t.Cleanup(func() { _ = ws.Close() })
	return s
}

// events connects and says hello.
func (n *node) events(token string, subscription ids.ID, capacity int) *socket {
	n.t.Helper()
	s := n.dial("/v1/events/connect", "orbit.events.v1", token)
	s.send("events.hello", map[string]any{"subscription_id": subscription.String(), "capacity": capacity})
	s.session = s.expect("events.welcome").SessionID
	return s
}

// worker connects and says hello.
func (n *node) worker(token string, queue ids.ID, capacity int) *socket {
	n.t.Helper()
	s := n.dial("/v1/workers/connect", "orbit.workers.v1", token)
	s.send("worker.hello", map[string]any{"queue_id": queue.String(), "name": "w", "capacity": capacity})
	s.session = s.expect("worker.welcome").SessionID
	return s
}

func (s *socket) send(frameType string, body any) string {
	s.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	id := ids.New().String()
	text, err := json.Marshal(frame{ProtocolVersion: "1", Type: frameType, MessageID: id, SessionID: s.session, Body: raw})
	if err != nil {
		s.t.Fatal(err)
	}
	if s.frames == eventFrames {
		if err := describes(s.t, s.frames, "clientFrame", text); err != nil {
			s.t.Errorf("sent %s: %v", text, err)
		}
	}
	s.raw(string(text))
	return id
}

func (s *socket) raw(v any) {
	s.t.Helper()
	data, ok := v.(string)
	if !ok {
		b, err := json.Marshal(v)
		if err != nil {
			s.t.Fatal(err)
		}
		data = string(b)
	}
	s.judge(data)
	if err := s.ws.WriteMessage(websocket.TextMessage, []byte(data)); err != nil {
		s.t.Fatal(err)
	}
}

// next reads one frame.
func (s *socket) next() frame {
	s.t.Helper()
	f, err := s.read(wait)
	if err != nil {
		s.t.Fatalf("read: %v", err)
	}
	return f
}

func (s *socket) read(limit time.Duration) (frame, error) {
	_ = s.ws.SetReadDeadline(time.Now().Add(limit))
	var f frame
	_, data, err := s.ws.ReadMessage()
	if err != nil {
		return f, err
	}
	if err := describes(s.t, s.frames, "serverFrame", data); err != nil {
		s.t.Errorf("received %s: %v", data, err)
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, err
	}
	s.compare(f)
	return f, nil
}

// expect reads one frame of this type.
func (s *socket) expect(frameType string) frame {
	s.t.Helper()
	f := s.next()
	if f.Type != frameType {
		s.t.Fatalf("got %s %s %v, want %s", f.Type, f.Body, f.Error, frameType)
	}
	return f
}

// expectClose reads to the close and checks its code.
func (s *socket) expectClose(code int) *websocket.CloseError {
	s.t.Helper()
	for {
		_, err := s.read(wait)
		if err == nil {
			continue
		}
		closed, ok := err.(*websocket.CloseError) //nolint:errorlint // gorilla returns it bare
		if !ok || closed.Code != code {
			s.t.Fatalf("ended by %v, want close %d", err, code)
		}
		return closed
	}
}

// delivered is the body of event.deliver.
type delivered struct {
	Delivery struct {
		ID         string `json:"id"`
		EventID    string `json:"event_id"`
		Sequence   string `json:"sequence"`
		Revision   string `json:"revision"`
		State      string `json:"state"`
		LeaseEpoch string `json:"lease_epoch"`
		Attempts   int    `json:"attempts"`
	} `json:"delivery"`
	Event struct {
		ID       string          `json:"id"`
		Sequence string          `json:"sequence"`
		Type     string          `json:"type"`
		Snapshot json.RawMessage `json:"snapshot"`
	} `json:"event"`
	LeaseSecret string `json:"lease_secret"`
}

func (d delivered) proof() map[string]any {
	return map[string]any{"delivery_id": d.Delivery.ID, "epoch": d.Delivery.LeaseEpoch, "lease_secret": d.LeaseSecret}
}

func (s *socket) delivery() delivered {
	s.t.Helper()
	return decode[delivered](s.t, s.expect("event.deliver").Body)
}

func decode[T any](t *testing.T, raw json.RawMessage) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
