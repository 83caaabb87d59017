package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

var update = flag.Bool("update", false, "write the golden exchanges to api/testdata/http anew")

const goldenDir = "../../../../api/testdata/http"

// The ids that golden files show, as the user's document has them.
const (
	goldQueue        = "11111111111111111111111111111111"
	goldSubscription = "22222222222222222222222222222222"
	goldSchedule     = "44444444444444444444444444444444"
	goldDelivery     = "33333333333333333333333333333333"
	goldEvent        = "55555555555555555555555555555555"
	goldTask         = "66666666666666666666666666666666"
	goldRequest      = "77777777777777777777777777777777"
	goldCredential   = "88888888888888888888888888888888"
	goldOther        = "99999999999999999999999999999999"
	goldTime         = "2026-09-17T10:00:00Z"
	goldLocal        = "2026-09-17T15:30:00+05:30"
	goldCursor       = "next"
)

// exchange is one golden file: a request and its answer, with ids, times and cursors replaced. The
// SDK's tests read the same files.
type exchange struct {
	Request struct {
		Method string          `json:"method"`
		Path   string          `json:"path"`
		Body   json.RawMessage `json:"body,omitempty"`
	} `json:"request"`
	Response struct {
		Status int             `json:"status"`
		Body   json.RawMessage `json:"body"`
	} `json:"response"`
}

// golden compares exchanges with their files.
type golden struct {
	*rig
	known map[string]string // an id of this run and what stands for it
	seen  map[string]bool
}

var (
	idForm     = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	timeForm   = regexp.MustCompile(`\b2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`)
	localForm  = regexp.MustCompile(`\b2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9:]+\+05:30`)
	cursorForm = regexp.MustCompile(`"next_cursor":"[^"]*"`)
)

func (g *golden) replace(text string) string {
	text = idForm.ReplaceAllStringFunc(text, func(id string) string {
		if stand, ok := g.known[id]; ok {
			return stand
		}
		return goldOther
	})
	text = timeForm.ReplaceAllString(text, goldTime)
	text = localForm.ReplaceAllString(text, goldLocal)
	return cursorForm.ReplaceAllString(text, `"next_cursor":"`+goldCursor+`"`)
}

// do makes one exchange and holds it against its file.
func (g *golden) do(t *testing.T, name string, q request) *response {
	t.Helper()
	res := g.rig.do(t, q)
	g.known[res.RequestID] = goldRequest
	g.hold(t, name, q, res)
	return res
}

func (g *golden) hold(t *testing.T, name string, q request, res *response) {
	t.Helper()
	var e exchange
	e.Request.Method, e.Request.Path, e.Request.Body = q.method, g.replace(q.path), json.RawMessage(g.replace(q.body))
	e.Response.Status, e.Response.Body = res.status, json.RawMessage(g.replace(string(bytes.TrimSpace(res.raw))))
	got, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	got = append(got, '\n')
	g.seen[name+".json"] = true
	file := filepath.Join(goldenDir, name+".json")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
	}
}

func (g *golden) knows(id, stand string) string { g.known[id] = stand; return id }

// TestGoldenExchanges plays the user's document as it stands, then the rest of the API.
func TestGoldenExchanges(t *testing.T) {
	t.Parallel()
	g := &golden{rig: newRig(t), known: map[string]string{}, seen: map[string]bool{}}
	g.knows(g.tenant.CredentialID.String(), goldCredential)
	queue := g.knows(g.tenant.QueueID.String(), goldQueue)
	for range 12 {
		g.Outcome(t, g.tenant, `1`)
	}
	sub := g.document(t, queue)
	g.rest(t, queue)
	g.retirement(t)
	g.schedules(t, queue)
	g.flows(t, queue)
	g.errors(t, queue, sub)

	files, err := filepath.Glob(goldenDir + "/*.json")
	if err != nil || len(files) != len(g.seen) {
		t.Errorf("%d files for %d exchanges, %v", len(files), len(g.seen), err)
	}
}

// documentCreate is the body in section 2 of the user's document, its queue replaced.
const documentCreate = `{
  "name": "object-results",
  "queue_id": "11111111111111111111111111111111",
  "types": ["task.succeeded", "task.failed", "task.cancelled", "task.needs_review"],
  "max_pending": 100,
  "max_attempts": 20
}`

