package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/httpserver"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

// rig is a server on a database of its own, as the management user, with one tenant.
type rig struct {
	*storetest.DB
	url    string
	client *http.Client
	tenant storetest.Tenant
}

func newRig(t *testing.T) *rig { return newRigWith(t, nil, zap.NewNop(), Options{}) }

// newRigWith serves from another store than the database's when one is given.
func newRigWith(t *testing.T, s *store.Store, log *zap.Logger, o Options) *rig {
	t.Helper()
	db := storetest.New(t)
	if s == nil {
		s = db.Management
	}
	health := httpserver.NewHealth(context.Background(), s.Ping)
	server := httptest.NewServer(New(s, health, log, o))
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(func() { transport.CloseIdleConnections(); server.Close() })
	return &rig{
		DB: db, url: server.URL, tenant: db.Tenant(t),
		client: &http.Client{Transport: contractTransport{t, transport}},
	}
}

// request is one call; the zero values are those of a correct one.
type request struct {
	method, path string
	token        string // the tenant's when empty
	key          string // fresh for a POST when empty
	body         string
	header       func(h http.Header)
}

// response is what came back, already known to keep the contract's frame (R2.3).
type response struct {
	status    int
	header    http.Header
	raw       []byte
	RequestID string          `json:"request_id"`
	Data      json.RawMessage `json:"data"`
	Error     struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (r *rig) do(t *testing.T, q request) *response {
	t.Helper()
	req, err := http.NewRequest(q.method, r.url+q.path, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	if q.body == "" {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	if q.token == "" {
		q.token = r.tenant.Token
	}
	req.Header.Set("Authorization", "Bearer "+q.token)
	if q.method == http.MethodPost {
		if q.key == "" {
			q.key = ids.New().String()
		}
		req.Header.Set("Idempotency-Key", q.key)
		req.Header.Set("Content-Type", "application/json")
	}
	if q.header != nil {
		q.header(req.Header)
	}
	res, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return readResponse(t, q.method, res)
}

func readResponse(t *testing.T, method string, res *http.Response) *response {
	t.Helper()
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := &response{status: res.StatusCode, header: res.Header, raw: raw}
	if method == http.MethodHead || method == http.MethodOptions {
		return out
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(out); err != nil {
		t.Fatalf("%d %s is no envelope: %v", res.StatusCode, raw, err)
	}
	if _, err := ids.ParseID(out.RequestID); err != nil || res.Header.Get("X-Request-ID") != out.RequestID {
		t.Errorf("request_id %q, X-Request-ID %q", out.RequestID, res.Header.Get("X-Request-ID"))
	}
	if cc, ct := res.Header.Get("Cache-Control"), res.Header.Get("Content-Type"); cc != "no-store" || ct != "application/json" {
		t.Errorf("Cache-Control %q, Content-Type %q", cc, ct)
	}
	return out
}

func (r *rig) get(t *testing.T, path string) *response {
	t.Helper()
	return r.do(t, request{method: http.MethodGet, path: path})
}

func (r *rig) post(t *testing.T, path, body string) *response {
	t.Helper()
	return r.do(t, request{method: http.MethodPost, path: path, body: body})
}

// want fails unless the answer has this status and, for an error, this code and a message that
// begins with this text.
func (res *response) want(t *testing.T, status int, code, message string) *response {
	t.Helper()
	if res.status != status || res.Error.Code != code || !strings.HasPrefix(res.Error.Message, message) {
		t.Errorf("got %d %s\nwant %d %s %q", res.status, bytes.TrimSpace(res.raw), status, code, message)
	}
	return res
}

// ok fails the test unless the answer has this status.
func (res *response) ok(t *testing.T, status int) *response {
	t.Helper()
	if res.status != status {
		t.Fatalf("got %d %s, want %d", res.status, bytes.TrimSpace(res.raw), status)
	}
	return res
}

// resource returns the named member of a write's data, and whether the answer was a repeated one.
func (res *response) resource(t *testing.T, name string) (text string, deduplicated bool) {
	t.Helper()
	var data map[string]json.RawMessage
	if err := json.Unmarshal(res.Data, &data); err != nil {
		t.Fatalf("%s: %v", res.raw, err)
	}
	return string(data[name]), string(data["deduplicated"]) == "true"
}

// field digs a string out of a JSON text.
func field(t *testing.T, text string, path ...string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return fmt.Sprint(v)
}

// page is the data of a list.
type listed struct {
	Items      []json.RawMessage `json:"items"`
	NextCursor string            `json:"next_cursor"`
}

func (res *response) list(t *testing.T) listed {
	t.Helper()
	var l listed
	if err := json.Unmarshal(res.Data, &l); err != nil || l.Items == nil {
		t.Fatalf("%d %s is no list: %v", res.status, res.raw, err)
	}
	return l
}

func (r *rig) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := r.SQL.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func (r *rig) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := r.SQL.QueryRowContext(context.Background(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// subscribe makes a subscription over HTTP and returns its id.
func (r *rig) subscribe(t *testing.T, body string) string {
	t.Helper()
	text, _ := r.post(t, "/v1/subscriptions", body).ok(t, http.StatusCreated).resource(t, "subscription")
	return field(t, text, "id")
}

// namespace is the name of the tenant's namespace, for administration.
func (r *rig) namespace(t *testing.T) string {
	t.Helper()
	var name string
	if err := r.SQL.QueryRowContext(context.Background(), "SELECT name FROM namespaces WHERE id = ?", r.tenant.NamespaceID[:]).Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

func rightsOf(actions ...access.Action) store.Rights { return store.Rights{Actions: actions} }
