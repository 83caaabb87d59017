package orbit

import (
	"net/http"
	"net/url"
	"strings"
	"time"
)

const userAgent = "orbit-sdk-go"

// Client calls the management API. It is safe for concurrent use.
//
// Network faults, 429, 502, 503 and 504 are retried, with full jitter and at least the server's
// Retry-After: reads, and writes too, because every write carries its Idempotency-Key and so has one
// effect however often it arrives (R3.2). Whatever else fails returns at once: an *Error when Orbit said
// no, the network's error when it never answered. After an error that leaves the effect open, repeat the
// same call with the same key and request.
type Client struct {
	base     *url.URL
	token    string
	http     *http.Client
	insecure bool
	tries    int
	backoff  Backoff
	timeout  time.Duration
}

// Option changes a Client.
type Option func(*Client)

// WithHTTPClient uses another http.Client (its Timeout applies to each try). Redirects are never followed.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithInsecureHTTP allows the token to travel over plain http to other hosts than loopback.
func WithInsecureHTTP() Option { return func(c *Client) { c.insecure = true } }

// WithRetry sets how often a call is tried in all (1: no retry; default 4) and the back-off between
// (default 100 ms to 5 s).
func WithRetry(tries int, b Backoff) Option {
	return func(c *Client) { c.tries, c.backoff = max(1, tries), b }
}

// WithTimeout bounds each try (default 15 s; the server's own limit is 8 s, R2.4). The whole call is
// bounded by its context.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// NewClient returns a client for the management service at baseURL, which may carry a path prefix but no
// user, query or fragment. A token is refused over plain http to other hosts than loopback.
func NewClient(baseURL, token string, opts ...Option) (*Client, error) {
	c := &Client{token: token, tries: 4, timeout: 15 * time.Second}
	for _, o := range opts {
		o(c)
	}
	if c.timeout <= 0 {
		c.timeout = 15 * time.Second
	}
	c.backoff = c.backoff.orDefault(Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second})
	base, err := parseBase(baseURL, token, c.insecure)
	if err != nil {
		return nil, err
	}
	if base.Scheme != "http" && base.Scheme != "https" {
		return nil, invalid("base URL: scheme must be https or http")
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	c.base = base
	own := http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	if c.http != nil {
		own = *c.http
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &own
	return c, nil
}

// Close closes idle connections. The client may still be used.
func (c *Client) Close() { c.http.CloseIdleConnections() }