// The answers in sections 2 and 6 of the user's document.
const (
	documentCreated = `{
  "request_id": "77777777777777777777777777777777",
  "data": {
    "subscription": {
      "id": "22222222222222222222222222222222",
      "queue_id": "11111111111111111111111111111111",
      "credential_id": "88888888888888888888888888888888",
      "name": "object-results",
      "revision": "1",
      "enabled": true,
      "types": ["task.cancelled", "task.failed", "task.needs_review", "task.succeeded"],
      "cursor_sequence": "12",
      "pending_count": 0,
      "max_pending": 100,
      "max_attempts": 20,
      "created_at": "2026-09-17T10:00:00Z",
      "updated_at": "2026-09-17T10:00:00Z"
    },
    "deduplicated": false
  }
}`
	documentEvent = `{
  "id": "55555555555555555555555555555555",
  "sequence": "13",
  "type": "task.cancelled",
  "aggregate_kind": "task",
  "aggregate_id": "66666666666666666666666666666666",
  "aggregate_revision": "2",
  "occurred_at": "2026-09-17T10:00:00Z",
  "details": {"state": "CANCELLED", "reason": "CANCEL_REQUESTED"},
  "snapshot": {
    "schema_version": 1,
    "task_id": "66666666666666666666666666666666",
    "queue_id": "11111111111111111111111111111111",
    "state": "CANCELLED",
    "revision": "2",
    "effect_uncertain": false
  }
}`
)

func (g *golden) document(t *testing.T, queue string) (sub string) {
	t.Helper()
	create := request{method: "POST", path: "/v1/subscriptions", key: "k", body: strings.Replace(documentCreate, goldQueue, queue, 1)}
	first := g.rig.do(t, create).ok(t, 201) // its id is not known before
	text, _ := first.resource(t, "subscription")
	sub = g.knows(field(t, text, "id"), goldSubscription)
	g.known[first.RequestID] = goldRequest
	g.hold(t, "create_subscription", create, first)
	same(t, "section 2", g.replace(string(first.raw)), documentCreated)
	g.do(t, "create_subscription_repeated", create).ok(t, 200)

	cancelled := g.Submit(t, g.tenant, `{"path":"a/b.bin"}`)
	g.knows(cancelled.String(), goldTask)
	g.do(t, "cancel_task", request{method: "POST", path: "/v1/tasks/" + cancelled.String() + ":cancel", body: `{"expected_revision": "1", "reason": "no longer needed"}`}).ok(t, 200)
	claimed := g.claim(t, mustID(t, sub), 1)[0]
	delivery := g.knows(claimed.Delivery.ID.String(), goldDelivery)
	g.knows(claimed.Event.ID.String(), goldEvent)
	path := "/v1/subscriptions/" + sub + "/deliveries/" + delivery
	detail := g.do(t, "get_event_delivery", request{method: "GET", path: path}).ok(t, 200)
	var data map[string]json.RawMessage
	if err := json.Unmarshal([]byte(g.replace(string(detail.Data))), &data); err != nil {
		t.Fatal(err)
	}
	same(t, "section 6, event", string(data["event"]), documentEvent)
	same(t, "section 6, delivery", string(data["delivery"]), `{
  "created_at": "2026-09-17T10:00:00Z", "id": "33333333333333333333333333333333", "subscription_id": "22222222222222222222222222222222",
  "event_id": "55555555555555555555555555555555", "sequence": "13", "revision": "2", "state": "LEASED", "available_at": "2026-09-17T10:00:00Z",
  "lease_epoch": "1", "lease_until": "2026-09-17T10:00:00Z", "attempts": 1, "attempt_budget": 20}`)
	g.do(t, "list_event_deliveries", request{method: "GET", path: "/v1/subscriptions/" + sub + "/deliveries?state=LEASED&limit=1"}).ok(t, 200)
	g.do(t, "get_subscription", request{method: "GET", path: "/v1/subscriptions/" + sub}).ok(t, 200)
	g.do(t, "list_subscriptions", request{method: "GET", path: "/v1/subscriptions?queue_id=" + queue}).ok(t, 200)

	g.exec(t, "UPDATE deliveries SET attempt_budget = 1, lease_until = '2020-01-01'")
	g.claim(t, mustID(t, sub), 0)
	g.do(t, "retry_event_delivery", request{method: "POST", path: path + ":retry", body: `{
  "expected_revision": "3",
  "reason": "receiver persistence failure repaired",
  "additional_attempts": 2
}`}).ok(t, 200)
	g.do(t, "configure_subscription", request{method: "POST", path: "/v1/subscriptions/" + sub + ":configure", body: `{
  "expected_revision": "1",
  "enabled": false,
  "reason": "receiver maintenance"
}`}).ok(t, 200)
	g.do(t, "list_audit", request{method: "GET", path: "/v1/audit?limit=4"}).ok(t, 200)
	return sub
}

