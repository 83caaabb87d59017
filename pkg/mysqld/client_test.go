package mysqld

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// client speaks just enough of the protocol to log in as root without a password and run a statement. The SQL driver
// belongs to pkg/store alone.
type client struct {
	conn net.Conn
	seq  byte
}

// login connects as root. The test fails when the server refuses.
func login(t *testing.T, network, address string) *client {
	t.Helper()
	conn, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		t.Fatalf("connect to %s: %v", address, err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	c := &client{conn: conn}
	if err := c.handshake(); err != nil {
		t.Fatalf("log in to %s as root: %v", address, err)
	}
	return c
}

func (c *client) handshake() error {
	if _, err := c.read(); err != nil {
		return err
	}
	const flags = 1 | 0x200 | 0x2000 | 0x8000 | 0x80000 // long password, protocol 4.1, transactions, secure connection, plugin auth
	hello := binary.LittleEndian.AppendUint32(nil, flags)
	hello = binary.LittleEndian.AppendUint32(hello, 1<<24)
	hello = append(hello, 45) // utf8mb4
	hello = append(hello, make([]byte, 23)...)
	hello = append(hello, "root\x00\x00mysql_native_password\x00"...) // an empty answer is an empty password
	if err := c.write(hello); err != nil {
		return err
	}
	answer, err := c.read()
	if err == nil && answer[0] == 0xfe { // another plugin: an empty password is an empty answer there too
		if err = c.write(nil); err != nil {
			return err
		}
		answer, err = c.read()
	}
	if err != nil {
		return err
	}
	if answer[0] != 0 {
		return fmt.Errorf("answer %x", answer)
	}
	return nil
}

// query runs one statement and returns the first column of the first row, "" when there is no row.
func (c *client) query(t *testing.T, sql string) string {
	t.Helper()
	value, err := c.try(sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func (c *client) try(sql string) (string, error) {
	c.seq = 0
	if err := c.write(append([]byte{3}, sql...)); err != nil {
		return "", err
	}
	head, err := c.read()
	if err != nil || head[0] == 0 {
		return "", err
	}
	value, ends := "", 0
	for ends < 2 { // the columns and the rows each end with an EOF packet
		p, err := c.read()
		if err != nil {
			return "", err
		}
		if p[0] == 0xfe && len(p) < 9 {
			ends++
		} else if ends == 1 && value == "" && p[0] < 251 {
			value = string(p[1 : 1+int(p[0])])
		}
	}
	return value, nil
}

func (c *client) read() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		return nil, err
	}
	c.seq = head[3] + 1
	p := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
	if _, err := io.ReadFull(c.conn, p); err != nil {
		return nil, err
	}
	if len(p) == 0 {
		return nil, errors.New("empty packet")
	}
	if p[0] == 0xff {
		return nil, fmt.Errorf("server error %d: %s", binary.LittleEndian.Uint16(p[1:]), p[3:])
	}
	return p, nil
}

func (c *client) write(p []byte) error {
	head := []byte{byte(len(p)), byte(len(p) >> 8), byte(len(p) >> 16), c.seq}
	_, err := c.conn.Write(append(head, p...))
	return err
}
