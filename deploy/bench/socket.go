package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// tenant is a namespace with an application of its own, as a consumer sees it.
type tenant struct {
	namespace, token string
	client           *orbit.Client
}

// tenant makes one beside the stack's first.
func (s *stack) tenant(ctx context.Context) (*tenant, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "orbit-management"), "bootstrap", "-o", "json", "--event-access", "--all-queues", "--namespace", "n-"+orbit.NewID())
	cmd.Env = append(os.Environ(), "ORBIT_DSN="+s.dsn)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	var made struct {
		NamespaceID string `json:"namespace_id"`
		Token       string `json:"token"`
	}
	if err := json.Unmarshal(out, &made); err != nil {
		return nil, err
	}
	client, err := orbit.NewClient(s.management, made.Token)
	return &tenant{made.NamespaceID, made.Token, client}, err
}

// queue makes a queue and subscriptions to all its events.
func (t *tenant) queue(ctx context.Context, subscriptions int) (queue string, subs []string, err error) {
	q, err := t.client.CreateQueue(ctx, orbit.NewKey(), orbit.CreateQueueRequest{Name: "q-" + orbit.NewID()})
	if err != nil {
		return "", nil, err
	}
	for range subscriptions {
		sub, err := t.client.CreateSubscription(ctx, orbit.NewKey(), orbit.CreateSubscriptionRequest{Name: "s-" + orbit.NewID(), QueueID: q.Queue.ID, MaxPending: 1000})
		if err != nil {
			return "", nil, err
		}
		subs = append(subs, sub.Subscription.ID)
	}
	return q.Queue.ID, subs, nil
}

// socket is a raw event connection: frames without the SDK's work around them.
type socket struct {
	ws      *websocket.Conn
	session string

	mu      sync.Mutex // one writer at a time
	pending map[string]chan struct{}
}

type frame struct {
	Type      string          `json:"type"`
	ReplyTo   string          `json:"reply_to"`
	SessionID string          `json:"session_id"`
	Body      json.RawMessage `json:"body"`
	Error     json.RawMessage `json:"error"`
}

type proof struct {
	Delivery struct {
		ID    string `json:"id"`
		Epoch string `json:"lease_epoch"`
	} `json:"delivery"`
	Event struct {
		Sequence string `json:"sequence"`
	} `json:"event"`
	Secret string `json:"lease_secret"`
}

const frameLimit = time.Minute // a bench on a busy machine is still to end

func (s *stack) open(t *tenant, subscription string, capacity int) (*socket, error) {
	dialer := websocket.Dialer{Subprotocols: []string{"orbit.events.v1"}, HandshakeTimeout: frameLimit, ReadBufferSize: 1024, WriteBufferSize: 1024}
	ws, _, err := dialer.Dial("ws"+strings.TrimPrefix(s.gateway, "http")+"/v1/events/connect", http.Header{"Authorization": {"Bearer " + t.token}}) //nolint:bodyclose // an upgrade has no body
	if err != nil {
		return nil, err
	}
	c := &socket{ws: ws, pending: map[string]chan struct{}{}}
	if _, err := c.send("events.hello", fmt.Sprintf(`{"subscription_id":%q,"capacity":%d}`, subscription, capacity)); err != nil {
		return nil, err
	}
	_ = ws.SetReadDeadline(time.Now().Add(frameLimit)) // a broken connection says so at the read
	var f frame
	if err := ws.ReadJSON(&f); err != nil || f.Type != "events.welcome" {
		return nil, fmt.Errorf("hello: %s %s %w", f.Type, f.Error, err)
	}
	_ = ws.SetReadDeadline(time.Time{})
	c.session = f.SessionID
	return c, nil
}

func (c *socket) send(frameType, body string) (id string, err error) {
	id = orbit.NewID()
	return id, c.write(id, frameType, body)
}

func (c *socket) write(id, frameType, body string) error {
	session := ""
	if c.session != "" {
		session = fmt.Sprintf(`,"session_id":%q`, c.session)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"protocol_version":"1","type":%q,"message_id":%q%s,"body":%s}`, frameType, id, session, body))
}

func (c *socket) ack(p proof) (string, error) { return c.send("event.ack", p.body()) }

func (p proof) body() string {
	return fmt.Sprintf(`{"delivery_id":%q,"epoch":%q,"lease_secret":%q}`, p.Delivery.ID, p.Delivery.Epoch, p.Secret)
}

// read calls back for every delivery and every answer until the connection ends.
func (c *socket) read(deliver func(proof), answered func()) error {
	for {
		var f frame
		if err := c.ws.ReadJSON(&f); err != nil {
			return err
		}
		if len(f.Error) > 0 {
			return errors.New(string(f.Error))
		}
		if f.Type == "event.deliver" {
			var p proof
			if err := json.Unmarshal(f.Body, &p); err != nil {
				return err
			}
			deliver(p)
			continue
		}
		c.mu.Lock()
		waiting := c.pending[f.ReplyTo]
		delete(c.pending, f.ReplyTo)
		c.mu.Unlock()
		if waiting != nil {
			close(waiting)
		} else if answered != nil {
			answered()
		}
	}
}

// timed sends a command and measures until its answer; read must be running.
func (c *socket) timed(frameType, body string) (time.Duration, error) {
	id, answer := orbit.NewID(), make(chan struct{})
	c.mu.Lock()
	c.pending[id] = answer
	c.mu.Unlock()
	began := time.Now()
	if err := c.write(id, frameType, body); err != nil {
		return 0, err
	}
	select {
	case <-answer:
		return time.Since(began), nil
	case <-time.After(frameLimit):
		return 0, fmt.Errorf("%s was not answered within %s", frameType, frameLimit)
	}
}
