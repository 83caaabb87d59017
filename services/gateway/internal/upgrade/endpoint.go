// Package upgrade is the door of both sockets: what is checked before a connection becomes a
// WebSocket, and the connection afterwards.
package upgrade

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/wire"
)

// Peer is who connected: the caller as of the upgrade and what proves it again later.
type Peer struct {
	Caller    *access.Caller
	Digest    [32]byte
	RequestID ids.ID
}

// Endpoint upgrades requests of one protocol and serves the connections.
type Endpoint struct {
	Protocol     string
	Action       access.Action
	MaxConns     int
	Limits       Limits
	Authenticate func(ctx context.Context, token string) (*access.Caller, error)
	Serve        func(ctx context.Context, conn *Conn, peer Peer)
	Log          *zap.Logger

	mu        sync.Mutex
	open      int
	admitting bool
	running   sync.WaitGroup
}

// authTimeout bounds the look at the database before the upgrade.
const authTimeout = 8 * time.Second

var upgrader = websocket.Upgrader{
	HandshakeTimeout: 5 * time.Second,
	WriteBufferSize:  4096,
	WriteBufferPool:  &sync.Pool{},                             // an idle connection holds no write buffer
	CheckOrigin:      func(*http.Request) bool { return true }, // checked before, with our own envelope
}

// ServeHTTP runs the checks in the contract's order (§6): what needs no database first, then the
// credential, then the node's room.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := ids.New()
	peer, err := e.admit(r, request)
	if err != nil {
		e.refuse(w, request, err)
		return
	}
	up := upgrader // a copy, so that the protocol and the answers are this endpoint's
	up.Subprotocols = []string{e.Protocol}
	up.Error = func(w http.ResponseWriter, _ *http.Request, status int, reason error) {
		e.malformed(w, request, status, reason)
	}
	ws, err := up.Upgrade(w, r, http.Header{"X-Request-ID": {request.String()}})
	if err != nil { // answered, or the client is gone
		e.leave()
		e.Log.Debug("upgrade failed", zap.Stringer("request_id", request), zap.Error(err))
		return
	}
	// Not on the HTTP server's goroutine: it would keep the request, its buffers and a deep stack alive.
	go e.serve(newConn(ws, e.Limits), peer)
}

func (e *Endpoint) serve(conn *Conn, peer Peer) {
	defer e.leave()
	defer conn.abandon()
	defer func() {
		if p := recover(); p != nil { // one connection's fault ends that connection
			e.Log.Error("connection panicked", zap.Stringer("request_id", peer.RequestID), zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	e.Serve(context.Background(), conn, peer)
}

func (e *Endpoint) admit(r *http.Request, request ids.ID) (Peer, error) {
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		return Peer{}, errs.Invalid("query", "this endpoint takes no query parameters")
	}
	if !sameOrigin(r) {
		return Peer{}, errs.New(errs.PermissionDenied, "Origin: connections from another site's pages are refused")
	}
	if !websocket.IsWebSocketUpgrade(r) || !slices.Contains(websocket.Subprotocols(r), e.Protocol) {
		return Peer{}, errs.New(errs.ProtocolRequired, "connect by WebSocket with Sec-WebSocket-Protocol: %s", e.Protocol)
	}
	token, err := bearer(r)
	if err != nil {
		return Peer{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), authTimeout)
	defer cancel()
	caller, err := e.Authenticate(ctx, token)
	if err != nil {
		return Peer{}, err
	}
	if err := caller.Require(e.Action); err != nil {
		return Peer{}, err
	}
	_, secret, err := access.ParseToken(token)
	if err != nil {
		return Peer{}, err
	}
	return Peer{Caller: caller, Digest: secret.Digest(), RequestID: request}, e.enter()
}

func sameOrigin(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	u, err := url.Parse(origins[0])
	return len(origins) == 1 && err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

func bearer(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", errs.New(errs.Unauthenticated, "send one Authorization: Bearer header")
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	if !ok {
		return "", errs.New(errs.Unauthenticated, "send one Authorization: Bearer header")
	}
	return token, nil
}

func (e *Endpoint) enter() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.admitting {
		return errs.New(errs.Unavailable, "this node is starting or shutting down; connect again")
	}
	if e.open >= e.MaxConns {
		return errs.New(errs.CapacityExceeded, "this node holds its %d connections; try another node or again in 1 s", e.MaxConns)
	}
	e.open++
	e.running.Add(1)
	return nil
}

func (e *Endpoint) leave() {
	e.mu.Lock()
	e.open--
	e.mu.Unlock()
	e.running.Done()
}

// Open is the number of connections now.
func (e *Endpoint) Open() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open
}

// Admit opens or closes the door; behind a closed one requests get 503. It begins closed.
func (e *Endpoint) Admit(open bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.admitting = open
}

// Wait returns when every connection has ended.
func (e *Endpoint) Wait() { e.running.Wait() }

// malformed answers a handshake that the library refuses, with our envelope like every other refusal.
func (e *Endpoint) malformed(w http.ResponseWriter, request ids.ID, status int, reason error) {
	if status >= http.StatusInternalServerError {
		e.refuse(w, request, reason)
		return
	}
	e.refuse(w, request, errs.Invalid("upgrade", "malformed WebSocket handshake; %s", reason))
}

func (e *Endpoint) refuse(w http.ResponseWriter, request ids.ID, err error) {
	status := wire.Status(err)
	h := w.Header()
	h.Set("X-Request-ID", request.String())
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/json")
	switch status {
	case http.StatusUpgradeRequired:
		h.Set("Upgrade", "websocket")
		h.Set("Connection", "Upgrade")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusInternalServerError:
		e.Log.Error("upgrade failed", zap.Stringer("request_id", request), zap.Error(err))
	}
	w.WriteHeader(status)
	body := append([]byte(`{"request_id":"`+request.String()+`","error":`), wire.AppendError(nil, err)...)
	if _, err := fmt.Fprintf(w, "%s}", body); err != nil {
		e.Log.Debug("refusal not delivered", zap.Stringer("request_id", request), zap.Error(err))
	}
}
