package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

const goldenFrames = "../../api/testdata/ws"

// exchange is one golden conversation; api/testdata/ws/README.md says how it is to be read.
type exchange struct {
	About  string         `json:"about"`
	Source string         `json:"source"`
	Steps  []exchangeStep `json:"steps"`
}

// exchangeStep has exactly one of its members but the first.
type exchangeStep struct {
	Connection int             `json:"connection"`
	Client     json.RawMessage `json:"client"`
	ClientText string          `json:"client_text"`
	Server     json.RawMessage `json:"server"`
	Happens    string          `json:"happens"`
	Close      *struct {
		Code   int    `json:"code"`
		Reason string `json:"reason"`
	} `json:"close"`
}

func goldenExchanges(t *testing.T) map[string]exchange {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(goldenFrames, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no exchanges: %v", err)
	}
	out := map[string]exchange{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		var e exchange
		if err := dec.Decode(&e); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[strings.TrimSuffix(filepath.Base(file), ".json")] = e
	}
	return out
}

func (e exchange) has(happening string) bool {
	return slices.ContainsFunc(e.Steps, func(s exchangeStep) bool { return s.Happens == happening })
}

// The user's examples and every error, frame by frame, by a client that knows nothing but frames: every
// byte of every server frame is the golden one's, up to ids, secrets and times (R6.12).
func TestReplay(t *testing.T) {
	t.Parallel()
	shared := storetest.New(t)
	for name, e := range goldenExchanges(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := shared
			if e.has(auditMissing) {
				db = storetest.New(t)
			}
			r := newReplay(t, db, e)
			for i, step := range e.Steps {
				r.at = fmt.Sprintf("step %d", i+1)
				r.run(step)
			}
		})
	}
}

// The frames of the golden files are themselves described by the schema, in the direction they go.
func TestGoldenFramesMatchTheSchema(t *testing.T) {
	t.Parallel()
	for name, e := range goldenExchanges(t) {
		for i, step := range e.Steps {
			for definition, frame := range map[string][]byte{"clientFrame": step.Client, "serverFrame": step.Server} {
				if frame == nil {
					continue
				}
				if err := describes(t, eventFrames, definition, frame); err != nil {
					t.Errorf("%s step %d: %v", name, i+1, err)
				}
				other := map[string]string{"clientFrame": "serverFrame", "serverFrame": "clientFrame"}[definition]
				if describes(t, eventFrames, other, frame) == nil {
					t.Errorf("%s step %d: the schema also takes it the other way", name, i+1)
				}
			}
		}
	}
}

// replay is one exchange under way.
type replay struct {
	t      *testing.T
	db     *storetest.DB
	proxy  *storetest.Proxy
	node   *node
	tenant storetest.Tenant
	sub    ids.ID
	conns  map[int]*websocket.Conn
	began  time.Time
	bound  map[string]string // placeholder → what it stands for in this run
	at     string
}

const (
	goldenQueue, goldenSubscription, goldenCredential = "11111111111111111111111111111111", "22222222222222222222222222222222", "88888888888888888888888888888888"
	goldenSession                                     = "44444444444444444444444444444444"
	goldenRequest                                     = "99999999999999999999999999999999" // X-Request-ID of the upgrade
	auditMissing                                      = "the audit table is missing"
	databaseAway                                      = "the database goes away"
)

func newReplay(t *testing.T, db *storetest.DB, e exchange) *replay {
	r := &replay{t: t, db: db, conns: map[int]*websocket.Conn{}, began: time.Now()}
	r.tenant = db.Tenant(t)
	db.AppendEvents(t, r.tenant, 12, `null`) // the user's examples begin after sequence 12
	r.sub = db.Subscribe(t, r.tenant, subscription.Create{})
	r.bound = map[string]string{
		goldenQueue: r.tenant.QueueID.String(), goldenSubscription: r.sub.String(), goldenCredential: r.tenant.CredentialID.String(),
	}
	s := db.Gateway
	if e.has(databaseAway) {
		r.proxy = db.NewProxy(t)
		s = r.proxy.Store
	}
	r.node = startNodeOn(t, db, s, func(c *config) {
		c.DrainTimeout = wait
		if e.has("the client is silent") {
			c.IdleTimeout = time.Second
		}
		if e.has("the client connects") && !e.has(databaseAway) {
			c.HelloTimeout = 300 * time.Millisecond
		}
	})
	return r
}

