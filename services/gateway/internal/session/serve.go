// Package session is one connection of the event socket: hello, deliveries, acks, pings, and the
// rules that end it (§6).
package session

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/hub"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/pipeline"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/upgrade"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/wire"
)

// Heartbeat is what welcome asks of the client; four missed ones close the connection.
const Heartbeat = 15 * time.Second

// window is how many commands of one connection may be under way.
const window = 64

// Server serves event connections.
type Server struct {
	Store   *store.Store
	Hub     *hub.Hub
	Claims  *pipeline.Claims
	Settle  *pipeline.Settlements
	Scanner *pipeline.Scanner
	Watch   *pipeline.Watch
	Log     *zap.Logger

	mu       sync.Mutex
	live     map[*session]bool
	draining bool
}

// session is a connection after its hello.
type session struct {
	server     *Server
	conn       *upgrade.Conn
	peer       upgrade.Peer
	id         ids.ID
	queue      ids.ID
	sub        *hub.Sub
	underWay   atomic.Int32
	generation *ids.ID // of the log, for a session that asked for it (R6.10)
}

type hello struct {
	SubscriptionID *ids.ID  `json:"subscription_id"`
	Capacity       *int     `json:"capacity"`
	Extensions     []string `json:"extensions"`
}

// maxExtensions bounds a list whose unknown names are passed over.
const maxExtensions = 32

func (h *hello) validate() error {
	if h.SubscriptionID == nil {
		return errs.Invalid("subscription_id", "is required")
	}
	if len(h.Extensions) > maxExtensions {
		return errs.Invalid("extensions", "must have at most %d items", maxExtensions)
	}
	if h.Capacity == nil || *h.Capacity < 1 || *h.Capacity > delivery.MaxCapacity {
		return errs.Invalid("capacity", "is required, 1…%d", delivery.MaxCapacity)
	}
	return nil
}

// helloTimeout bounds the look at the subscription.
const helloTimeout = 8 * time.Second

// Serve runs one connection to its end.
func (s *Server) Serve(ctx context.Context, conn *upgrade.Conn, peer upgrade.Peer) {
	var sess *session
	upgrade.Apart(func() { sess = s.greet(ctx, conn, peer) })
	if sess == nil {
		return
	}
	defer sess.detach()
	err := conn.Run(sess)
	s.Log.Debug("event connection ended", zap.Stringer("session_id", sess.id), zap.Stringer("request_id", peer.RequestID), zap.Error(err))
}

// greet takes the hello and answers it; nil if the connection has ended instead.
func (s *Server) greet(ctx context.Context, conn *upgrade.Conn, peer upgrade.Peer) *session {
	frame, ok := conn.Greet("events.hello")
	if !ok {
		return nil
	}
	var h hello
	sess, sub, err := s.open(ctx, conn, peer, &frame, &h)
	if err != nil {
		conn.RefuseHello(s.Log, peer, &frame, err)
		return nil
	}
	conn.Send(sess.welcome(&frame, &h, sub))
	sess.attach(*h.Capacity, sub)
	return sess
}