// same compares two JSON texts whatever their spacing and order of members.
func same(t *testing.T, name, got, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(got), &a); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func (g *golden) rest(t *testing.T, queue string) {
	t.Helper()
	post := func(name, path, body string) *response {
		return g.do(t, name, request{method: "POST", path: path, body: body})
	}
	get := func(name, path string) { g.do(t, name, request{method: "GET", path: path}).ok(t, 200) }
	post("create_queue", "/v1/queues", `{"name": "objects", "max_running": 10, "lease_duration_ms": 60000}`).ok(t, 201)
	get("get_queue", "/v1/queues/"+queue)
	get("list_queues", "/v1/queues?limit=1")
	post("configure_queue", "/v1/queues/"+queue+":configure", `{"expected_revision": "1", "reason": "no limit", "max_running": 0}`).ok(t, 200)
	const precise = `{"a":9007199254740993,"b":18446744073709551615,"c":1.0,"d":[1e400]}`
	text, _ := post("submit_task", "/v1/tasks", `{"queue_id": "`+queue+`", "input": `+precise+`, "retry_safety": "safe", "labels": {"tenant": "blue"}}`).ok(t, 201).resource(t, "task")
	done := g.knows(field(t, text, "id"), goldTask)
	for _, a := range g.Claim(t, g.tenant, 1) {
		g.Complete(t, g.tenant, a, precise)
	}
	get("get_task", "/v1/tasks/"+done)
	get("list_attempts", "/v1/tasks/"+done+"/attempts")
	get("list_tasks", "/v1/tasks?queue_id="+queue+"&state=SUCCEEDED&label=tenant:blue")
	post("submit_tasks", "/v1/tasks:batch", `{"tasks": [{"queue_id": "`+queue+`", "input": 1}, {"queue_id": "`+queue+`", "input": 2, "priority": 5}]}`).ok(t, 201)

	review := g.Claim(t, g.tenant, 1)[0]
	id := g.knows(review.Task.ID.String(), goldTask)
	g.exec(t, "UPDATE permits SET lease_until = '2020-01-01'")
	if n, err := g.Management.SweepAttempts(context.Background(), 10); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	post("resolve_task", "/v1/tasks/"+id+":resolve", `{"expected_revision": "3", "outcome": "succeeded", "result": {"n": 1.0}, "reason": "found in the target system"}`).ok(t, 200)
}

// errors has one exchange for each code that these endpoints answer.
func (g *golden) errors(t *testing.T, queue, sub string) {
	t.Helper()
	configure := "/v1/subscriptions/" + sub + ":configure"
	body := `{"expected_revision": "1", "enabled": true, "reason": "r"}`
	for _, c := range []struct {
		name, code string
		status     int
		q          request
	}{
		{"error_invalid_argument", "INVALID_ARGUMENT", 400, request{method: "POST", path: "/v1/subscriptions", body: `{"name": "s", "queue_id": "` + queue + `", "max_pending": 1001}`}},
		{"error_unauthenticated", "UNAUTHENTICATED", 401, request{method: "GET", path: "/v1/queues", token: "nonsense"}},
		{"error_not_found", "NOT_FOUND", 404, request{method: "GET", path: "/v1/subscriptions/" + ids.New().String()}},
		{"error_state_conflict", "STATE_CONFLICT", 409, request{method: "POST", path: configure, body: body}},
		{"error_idempotency_conflict", "IDEMPOTENCY_CONFLICT", 409, request{method: "POST", path: configure, key: "k", body: body}},
	} {
		g.do(t, c.name, c.q).want(t, c.status, c.code, "")
	}
	id, token, err := g.Owner.CreateCredential(t.Context(), g.namespace(t), "app", "reader", rightsOf("queues:read"))
	if err != nil {
		t.Fatal(err)
	}
	g.knows(id.String(), goldCredential)
	g.do(t, "error_permission_denied", request{method: "POST", path: configure, token: token, body: body}).want(t, 403, "PERMISSION_DENIED", "")

	create := func(name, from string) request {
		return request{method: "POST", path: "/v1/subscriptions", body: `{"name": "` + name + `", "queue_id": "` + queue + `", "from_sequence": "` + from + `"}`}
	}
	g.exec(t, "UPDATE result_streams SET boundary = 10")
	g.do(t, "error_event_history_expired", create("late", "7")).want(t, 410, "EVENT_HISTORY_EXPIRED", "")
	for i := range 63 {
		g.rig.do(t, create(fmt.Sprintf("s%d", i), "10")).ok(t, 201)
	}
	g.do(t, "error_subscription_limit", create("one-too-many", "10")).want(t, 409, "SUBSCRIPTION_LIMIT", "")
	g.exec(t, "INSERT INTO application_quotas (namespace_id, application_id, queued_limit, running_limit) VALUES (?, ?, 1, 0)", g.tenant.NamespaceID[:], g.tenant.ApplicationID[:])
	g.known[g.tenant.ApplicationID.String()] = goldOther
	g.do(t, "error_capacity_exceeded", request{method: "POST", path: "/v1/tasks", body: `{"queue_id": "` + queue + `", "input": 1}`}).want(t, 429, "CAPACITY_EXCEEDED", "")
	g.exec(t, "RENAME TABLE queues TO lost")
	g.do(t, "error_internal", request{method: "GET", path: "/v1/queues"}).want(t, 500, "INTERNAL", "")
}