func (r *replay) fatalf(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf(r.at+": "+format, args...)
}

func (r *replay) run(step exchangeStep) {
	r.t.Helper()
	conn := max(step.Connection, 1)
	switch {
	case step.Client != nil:
		text := r.fill(sorted(r.t, step.Client))
		if err := describes(r.t, eventFrames, "clientFrame", []byte(text)); err != nil {
			r.fatalf("%v", err)
		}
		r.write(conn, websocket.TextMessage, text)
	case step.ClientText != "":
		r.write(conn, websocket.TextMessage, r.fill(step.ClientText))
	case step.Server != nil:
		data, err := r.read(conn)
		if err != nil {
			r.fatalf("%v, want %s", err, step.Server)
		}
		if err := describes(r.t, eventFrames, "serverFrame", data); err != nil {
			r.fatalf("%s: %v", data, err)
		}
		got := sorted(r.t, data)
		if len(got) != len(data) {
			r.fatalf("%s has white space or a member twice", data)
		}
		r.match(sorted(r.t, step.Server), got)
	case step.Close != nil:
		data, err := r.read(conn)
		var closed *websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != step.Close.Code {
			r.fatalf("%s %v, want close %d", data, err, step.Close.Code)
		}
		r.match(step.Close.Reason, closed.Text)
	default:
		r.happen(conn, step.Happens)
	}
}

func (r *replay) conn(n int) *websocket.Conn {
	r.t.Helper()
	if r.conns[n] == nil {
		dialer := websocket.Dialer{Subprotocols: []string{"orbit.events.v1"}, HandshakeTimeout: wait, EnableCompression: true}
		ws, resp, err := dialer.Dial(r.node.url+"/v1/events/connect", http.Header{"Authorization": {"Bearer " + r.tenant.Token}})
		if err != nil {
			r.fatalf("dial: %v (%v)", err, resp)
		}
		if extensions := resp.Header.Get("Sec-WebSocket-Extensions"); extensions != "" || ws.Subprotocol() != "orbit.events.v1" {
			r.fatalf("upgraded to %q with extensions %q", ws.Subprotocol(), extensions)
		}
		r.bound[goldenRequest] = resp.Header.Get("X-Request-ID")
		r.t.Cleanup(func() { _ = ws.Close() })
		r.conns[n] = ws
	}
	return r.conns[n]
}

func (r *replay) write(conn, kind int, data string) {
	r.t.Helper()
	if err := r.conn(conn).WriteMessage(kind, []byte(data)); err != nil {
		r.fatalf("write: %v", err)
	}
}

func (r *replay) read(conn int) ([]byte, error) {
	ws := r.conn(conn)
	_ = ws.SetReadDeadline(time.Now().Add(2 * wait))
	kind, data, err := ws.ReadMessage()
	if err == nil && kind != websocket.TextMessage {
		err = fmt.Errorf("message of kind %d", kind)
	}
	return data, err
}

// happen does what an exchange names between two frames.
func (r *replay) happen(conn int, what string) {
	r.t.Helper()
	ctx := context.Background()
	var err error
	switch what {
	case "the client connects":
		r.conn(conn)
	case "the connection is lost":
		err = r.conn(conn).NetConn().Close()
	case "a task is cancelled":
		cancelledEvent(r.t, r.db, r.tenant)
	case "the lease ends":
		lapse(r.t, r.db, r.sub)
	case "the subscription is paused":
		configure(r.t, r.db, r.tenant, r.sub, 1, false)
	case "the credential is revoked":
		err = r.db.Owner.RevokeCredential(ctx, r.tenant.CredentialID)
	case "events:consume is withdrawn":
		withdraw(r.t, r.db, r.tenant, false)
	case "the queue leaves the scope":
		withdraw(r.t, r.db, r.tenant, true)
	case "retention passes the cursor":
		passRetention(r.t, r.db, r.tenant)
	case databaseAway:
		r.proxy.Decide(func(string) storetest.Fate { return storetest.DropBefore })
	case "the database is back":
		r.proxy.Decide(nil)
	case auditMissing:
		_, err = r.db.SQL.Exec("RENAME TABLE audit TO audit_away")
	case "the node begins to stop":
		go func() { _ = r.node.stop() }()
		for r.node.g.ready.Load() {
			time.Sleep(time.Millisecond)
		}
	case "the client sends a binary frame":
		r.write(conn, websocket.BinaryMessage, "{}")
	case "the client sends a frame of 524 289 bytes":
		r.write(conn, websocket.TextMessage, strings.Repeat(" ", 524_289))
	case "the client closes with 1000":
		r.write(conn, websocket.CloseMessage, string(websocket.FormatCloseMessage(websocket.CloseNormalClosure, "done")))
	case "the client is silent":
	default:
		r.fatalf("%q is no happening that this test knows", what)
	}
	if err != nil {
		r.fatalf("%s: %v", what, err)
	}
}

