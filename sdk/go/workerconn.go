package orbit

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// WorkerOptions says whose tasks to execute.
type WorkerOptions struct {
	URL          string // a gateway's base, like https://orbit.example.com; also http, ws, wss
	Token        string // orbit_<credential id>_<secret> with workers:execute
	QueueID      string // 32 hex
	Name         string // 1–128 ASCII (R1.6); names the worker in attempts
	Capacity     int    // 1–256 (0: 1): how many attempts the connection may hold
	InsecureHTTP bool   // allow a token over plain http to other hosts than loopback
	Transport    Transport
	OnCancel     func(CancelNotice) // runs on the reader: must not block
}

// WorkerWelcome is the gateway's answer to hello.
type WorkerWelcome struct {
	SessionID         string
	QueueID           string
	Capacity          int
	LeaseDuration     time.Duration
	HeartbeatInterval time.Duration
	ServerTime        time.Time
	Paused            bool
}

// CancelNotice asks for an attempt to be stopped; the worker's answer decides (R8.5).
type CancelNotice struct {
	AttemptID string `json:"attempt_id"`
	TaskID    string `json:"task_id"`
	Reason    string `json:"reason"`
}

// WorkerConn is one worker connection. It pings by itself every HeartbeatInterval but renews nothing:
// [Worker] does, and reconnects. Its methods may be called from many goroutines.
type WorkerConn struct {
	Welcome WorkerWelcome

	sock     *socket
	box      *mailbox[*Assignment]
	onCancel func(CancelNotice)
	beater   sync.WaitGroup
}

// DialWorker connects and says hello; ctx and Transport.HandshakeTimeout bound only this. A refusal is an
// *Error (before the upgrade with HTTPStatus) or a *CloseError.
func DialWorker(ctx context.Context, o WorkerOptions) (*WorkerConn, error) {
	if o.Capacity == 0 {
		o.Capacity = 1
	}
	if !isID(o.QueueID) {
		return nil, invalid("queue id: must be 32 lowercase hex characters")
	}
	if o.Capacity < 1 || o.Capacity > 256 {
		return nil, invalid("capacity: must be 1–256")
	}
	ctx, cancel := context.WithTimeout(ctx, o.Transport.handshakeTimeout())
	defer cancel()
	c := &WorkerConn{box: newMailbox[*Assignment](), onCancel: o.OnCancel}
	var err error
	c.sock, err = openSocket(ctx, endpoint{base: o.URL, token: o.Token, path: "/v1/workers/connect",
		subprotocol: "orbit.workers.v1", insecure: o.InsecureHTTP, transport: o.Transport}, c.receive)
	if err != nil {
		return nil, err
	}
	var hello object
	hello.put("queue_id", o.QueueID)
	hello.put("name", o.Name)
	hello.put("capacity", o.Capacity)
	if err := c.hello(ctx, hello.done()); err != nil {
		return nil, err
	}
	c.beater.Add(1)
	go func() {
		defer c.beater.Done()
		c.sock.heartbeat(c.Welcome.HeartbeatInterval, func(ctx context.Context) error {
			_, err := c.Ping(ctx)
			return err
		})
	}()
	return c, nil
}

func (c *WorkerConn) hello(ctx context.Context, body []byte) error {
	var wire struct {
		SessionID           string    `json:"session_id"`
		QueueID             string    `json:"queue_id"`
		Capacity            int       `json:"capacity"`
		LeaseDurationMS     int64     `json:"lease_duration_ms"`
		HeartbeatIntervalMS int64     `json:"heartbeat_interval_ms"`
		ServerTime          time.Time `json:"server_time"`
		Paused              bool      `json:"paused"`
	}
	if err := c.sock.hello(ctx, "worker.hello", body, &wire); err != nil {
		return err
	}
	c.sock.sessionID = wire.SessionID
	c.Welcome = WorkerWelcome{
		SessionID: wire.SessionID, QueueID: wire.QueueID, Capacity: wire.Capacity,
		LeaseDuration: millis(wire.LeaseDurationMS, 30*time.Second), HeartbeatInterval: millis(wire.HeartbeatIntervalMS, 15*time.Second),
		ServerTime: wire.ServerTime, Paused: wire.Paused,
	}
	return nil
}

// Receive waits for the next assignment. After the connection ended it returns what had arrived, then the
// *CloseError, or ErrConnClosed after Close.
func (c *WorkerConn) Receive(ctx context.Context) (*Assignment, error) {
	return c.box.take(ctx, c.sock)
}

// Ping returns the server's time and whether the queue is paused.
func (c *WorkerConn) Ping(ctx context.Context) (WorkerPong, error) {
	var pong WorkerPong
	err := c.call(ctx, "worker.ping", []byte("{}"), &pong)
	return pong, err
}

// Drain asks for no more assignments on this connection. When it returns nil, all that will ever come has
// arrived for Receive; everything else goes on. An older server refuses with ErrInvalidArgument, and
// nothing has changed.
func (c *WorkerConn) Drain(ctx context.Context) error {
	_, err := c.sock.call(ctx, "worker.drain", []byte("{}"))
	return err
}

// WorkerPong answers a ping.
type WorkerPong struct {
	ServerTime time.Time `json:"server_time"`
	Paused     bool      `json:"paused"`
}

// Done is closed when the connection has ended.
func (c *WorkerConn) Done() <-chan struct{} { return c.sock.done }

// Close says goodbye and returns when the connection has ended, after at most two seconds. Attempts stay
// leased: their outcomes can be reported on another connection.
func (c *WorkerConn) Close() {
	c.sock.close()
	c.beater.Wait()
}

// receive runs on the reader.
func (c *WorkerConn) receive(f *frame) error {
	switch f.Type {
	case "task.assign":
		a, err := decodeAssignment(f.Body)
		if err != nil {
			return err
		}
		c.box.put(a, func(old *Assignment) bool {
			return old.Attempt.ID == a.Attempt.ID && newer(a.Attempt.Epoch, old.Attempt.Epoch)
		})
	case "attempt.cancel":
		var notice CancelNotice
		if err := json.Unmarshal(f.Body, &notice); err != nil {
			return err
		}
		if c.onCancel != nil {
			c.onCancel(notice)
		}
	}
	return nil // other types are a newer server's
}

func (c *WorkerConn) call(ctx context.Context, typ string, body []byte, out any) error {
	reply, err := c.sock.call(ctx, typ, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(reply, out)
}
