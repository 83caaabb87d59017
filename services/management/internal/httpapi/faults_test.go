package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/httpserver"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/logging"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

func nop() *zap.Logger { return zap.NewNop() }

// logBuffer collects log lines of concurrent requests.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) lines(t *testing.T) (out []map[string]any, text string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, v)
	}
	return out, l.buf.String()
}

func newLog(t *testing.T) (*zap.Logger, *logBuffer) {
	t.Helper()
	var buf logBuffer
	log, err := logging.NewTo(&buf, "debug", "json")
	if err != nil {
		t.Fatal(err)
	}
	return log, &buf
}

// TestFaultsOfTheServerStayInside: the text goes to the log under the request id, never to a caller.
func TestFaultsOfTheServerStayInside(t *testing.T) {
	t.Parallel()
	log, buf := newLog(t)
	r := newRigWith(t, nil, log, Options{})
	r.exec(t, "ALTER TABLE queues RENAME COLUMN paused TO halted")
	res := r.get(t, "/v1/queues").want(t, 500, "INTERNAL", "internal error")
	if strings.Contains(string(res.raw), "paused") {
		t.Errorf("tells the caller: %s", res.raw)
	}
	lines, text := buf.lines(t)
	last := lines[len(lines)-1]
	if last["level"] != "error" || last["request_id"] != res.RequestID || !strings.Contains(text, "paused") {
		t.Errorf("logged %v", last)
	}
}

// TestAPanicIsInternal and ends only its request; the stack is in the log.
func TestAPanicIsInternal(t *testing.T) {
	t.Parallel()
	log, buf := newLog(t)
	db := storetest.New(t)
	tenant := db.Tenant(t)
	table := append(routes(), route{http.MethodGet, "/v1/panic", []access.Action{access.QueuesRead}, nil, func(*API, context.Context, *call) (answer, error) {
		panic("secret inside")
	}})
	health := httpserver.NewHealth(context.Background(), db.Management.Ping)
	server := httptest.NewServer(newAPI(db.Management, log, Options{}, table).engine(health))
	defer server.Close()
	for range 2 {
		req, err := http.NewRequest("GET", server.URL+"/v1/panic", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+tenant.Token)
		res, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got := readResponse(t, "GET", res).want(t, 500, "INTERNAL", "internal error")
		if strings.Contains(string(got.raw), "secret inside") {
			t.Errorf("tells the caller: %s", got.raw)
		}
	}
	if _, text := buf.lines(t); strings.Count(text, "faults_test.go") != 2 || !strings.Contains(text, "secret inside") {
		t.Errorf("the log lacks the stacks: %s", text)
	}
}

// TestTheLogHasOneLinePerRequest with who, what and how long, and neither tokens nor bodies.
func TestTheLogHasOneLinePerRequest(t *testing.T) {
	t.Parallel()
	log, buf := newLog(t)
	r := newRigWith(t, nil, log, Options{})
	created := r.post(t, "/v1/queues", `{"name":"body-text"}`).ok(t, 201)
	refused := r.get(t, "/v1/queues/query-text?x=query-text").want(t, 400, "INVALID_ARGUMENT", "")
	r.do(t, request{method: "GET", path: "/v1/queues", token: "token-text"}).want(t, 401, "UNAUTHENTICATED", "")
	r.get(t, "/v1/path-text").want(t, 404, "NOT_FOUND", "")
	lines, text := buf.lines(t)
	want := []struct {
		route  string
		status float64
	}{{"/v1/queues", 201}, {"/v1/queues/{id}", 400}, {"/v1/queues", 401}, {"unmatched", 404}}
	if len(lines) != len(want) {
		t.Fatalf("%d lines for %d requests: %s", len(lines), len(want), text)
	}
	for i, w := range want {
		if lines[i]["route"] != w.route || lines[i]["status"] != w.status || lines[i]["duration_ms"] == nil {
			t.Errorf("line %d: %v, want %v", i, lines[i], w)
		}
	}
	if lines[0]["request_id"] != created.RequestID || lines[1]["request_id"] != refused.RequestID || lines[0]["credential_id"] != r.tenant.CredentialID.String() {
		t.Errorf("ids: %v, %v", lines[0], lines[1])
	}
	_, secret, _ := access.ParseToken(r.tenant.Token)
	for _, hidden := range []string{"body-text", "query-text", "token-text", "path-text", secret.Text()} {
		if strings.Contains(text, hidden) {
			t.Errorf("the log shows %q", hidden)
		}
	}
}

// TestADatabaseThatIsAway is UNAVAILABLE for calls and readiness, and no matter for liveness.
func TestADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	away, err := store.Open("orbit@tcp(127.0.0.1:1)/orbit", store.Pool{})
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	r := newRigWith(t, away, nop(), Options{})
	res := r.get(t, "/v1/queues").want(t, 503, "UNAVAILABLE", "the database cannot be reached")
	if res.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After: %q", res.header.Get("Retry-After"))
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 503} {
		probe, err := http.Get(r.url + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = probe.Body.Close()
		if probe.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, probe.StatusCode, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestNothingIsServedBeforeTheSchemaFits: R7.4.
func TestNothingIsServedBeforeTheSchemaFits(t *testing.T) {
	t.Parallel()
	r := newRigWith(t, nil, nop(), Options{Admit: func() bool { return false }})
	r.get(t, "/v1/queues").want(t, 503, "UNAVAILABLE", "the service is starting")
	r.get(t, "/v1/queues/"+ids.New().String()).want(t, 503, "UNAVAILABLE", "the service is starting")
}