// open checks the hello: owner and queue scope of the subscription (R6.2).
func (s *Server) open(ctx context.Context, conn *upgrade.Conn, peer upgrade.Peer, frame *wire.Frame, h *hello) (*session, *subscription.Subscription, error) {
	if err := frame.Decode(h); err != nil {
		return nil, nil, err
	}
	if err := h.validate(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	streams, now, err := s.Store.Streams(ctx, []ids.ID{peer.Caller.NamespaceID}) // before the subscription: a change after it is scanned
	if err != nil {
		return nil, nil, err
	}
	if len(streams) != 1 {
		return nil, nil, fmt.Errorf("namespace %s has no result stream", peer.Caller.NamespaceID)
	}
	sub, err := s.Store.GetSubscription(ctx, peer.Caller, *h.SubscriptionID)
	if err == nil {
		err = sub.Refuse()
	}
	if err != nil {
		return nil, nil, err
	}
	s.Hub.Introduce(streams[0], now)
	sess := &session{server: s, conn: conn, peer: peer, id: ids.New(), queue: sub.QueueID}
	if slices.Contains(h.Extensions, "generation") {
		sess.generation = &streams[0].Generation
	}
	return sess, sub, nil
}

func (s *session) welcome(frame *wire.Frame, h *hello, sub *subscription.Subscription) []byte {
	b := wire.Open(make([]byte, 0, 512), "events.welcome", &frame.MessageID, &s.id)
	b = append(b, `{"session_id":`...)
	b = wire.AppendID(b, s.id)
	b = append(b, `,"subscription_id":`...)
	b = wire.AppendID(b, sub.ID)
	b = append(b, `,"capacity":`...)
	b = wire.AppendInt(b, *h.Capacity)
	b = append(b, `,"lease_duration_ms":`...)
	b = wire.AppendInt(b, int(delivery.LeaseDuration/time.Millisecond))
	b = append(b, `,"heartbeat_interval_ms":`...)
	b = wire.AppendInt(b, int(Heartbeat/time.Millisecond))
	b = append(b, `,"server_time":`...)
	b = wire.AppendTime(b, s.server.Hub.Now())
	b = append(b, `,"enabled":`...)
	b = wire.AppendBool(b, sub.Enabled)
	if s.generation != nil {
		b = append(b, `,"generation":`...)
		b = wire.AppendID(b, *s.generation)
	}
	return wire.Close(append(b, '}'))
}

func (s *session) attach(capacity int, sub *subscription.Subscription) {
	key := hub.Key{Namespace: s.peer.Caller.NamespaceID, Subscription: sub.ID}
	s.sub = s.server.Hub.Attach(key, s.peer.Caller.ApplicationID, sub.Enabled, &hub.Member{
		SessionID: s.id, Capacity: capacity, Deliver: s.deliver, Congested: s.conn.Congested, Fail: func(err error) { s.fail(err, nil) },
	})
	s.server.Watch.Add(s.id, pipeline.Watched{
		Secret: store.SecretKey{Credential: s.peer.Caller.CredentialID, Digest: s.peer.Digest}, Check: s.recheck,
	})
	s.server.mu.Lock()
	if s.server.live == nil {
		s.server.live = map[*session]bool{}
	}
	s.server.live[s] = true
	draining := s.server.draining
	s.server.mu.Unlock()
	if draining { // its hello came after the node had begun to stop
		s.conn.Close(wire.CloseRestart, "service restart")
	}
	s.server.Claims.Offer(s.sub)
}

func (s *session) detach() {
	s.server.mu.Lock()
	delete(s.server.live, s)
	s.server.mu.Unlock()
	s.server.Watch.Remove(s.id)
	s.server.Hub.Detach(s.sub.Key, s.id)
}

// recheck ends the session when its credential no longer carries it (§4, R6.6).
func (s *session) recheck(caller *access.Caller) {
	switch {
	case caller == nil:
		s.fail(errs.New(errs.Unauthenticated, "the credential or its secret was revoked"), nil)
	case caller.Require(access.EventsConsume) != nil:
		s.fail(caller.Require(access.EventsConsume), nil)
	case !caller.MayUse(s.queue):
		s.fail(errs.New(errs.NotFound, "the subscription's queue left the credential's scope"), nil)
	}
}

// Drain closes every connection with 1012: at once if it holds nothing un-acked, at the latest when
// ctx ends. Before it, claiming must have stopped (R6.11).
func (s *Server) Drain(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s.mu.Lock()
		live := make([]*session, 0, len(s.live))
		for sess := range s.live {
			live = append(live, sess)
		}
		s.mu.Unlock()
		if len(live) == 0 {
			return
		}
		late := ctx.Err() != nil
		for _, sess := range live {
			if late || sess.sub.Holds(sess.id) == 0 && sess.underWay.Load() == 0 {
				sess.conn.Close(wire.CloseRestart, "service restart")
			}
		}
		if late {
			return
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
