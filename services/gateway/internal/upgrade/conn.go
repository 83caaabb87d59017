package upgrade

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/wire"
)

// Limits are one connection's guards (R6.7).
type Limits struct {
	Hello      time.Duration // for the first frame
	Idle       time.Duration // without a valid client frame
	Write      time.Duration // for one write
	ReadQueue  int           // frames read and not yet handled
	WriteQueue int           // frames waiting from which on nothing more is claimed for it
}

// Conn is an upgraded connection. Send and Close may be called from any goroutine and never block;
// one goroutine reads and one, Run's, handles and writes, so a slow peer holds up only itself.
type Conn struct {
	ws     *websocket.Conn
	limits Limits
	in     chan []byte
	wake   chan struct{}
	done   chan struct{} // the peer's side has ended or Run has

	mu      sync.Mutex
	out     [][]byte
	closing *closing
	readErr error
}

type closing struct {
	code   int
	reason string
}

// Handler takes a connection's frames, one at a time.
type Handler interface {
	Handle(data []byte)
	Blocked() bool // true: read no further frame until the next Send
}

func newConn(ws *websocket.Conn, limits Limits) *Conn {
	ws.SetReadLimit(wire.MaxFrame) // gorilla answers 1009 beyond it
	return &Conn{ws: ws, limits: limits, in: make(chan []byte, limits.ReadQueue), wake: make(chan struct{}, 1), done: make(chan struct{})}
}

var errBinary = errors.New("binary frame")

func (c *Conn) read(limit time.Duration) ([]byte, error) {
	if err := c.ws.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	kind, data, err := c.ws.ReadMessage()
	if err == nil && kind != websocket.TextMessage {
		err = errBinary
	}
	return data, err
}

// Send queues a frame.
func (c *Conn) Send(frame []byte) {
	c.mu.Lock()
	if c.closing == nil {
		c.out = append(c.out, frame)
	}
	c.mu.Unlock()
	c.poke()
}

// Close ends the connection with this code once all queued frames are written. The first call wins,
// and only it returns true.
func (c *Conn) Close(code int, reason string) (first bool) {
	c.mu.Lock()
	if first = c.closing == nil; first {
		c.closing = &closing{code, reason}
	}
	c.mu.Unlock()
	c.poke()
	return first
}

func (c *Conn) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Congested reports that frames pile up because the peer reads too slowly.
func (c *Conn) Congested() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.out) >= c.limits.WriteQueue || c.closing != nil
}

// Run handles and writes until the connection has ended, and says why.
func (c *Conn) Run(h Handler) error {
	go c.readAll()
	for {
		if ended, err := c.flush(); ended {
			return err
		}
		in := c.in
		if h.Blocked() {
			in = nil
		}
		select {
		case data, ok := <-in:
			if !ok {
				return c.readEnded()
			}
			h.Handle(data)
		case <-c.wake:
		}
	}
}

// readAll moves frames from the peer to the queue; a full queue stops it, and TCP stops the peer.
func (c *Conn) readAll() {
	defer close(c.in)
	for {
		data, err := c.read(c.limits.Idle)
		if err != nil {
			c.mu.Lock()
			c.readErr = err
			c.mu.Unlock()
			return
		}
		select {
		case c.in <- data:
		case <-c.done:
			return
		}
	}
}

// readEnded says goodbye to a peer that broke a rule; one that closed or vanished needs none.
func (c *Conn) readEnded() error {
	c.mu.Lock()
	err := c.readErr
	c.mu.Unlock()
	c.sayWhy(err, fmt.Sprintf("no frame for %s", c.limits.Idle))
	return err
}

func (c *Conn) sayWhy(err error, late string) {
	var timeout net.Error
	switch {
	case errors.Is(err, errBinary):
		c.goodbye(closing{wire.ClosePolicy, "policy: binary frames are not taken"})
	case errors.As(err, &timeout) && timeout.Timeout():
		c.goodbye(closing{wire.ClosePolicy, "policy: " + late})
	}
	c.linger() // the library has answered an oversize or broken frame itself
}

// maxLinger bounds what a peer may still send after we have said why we close.
const maxLinger = 16 << 20

// linger takes what the peer has already sent: closing a socket with unread data would reset it, and
// the reset can overtake our close frame. A peer that has closed its side costs nothing.
func (c *Conn) linger() {
	conn := c.ws.NetConn()
	if err := conn.SetReadDeadline(time.Now().Add(closeGrace)); err != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, conn, maxLinger) // ends when the peer closes, or with the grace
}

// flush writes what is queued; ended is true when the connection is over.
func (c *Conn) flush() (ended bool, err error) {
	for {
		c.mu.Lock()
		out, closing := c.out, c.closing
		c.out = nil
		c.mu.Unlock()
		if len(out) > 0 {
			if err := c.writeAll(out); err != nil {
				return true, err
			}
			continue
		}
		if closing != nil {
			c.goodbye(*closing)
			return true, nil
		}
		return false, nil
	}
}

// writeAll sends several frames in as few system calls as they fit in.
func (c *Conn) writeAll(frames [][]byte) error {
	if conn, ok := c.ws.NetConn().(*corkable); ok && len(frames) > 1 {
		conn.cork()
		for _, frame := range frames {
			if err := c.write(frame); err != nil {
				return err
			}
		}
		return conn.uncork()
	}
	for _, frame := range frames {
		if err := c.write(frame); err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) write(frame []byte) error {
	if err := c.ws.SetWriteDeadline(time.Now().Add(c.limits.Write)); err != nil {
		return err
	}
	return c.ws.WriteMessage(websocket.TextMessage, frame)
}

const (
	closeGrace = time.Second // for the peer to answer our close
	maxReason  = 123         // bytes; what a close frame can hold
)

func (c *Conn) goodbye(g closing) {
	if len(g.reason) > maxReason {
		g.reason = g.reason[:maxReason]
	}
	message := websocket.FormatCloseMessage(g.code, g.reason)
	if err := c.ws.WriteControl(websocket.CloseMessage, message, time.Now().Add(c.limits.Write)); err != nil {
		return // the peer is gone; abandon frees the socket
	}
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	for {
		select {
		case _, ok := <-c.in: // let the reader come to the peer's close
			if !ok {
				return
			}
		case <-grace.C:
			return
		}
	}
}

// abandon frees the socket whatever state it is in.
func (c *Conn) abandon() {
	close(c.done)
	_ = c.ws.Close() // nothing is left to say
}
