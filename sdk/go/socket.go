package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	writeLimit = 5 * time.Second // one frame's write (R6.6)
	closeWait  = time.Second     // for the peer's close frame after ours
)

// socket is one upgraded connection: one reader goroutine, serialised writes, requests matched to answers
// by reply_to. It ends exactly once; done is closed then and err says why.
type socket struct {
	ws        *websocket.Conn
	beneath   *corkable
	push      func(*frame) error // frames that answer nothing, in order; on the reader, must not block; an error ends the socket
	done      chan struct{}
	sessionID string

	writeMu sync.Mutex
	unsent  [][]byte // written by whoever is writing now
	writing bool

	mu      sync.Mutex
	waiting map[string]chan *frame // by message id
	refused *Error                 // the last error frame that answered nothing, or was final
	err     error
}

// openSocket dials and starts the reader; the caller then says hello.
func openSocket(ctx context.Context, e endpoint, push func(*frame) error) (*socket, error) {
	ws, beneath, err := e.dial(ctx)
	if err != nil {
		return nil, err
	}
	s := &socket{ws: ws, beneath: beneath, push: push, done: make(chan struct{}), waiting: map[string]chan *frame{}}
	ws.SetReadLimit(maxFrame)
	go s.read()
	return s, nil
}

// hello sends the first frame and decodes the welcome into w; on any failure the socket is closed.
func (s *socket) hello(ctx context.Context, typ string, body []byte, w any) error {
	reply, err := s.call(ctx, typ, body)
	if err == nil {
		err = json.Unmarshal(reply, w)
	}
	if err != nil {
		s.close()
	}
	return err
}

// call sends a request and returns the body of its answer; an error frame is an *Error, the end of the
// connection its *CloseError. When ctx ends first the request may have been executed.
func (s *socket) call(ctx context.Context, typ string, body []byte) (json.RawMessage, error) {
	wait, err := s.send(typ, body)
	if err != nil {
		return nil, err
	}
	return wait(ctx)
}

// send writes a request at once and returns how to wait for its answer, which must be called.
func (s *socket) send(typ string, body []byte) (func(context.Context) (json.RawMessage, error), error) {
	id, answered := randomHex(), make(chan *frame, 1)
	text, err := encodeFrame(typ, id, s.sessionID, body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.waiting[id] = answered
	s.mu.Unlock()
	forget := func() {
		s.mu.Lock()
		delete(s.waiting, id)
		s.mu.Unlock()
	}
	if err := s.write(text); err != nil {
		forget()
		return nil, err
	}
	return func(ctx context.Context) (json.RawMessage, error) {
		defer forget()
		select {
		case f := <-answered:
			return f.Body, f.err()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.done:
		}
		select {
		case f := <-answered: // it came just before the end
			return f.Body, f.err()
		default:
			return nil, s.err
		}
	}, nil
}

// write sends one frame; a write that fails or takes longer than writeLimit ends the connection. While
// another goroutine is writing, that one sends this frame with its next write.
func (s *socket) write(text []byte) error {
	s.mu.Lock()
	ended := s.err
	s.mu.Unlock()
	if ended != nil {
		return ended
	}
	s.writeMu.Lock()
	s.unsent = append(s.unsent, text)
	if s.writing {
		s.writeMu.Unlock()
		return nil
	}
	s.writing = true
	var err error
	for err == nil && len(s.unsent) > 0 {
		frames := s.unsent
		s.unsent = nil
		s.writeMu.Unlock()
		err = s.writeAll(frames)
		s.writeMu.Lock()
	}
	s.writing = false
	s.writeMu.Unlock()
	if errors.Is(err, websocket.ErrCloseSent) {
		return ErrConnClosed
	}
	if err != nil {
		return s.fail(&CloseError{Code: CloseAbnormal, Reason: "write: " + err.Error(), cause: err})
	}
	return nil
}

// writeAll sends the frames in as few system calls as they fit in.
func (s *socket) writeAll(frames [][]byte) error {
	if len(frames) > 1 {
		s.beneath.cork()
	}
	_ = s.ws.SetWriteDeadline(time.Now().Add(writeLimit))
	for _, text := range frames {
		if err := s.ws.WriteMessage(websocket.TextMessage, text); err != nil {
			return err
		}
	}
	return s.beneath.uncork()
}

// heartbeat calls ping every interval until the socket ends; no answer within an interval ends it.
func (s *socket) heartbeat(interval time.Duration, ping func(context.Context) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), interval)
		if err := ping(ctx); errors.Is(err, context.DeadlineExceeded) {
			_ = s.fail(&CloseError{Code: CloseAbnormal, Reason: "no answer to a ping", cause: err})
		}
		cancel()
	}
}

// close says goodbye (1000), lets the reader deliver what the peer had sent, for at most closeWait, and
// returns when the reader has ended.
func (s *socket) close() {
	s.mu.Lock()
	if s.err == nil {
		s.err = ErrConnClosed
	}
	s.mu.Unlock()
	bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	if s.ws.WriteControl(websocket.CloseMessage, bye, time.Now().Add(closeWait)) == nil {
		t := time.NewTimer(closeWait)
		defer t.Stop()
		select {
		case <-s.done:
		case <-t.C:
		}
	}
	_ = s.ws.Close()
	<-s.done
}

// fail ends the connection at once; the first reason stays.
func (s *socket) fail(reason *CloseError) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = reason
	}
	_ = s.ws.Close()
	return s.err
}

// read is the one reader; it ends the socket.
func (s *socket) read() {
	defer close(s.done)
	for {
		kind, text, err := s.ws.ReadMessage()
		if err != nil {
			_ = s.fail(s.closeReason(err))
			return
		}
		f := new(frame)
		if kind != websocket.TextMessage || json.Unmarshal(text, f) != nil || f.ProtocolVersion != "1" {
			_ = s.fail(&CloseError{Code: CloseAbnormal, Reason: "the peer sent a malformed frame"})
			return
		}
		if err := s.deliver(f); err != nil {
			_ = s.fail(&CloseError{Code: CloseAbnormal, Reason: "the peer sent a malformed " + f.Type, cause: err})
			return
		}
	}
}

// deliver hands a frame to the request that it answers, or to push.
func (s *socket) deliver(f *frame) error {
	s.mu.Lock()
	answered := s.waiting[f.ReplyTo]
	delete(s.waiting, f.ReplyTo)
	var e *Error
	if errors.As(f.err(), &e) {
		s.refused = e
	}
	s.mu.Unlock()
	switch {
	case answered != nil:
		answered <- f
	case f.Type != "error" && f.ReplyTo == "":
		return s.push(f)
	}
	return nil
}

// closeReason turns the reader's error into how the socket ended.
func (s *socket) closeReason(err error) *CloseError {
	var frame *websocket.CloseError
	if !errors.As(err, &frame) || frame.Code == websocket.CloseAbnormalClosure {
		return &CloseError{Code: CloseAbnormal, Reason: "read: " + err.Error(), cause: err}
	}
	reason := &CloseError{Code: frame.Code, Reason: frame.Text, cause: err}
	s.mu.Lock()
	if s.refused != nil && string(s.refused.Code) == frame.Text {
		reason.Err = s.refused
	}
	s.mu.Unlock()
	return reason
}
