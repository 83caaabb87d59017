package orbit

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// EventOptions says where to receive one subscription's events.
type EventOptions struct {
	URL            string   // a gateway's base, like https://orbit.example.com; also http, ws, wss
	Token          string   // orbit_<credential id>_<secret> of the subscription's owner, with events:consume
	SubscriptionID string   // 32 hex
	Capacity       int      // 1–32 (0: 1): how many deliveries the connection may hold un-acknowledged
	Extensions     []string // names for hello.extensions; "generation" fills Welcome.Generation
	InsecureHTTP   bool     // allow a token over plain http to other hosts than loopback
	Transport      Transport
}

// EventWelcome is the gateway's answer to hello (R6.2).
type EventWelcome struct {
	SessionID         string
	SubscriptionID    string
	Capacity          int
	LeaseDuration     time.Duration
	HeartbeatInterval time.Duration
	ServerTime        time.Time
	Enabled           bool   // false while the subscription is paused
	Generation        string // changes when the log was restored from a dump; "" unless asked for
}

// EventConn is one event connection. It pings by itself every HeartbeatInterval. Its methods may be called
// from many goroutines. It does not reconnect: [Consumer] does.
type EventConn struct {
	Welcome EventWelcome

	sock   *socket
	box    *mailbox[*Delivery]
	beater sync.WaitGroup
}

// DialEvents connects and says hello; ctx and Transport.HandshakeTimeout bound only this. A refusal is an
// *Error (before the upgrade with HTTPStatus) or a *CloseError.
func DialEvents(ctx context.Context, o EventOptions) (*EventConn, error) {
	if o.Capacity == 0 {
		o.Capacity = 1
	}
	if !isID(o.SubscriptionID) {
		return nil, invalid("subscription id: must be 32 lowercase hex characters")
	}
	if o.Capacity < 1 || o.Capacity > 32 {
		return nil, invalid("capacity: must be 1–32")
	}
	ctx, cancel := context.WithTimeout(ctx, o.Transport.handshakeTimeout())
	defer cancel()
	c := &EventConn{box: newMailbox[*Delivery]()}
	var err error
	c.sock, err = openSocket(ctx, endpoint{base: o.URL, token: o.Token, path: "/v1/events/connect",
		subprotocol: "orbit.events.v1", insecure: o.InsecureHTTP, transport: o.Transport}, c.receive)
	if err != nil {
		return nil, err
	}
	var hello object
	hello.put("subscription_id", o.SubscriptionID)
	hello.put("capacity", o.Capacity)
	if len(o.Extensions) > 0 {
		hello.put("extensions", o.Extensions)
	}
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

func (c *EventConn) hello(ctx context.Context, body []byte) error {
	var wire struct {
		SessionID           string    `json:"session_id"`
		SubscriptionID      string    `json:"subscription_id"`
		Capacity            int       `json:"capacity"`
		LeaseDurationMS     int64     `json:"lease_duration_ms"`
		HeartbeatIntervalMS int64     `json:"heartbeat_interval_ms"`
		ServerTime          time.Time `json:"server_time"`
		Enabled             bool      `json:"enabled"`
		Generation          string    `json:"generation"`
	}
	if err := c.sock.hello(ctx, "events.hello", body, &wire); err != nil {
		return err
	}
	c.sock.sessionID = wire.SessionID
	c.Welcome = EventWelcome{
		SessionID: wire.SessionID, SubscriptionID: wire.SubscriptionID, Capacity: wire.Capacity,
		LeaseDuration: millis(wire.LeaseDurationMS, 30*time.Second), HeartbeatInterval: millis(wire.HeartbeatIntervalMS, 15*time.Second),
		ServerTime: wire.ServerTime, Enabled: wire.Enabled, Generation: wire.Generation,
	}
	return nil
}

// Receive waits for the next delivery. After the connection ended it returns what had arrived, then the
// *CloseError, or ErrConnClosed after Close.
func (c *EventConn) Receive(ctx context.Context) (*Delivery, error) { return c.box.take(ctx, c.sock) }

// Ping returns the server's time and whether the subscription is enabled; the server checks the
// credential again (R6.6).
func (c *EventConn) Ping(ctx context.Context) (EventPong, error) {
	var pong EventPong
	err := c.call(ctx, "events.ping", []byte("{}"), &pong)
	return pong, err
}

// Drain asks for no more deliveries on this connection (R6.10). When it returns nil, all that will ever
// come has arrived for Receive; everything else goes on. An older server refuses with ErrInvalidArgument,
// and nothing has changed.
func (c *EventConn) Drain(ctx context.Context) error {
	_, err := c.sock.call(ctx, "events.drain", []byte("{}"))
	return err
}

// EventPong answers a ping.
type EventPong struct {
	ServerTime time.Time `json:"server_time"`
	Enabled    bool      `json:"enabled"`
}

// Done is closed when the connection has ended.
func (c *EventConn) Done() <-chan struct{} { return c.sock.done }

// Close says goodbye and returns when the connection has ended, after at most two seconds. Leases stay:
// the proofs can be reported on another connection.
func (c *EventConn) Close() {
	c.sock.close()
	c.beater.Wait()
}

// receive runs on the reader.
func (c *EventConn) receive(f *frame) error {
	if f.Type != "event.deliver" {
		return nil // a newer server's frame
	}
	d, err := decodeDelivery(f.Body)
	if err != nil {
		return err
	}
	c.box.put(d, func(old *Delivery) bool { return old.ID == d.ID && newer(d.LeaseEpoch, old.LeaseEpoch) })
	return nil
}

func (c *EventConn) call(ctx context.Context, typ string, body []byte, out any) error {
	reply, err := c.sock.call(ctx, typ, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(reply, out)
}

func millis(n int64, otherwise time.Duration) time.Duration {
	if n <= 0 {
		return otherwise
	}
	return time.Duration(n) * time.Millisecond
}
