package upgrade

import (
	"net"
	"sync"
)

// Listener makes connections whose frames can leave together: the WebSocket library writes each
// frame by itself, and at thousands of small frames a second the system calls are the cost.
type Listener struct{ net.Listener }

// Accept returns a connection that can be corked.
func (l Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &corkable{Conn: conn}, nil
}

// corkable gathers what is written while it is corked.
type corkable struct {
	net.Conn
	mu     sync.Mutex // a pong may be written from the reader's side
	corked bool
	held   []byte
}

// maxHeld bounds what is gathered; more is written at once.
const maxHeld = 64 << 10

func (c *corkable) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.corked {
		return c.Conn.Write(b)
	}
	c.held = append(c.held, b...)
	if len(c.held) > maxHeld {
		if err := c.release(); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (c *corkable) cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = true
}

func (c *corkable) uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = false
	return c.release()
}

// release writes what was gathered; an idle connection keeps no buffer.
func (c *corkable) release() error {
	if len(c.held) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.held)
	c.held = nil
	return err
}
