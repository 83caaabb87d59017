// Package workers is the worker socket: hello, assignments, outcomes (§9), with its own pool.
package workers

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/pipeline"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/upgrade"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/wire"
)

// Heartbeat is what welcome asks of the client.
const Heartbeat = 15 * time.Second

// MaxCapacity is the most tasks one connection may run at once.
const MaxCapacity = 256

// Server serves worker connections.
type Server struct {
	Store    *store.Store
	Pool     *Pool
	Outcomes *Outcomes
	Watch    *pipeline.Watch
	Log      *zap.Logger

	mu       sync.Mutex
	live     map[*session]bool
	draining bool
}

type session struct {
	server   *Server
	conn     *upgrade.Conn
	peer     upgrade.Peer
	id       ids.ID
	name     string
	capacity int
	queue    store.ReadyQueue
	place    *place
	underWay atomic.Int32
}

type hello struct {
	QueueID  *ids.ID `json:"queue_id"`
	Name     string  `json:"name"`
	Capacity *int    `json:"capacity"`
}

func (h *hello) validate() error {
	if h.QueueID == nil {
		return errs.Invalid("queue_id", "is required")
	}
	if err := ids.CheckName(h.Name); err != nil {
		return errs.Invalid("name", "%v", err)
	}
	if h.Capacity == nil || *h.Capacity < 1 || *h.Capacity > MaxCapacity {
		return errs.Invalid("capacity", "is required, 1…%d", MaxCapacity)
	}
	return nil
}

const helloTimeout = 8 * time.Second

// Serve runs one connection to its end.
func (s *Server) Serve(ctx context.Context, conn *upgrade.Conn, peer upgrade.Peer) {
	frame, ok := conn.Greet("worker.hello")
	if !ok {
		return
	}
	sess, q, err := s.open(ctx, conn, peer, &frame)
	if err != nil {
		conn.RefuseHello(s.Log, peer, &frame, err)
		return
	}
	conn.Send(sess.welcome(&frame, q))
	sess.attach()
	defer sess.detach()
	err = conn.Run(sess)
	s.Log.Debug("worker connection ended", zap.Stringer("session_id", sess.id), zap.Stringer("request_id", peer.RequestID), zap.Error(err))
}

func (s *Server) open(ctx context.Context, conn *upgrade.Conn, peer upgrade.Peer, frame *wire.Frame) (*session, *queue.Queue, error) {
	var h hello
	if err := frame.Decode(&h); err != nil {
		return nil, nil, err
	}
	if err := h.validate(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	q, err := s.Store.GetQueue(ctx, peer.Caller, *h.QueueID)
	if err == nil {
		err = q.Refuse()
	}
	if err != nil {
		return nil, nil, err
	}
	return &session{
		server: s, conn: conn, peer: peer, id: ids.New(), name: h.Name, capacity: *h.Capacity,
		queue: store.ReadyQueue{NamespaceID: peer.Caller.NamespaceID, QueueID: q.ID},
	}, q, nil
}

func (s *session) welcome(frame *wire.Frame, q *queue.Queue) []byte {
	b := wire.Open(make([]byte, 0, 512), "worker.welcome", &frame.MessageID, &s.id)
	b = append(b, `{"session_id":`...)
	b = wire.AppendID(b, s.id)
	b = append(b, `,"queue_id":`...)
	b = wire.AppendID(b, q.ID)
	b = append(b, `,"capacity":`...)
	b = wire.AppendInt(b, s.capacity)
	b = append(b, `,"lease_duration_ms":`...)
	b = wire.AppendInt(b, q.LeaseDurationMS)
	b = append(b, `,"heartbeat_interval_ms":`...)
	b = wire.AppendInt(b, int(Heartbeat/time.Millisecond))
	b = append(b, `,"server_time":`...)
	b = wire.AppendTime(b, time.Now())
	b = append(b, `,"paused":`...)
	b = wire.AppendBool(b, q.Paused)
	return wire.Close(append(b, '}'))
}

func (s *session) attach() {
	s.place = s.server.Pool.Attach(s)
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
}

func (s *session) detach() {
	s.server.mu.Lock()
	delete(s.server.live, s)
	s.server.mu.Unlock()
	s.server.Watch.Remove(s.id)
	s.server.Pool.Detach(s)
}

// recheck ends the session when its credential no longer carries it.
func (s *session) recheck(caller *access.Caller) {
	switch {
	case caller == nil:
		s.fail(errs.New(errs.Unauthenticated, "the credential or its secret was revoked"), nil)
	case caller.Require(access.WorkersExecute) != nil:
		s.fail(caller.Require(access.WorkersExecute), nil)
	case !caller.MayUse(s.queue.QueueID):
		s.fail(errs.New(errs.NotFound, "the queue left the credential's scope"), nil)
	}
}

// Drain closes every connection with 1012 once its outcomes under way are answered. Running
// attempts go on in the workers, which report them elsewhere with the same proof.
func (s *Server) Drain(ctx context.Context) {
	s.Outcomes.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for sess := range s.live {
		sess.conn.Close(wire.CloseRestart, "service restart")
	}
}
