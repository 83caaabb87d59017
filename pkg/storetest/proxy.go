package storetest

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// Fate is what becomes of one statement on its way to the server.
type Fate int

// The fates. Deadlock rolls back and answers error 1213; the last two break the connection.
const (
	Pass       Fate = iota
	Deadlock        // the server never sees the statement
	DropBefore      // the connection dies before the server sees it
	DropAfter       // the server executes it, its answer is lost
)

// Proxy stands between a store and the real server and decides over every statement.
type Proxy struct {
	Store *store.Store // connects through the proxy as the database's owner

	listener net.Listener
	server   string
	decide   atomic.Pointer[func(query string) Fate]
	conns    sync.WaitGroup
}

// NewProxy passes everything until Decide says otherwise.
func (db *DB) NewProxy(t testing.TB) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	open, end := strings.Index(db.OwnerDSN, "("), strings.Index(db.OwnerDSN, ")")
	p := &Proxy{listener: listener, server: db.OwnerDSN[open+1 : end]}
	p.Decide(nil)
	p.conns.Go(p.accept)
	p.Store = openStore(t, db.OwnerDSN[:open+1]+listener.Addr().String()+db.OwnerDSN[end:])
	t.Cleanup(func() {
		_ = p.Store.Close()
		_ = listener.Close()
		p.conns.Wait()
	})
	return p
}

// Decide sets what happens to statements from now on; nil passes all.
func (p *Proxy) Decide(f func(query string) Fate) {
	if f == nil {
		f = func(string) Fate { return Pass }
	}
	p.decide.Store(&f)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		c := &proxied{proxy: p, client: client, server: server}
		p.conns.Go(c.answers)
		p.conns.Go(c.statements)
	}
}

// proxied is one connection.
type proxied struct {
	proxy          *Proxy
	client, server net.Conn
	mute           atomic.Bool // the next answer is lost, and the connection with it
	swallow        atomic.Bool // the next answer is the proxy's own business
}

func (c *proxied) close() {
	_ = c.client.Close()
	_ = c.server.Close()
}

// answers copies the server's side until it ends or is muted.
func (c *proxied) answers() {
	defer c.close()
	buf := make([]byte, 32<<10)
	for {
		n, err := c.server.Read(buf)
		if err != nil || c.mute.Load() {
			return
		}
		if c.swallow.CompareAndSwap(true, false) {
			if _, err := c.client.Write(deadlockPacket()); err != nil {
				return
			}
			continue
		}
		if _, err := c.client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// statements copies the client's packets, deciding over each COM_QUERY.
func (c *proxied) statements() {
	defer c.close()
	var header [4]byte
	for {
		if _, err := io.ReadFull(c.client, header[:]); err != nil {
			return
		}
		size := int(header[0]) | int(header[1])<<8 | int(header[2])<<16
		packet := make([]byte, 4+size)
		copy(packet, header[:])
		if _, err := io.ReadFull(c.client, packet[4:]); err != nil {
			return
		}
		fate := Pass
		if header[3] == 0 && size > 0 && packet[4] == comQuery {
			fate = (*c.proxy.decide.Load())(string(packet[5:]))
		}
		switch fate {
		case Deadlock: // the server gives the transaction up, as it does for its own reasons
			c.swallow.Store(true)
			packet = rollbackPacket()
		case DropBefore:
			return
		case DropAfter:
			c.mute.Store(true)
		}
		if _, err := c.server.Write(packet); err != nil {
			return
		}
	}
}

const comQuery = 3

func rollbackPacket() []byte {
	const query = "ROLLBACK"
	return append([]byte{byte(len(query) + 1), 0, 0, 0, comQuery}, query...)
}

// deadlockPacket is the server's error 1213 as it would answer a statement.
func deadlockPacket() []byte {
	payload := []byte{0xff, 0, 0}
	binary.LittleEndian.PutUint16(payload[1:], 1213)
	payload = append(payload, "#40001Deadlock found when trying to get lock; try restarting transaction"...)
	return append([]byte{byte(len(payload)), 0, 0, 1}, payload...)
}