// Placeholders: an id made of one or two repeated digits, any secret, any time.
var placeholder = regexp.MustCompile(`[0-9a-f]{32}|"[A-Za-z0-9_-]{43}"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`)

func isPlaceholder(s string) bool { return len(s) != 32 || s == strings.Repeat(s[:2], 16) }

// fill puts this run's values into a client's frame; ids and secrets not seen yet are made up.
func (r *replay) fill(template string) string {
	return placeholder.ReplaceAllStringFunc(template, func(p string) string {
		name := strings.Trim(p, `"`)
		if !isPlaceholder(name) {
			return p
		}
		if r.bound[name] == "" {
			if r.bound[name] = ids.New().String(); len(name) == 43 {
				r.bound[name] = ids.NewSecret().Text()
			}
		}
		return strings.Replace(p, name, r.bound[name], 1)
	})
}

// match compares a text with its template, byte by byte outside the placeholders.
func (r *replay) match(template, got string) {
	r.t.Helper()
	pattern, names, from := `^`, []string(nil), 0
	for _, at := range placeholder.FindAllStringIndex(template, -1) {
		name := strings.Trim(template[at[0]:at[1]], `"`)
		if !isPlaceholder(name) {
			continue
		}
		pattern += regexp.QuoteMeta(template[from:at[0]]) + map[int]string{32: `([0-9a-f]{32})`, 43: `("[A-Za-z0-9_-]{43}")`, 20: `([0-9T:.-]+Z)`}[len(name)]
		names, from = append(names, name), at[1]
	}
	values := regexp.MustCompile(pattern + regexp.QuoteMeta(template[from:]) + `$`).FindStringSubmatch(got)
	if values == nil {
		r.fatalf("got\n%s\nwant\n%s", got, template)
	}
	for i, name := range names {
		r.bind(name, strings.Trim(values[i+1], `"`))
	}
}

// exampleStart is the examples' now; this very time stands for any moment of the run, every other one
// for one moment wherever it recurs, as far from the start as the example has it.
const exampleStart = "2026-09-17T10:00:00Z"

func (r *replay) bind(name, value string) {
	r.t.Helper()
	if len(name) == len(exampleStart) {
		offset := mustTime(r.t, name).Sub(mustTime(r.t, exampleStart))
		const clocks = 2 * time.Second // the database's against ours
		at := mustTime(r.t, value).Add(-offset)
		if at.Before(r.began.Add(-clocks)) || at.After(time.Now().Add(clocks)) {
			r.fatalf("%s is not where the example has %s; the exchange began at %s", value, name, r.began.UTC())
		}
		if name == exampleStart {
			return
		}
	}
	if have, ok := r.bound[name]; ok && have != value {
		r.fatalf("%s is %s, and was %s before", name, value, have)
	}
	for other, have := range r.bound {
		if have == value && other != name {
			r.fatalf("%s and %s are both %s", name, other, value)
		}
	}
	r.bound[name] = value
}

func mustTime(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// sorted is the same JSON without white space and with members in one order, every value's text as it was.
func sorted(t *testing.T, raw []byte) string {
	t.Helper()
	raw = bytes.TrimSpace(raw)
	var parts []string
	switch raw[0] {
	case '{':
		members := map[string]json.RawMessage{}
		if err := json.Unmarshal(raw, &members); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		for name, value := range members {
			parts = append(parts, fmt.Sprintf("%q:%s", name, sorted(t, value)))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ",") + "}"
	case '[':
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		for _, item := range items {
			parts = append(parts, sorted(t, item))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return string(raw)
}
