package orbit

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// Transport tunes how sockets reach a gateway; the zero value is right for most.
type Transport struct {
	TLS              *tls.Config                                                       // nil: the system's roots
	NetDial          func(ctx context.Context, network, addr string) (net.Conn, error) // nil: net.Dialer
	Proxy            func(*http.Request) (*url.URL, error)                             // nil: http.ProxyFromEnvironment
	HandshakeTimeout time.Duration                                                     // of dial, upgrade and hello together; 0: 15 s
}

const defaultHandshakeTimeout = 15 * time.Second

func (t Transport) handshakeTimeout() time.Duration {
	if t.HandshakeTimeout > 0 {
		return t.HandshakeTimeout
	}
	return defaultHandshakeTimeout
}

// endpoint is where a socket goes and as whom.
type endpoint struct {
	base        string
	token       string
	path        string
	subprotocol string
	insecure    bool
	transport   Transport
}

// dial upgrades a connection and returns it with the network connection beneath. A refusal before the
// upgrade is an *Error.
func (e endpoint) dial(ctx context.Context) (*websocket.Conn, *corkable, error) {
	target, err := parseBase(e.base, e.token, e.insecure)
	if err != nil {
		return nil, nil, err
	}
	beneath := new(corkable)
	netDial := e.transport.NetDial
	if netDial == nil {
		netDial = new(net.Dialer).DialContext
	}
	target.Scheme = strings.Replace(target.Scheme, "http", "ws", 1)
	if !strings.HasSuffix(target.Path, e.path) {
		target.Path = strings.TrimSuffix(target.Path, "/") + e.path
	}
	dialer := websocket.Dialer{
		Subprotocols:    []string{e.subprotocol},
		TLSClientConfig: e.transport.TLS,
		NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := netDial(ctx, network, addr)
			beneath.Conn = conn
			return beneath, err
		},
		Proxy: e.transport.Proxy,
	}
	if dialer.Proxy == nil {
		dialer.Proxy = http.ProxyFromEnvironment
	}
	header := http.Header{"Authorization": {"Bearer " + e.token}, "User-Agent": {userAgent}}
	ws, answer, err := dialer.DialContext(ctx, target.String(), header) //nolint:bodyclose // the dialer has read and detached it
	if err != nil {
		if answer != nil {
			return nil, nil, refusal(answer)
		}
		return nil, nil, err
	}
	if ws.Subprotocol() != e.subprotocol {
		_ = ws.Close()
		return nil, nil, &Error{Code: ErrUnavailable, Message: "the peer does not speak " + e.subprotocol}
	}
	return ws, beneath, nil
}

// parseBase checks a base URL: absolute, http(s) or ws(s), no user, query or fragment, and no plain text
// to anything but loopback unless insecure, because the token would travel readable.
func parseBase(base, token string, insecure bool) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return nil, invalid("base URL: must be absolute, like https://orbit.example.com")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, invalid("base URL: must not carry a user, a query or a fragment")
	}
	if token == "" || strings.ContainsAny(token, " \r\n\t") {
		return nil, invalid("token: must be orbit_<credential id>_<secret>")
	}
	switch u.Scheme {
	case "https", "wss":
	case "http", "ws":
		if !insecure && !isLoopback(u.Hostname()) {
			return nil, invalid("base URL: a token is not sent over plain %s to %s; use https or allow it explicitly", u.Scheme, u.Hostname())
		}
	default:
		return nil, invalid("base URL: scheme must be https, wss, http or ws")
	}
	return u, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}
