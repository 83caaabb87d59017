package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
)

func TestCreateQueueFields(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	name128 := strings.Repeat("n", 128)
	cases := []struct {
		name, body string
		status     int
		code       string
		message    string
	}{
		{"only a name", `{"name":"a"}`, 201, "", ""},
		{"case matters", `{"name":"A"}`, 201, "", ""},
		{"name of 128", `{"name":"` + name128 + `"}`, 201, "", ""},
		{"name of 129", `{"name":"` + name128 + `n"}`, 400, "INVALID_ARGUMENT", "name: "},
		{"empty name", `{"name":""}`, 400, "INVALID_ARGUMENT", "name: "},
		{"no name", `{}`, 400, "INVALID_ARGUMENT", "name: "},
		{"null name", `{"name":null}`, 400, "INVALID_ARGUMENT", "name: "},
		{"trailing space", `{"name":"a "}`, 400, "INVALID_ARGUMENT", "name: "},
		{"not ASCII", `{"name":"é"}`, 400, "INVALID_ARGUMENT", "name: "},
		{"first character", `{"name":"-a"}`, 400, "INVALID_ARGUMENT", "name: "},
		{"taken name", `{"name":"a"}`, 409, "STATE_CONFLICT", "name: "},
		{"max_running −1", `{"name":"r1","max_running":-1}`, 400, "INVALID_ARGUMENT", "max_running: "},
		{"max_running 0", `{"name":"r2","max_running":0}`, 201, "", ""},
		{"max_running 1", `{"name":"r3","max_running":1}`, 201, "", ""},
		{"max_running 1000000", `{"name":"r4","max_running":1000000}`, 201, "", ""},
		{"max_running 1000001", `{"name":"r5","max_running":1000001}`, 400, "INVALID_ARGUMENT", "max_running: "},
		{"max_running 1.0", `{"name":"r6","max_running":1.0}`, 400, "INVALID_ARGUMENT", "max_running: "},
		{"max_running as text", `{"name":"r7","max_running":"1"}`, 400, "INVALID_ARGUMENT", "max_running: "},
		{"max_running past int64", `{"name":"r8","max_running":9223372036854775808}`, 400, "INVALID_ARGUMENT", "max_running: "},
		{"lease 0 is the default", `{"name":"l0","lease_duration_ms":0}`, 201, "", ""},
		{"lease 4999", `{"name":"l1","lease_duration_ms":4999}`, 400, "INVALID_ARGUMENT", "lease_duration_ms: "},
		{"lease 5000", `{"name":"l2","lease_duration_ms":5000}`, 201, "", ""},
		{"lease 5001", `{"name":"l3","lease_duration_ms":5001}`, 201, "", ""},
		{"lease 3600000", `{"name":"l4","lease_duration_ms":3600000}`, 201, "", ""},
		{"lease 3600001", `{"name":"l5","lease_duration_ms":3600001}`, 400, "INVALID_ARGUMENT", "lease_duration_ms: "},
		{"unknown member", `{"name":"u1","paused":true}`, 400, "INVALID_ARGUMENT", "paused: unknown member"},
		{"other case", `{"Name":"u2"}`, 400, "INVALID_ARGUMENT", "Name: unknown member"},
		{"duplicate key", `{"name":"u3","name":"u4"}`, 400, "INVALID_ARGUMENT", "name: appears twice"},
		{"array", `[]`, 400, "INVALID_ARGUMENT", "body: "},
		{"nothing", ` `, 400, "INVALID_ARGUMENT", "body: "},
		{"trailing data", `{"name":"u5"} {}`, 400, "INVALID_ARGUMENT", "body: "},
		{"cut short", `{"name":"u6"`, 400, "INVALID_ARGUMENT", "body: "},
		{"invalid UTF-8", "{\"name\":\"\xff\"}", 400, "INVALID_ARGUMENT", "name: "},
		{"lone surrogate", `{"name":"\ud800"}`, 400, "INVALID_ARGUMENT", "name: "},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r.post(t, "/v1/queues", c.body).want(t, c.status, c.code, c.message)
		})
	}
	text, _ := r.post(t, "/v1/queues", `{"name":"defaults"}`).ok(t, 201).resource(t, "queue")
	for member, want := range map[string]string{"revision": "1", "paused": "false", "max_running": "0", "lease_duration_ms": "30000"} {
		if got := field(t, text, member); got != want {
			t.Errorf("%s is %s, want %s", member, got, want)
		}
	}
	read := r.get(t, "/v1/queues/"+field(t, text, "id")).ok(t, 200)
	if string(read.Data) != text {
		t.Errorf("read %s, created %s", read.Data, text)
	}
}

func TestListQueuesPagesNewestFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	want := []string{r.tenant.QueueID.String()}
	for i := range 6 {
		text, _ := r.post(t, "/v1/queues", fmt.Sprintf(`{"name":"q%d"}`, i)).ok(t, 201).resource(t, "queue")
		want = append([]string{field(t, text, "id")}, want...)
	}
	for _, limit := range []int{1, 2, 3, 6, 7, 8, 100} {
		got := r.walk(t, fmt.Sprintf("/v1/queues?limit=%d", limit))
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
	}
}

// walk follows cursors to the end and returns the ids.
func (r *rig) walk(t *testing.T, path string) []string {
	t.Helper()
	var out []string
	cursor := ""
	for {
		page := r.get(t, path+cursor).ok(t, 200).list(t)
		for _, item := range page.Items {
			out = append(out, field(t, string(item), "id"))
		}
		if page.NextCursor == "" {
			return out
		}
		cursor = "&cursor=" + page.NextCursor
	}
}

func TestACreatedQueueJoinsTheScope(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id, token, err := r.Owner.CreateCredential(t.Context(), r.namespace(t), "app", "narrow", rightsOf(access.QueuesManage, access.QueuesRead))
	if err != nil {
		t.Fatal(err)
	}
	r.do(t, request{method: http.MethodGet, path: "/v1/queues/" + r.tenant.QueueID.String(), token: token}).want(t, 404, "NOT_FOUND", "queue ")
	if n := len(r.do(t, request{method: http.MethodGet, path: "/v1/queues", token: token}).list(t).Items); n != 0 {
		t.Errorf("%d queues in an empty scope of credential %s", n, id)
	}
	var mine []string
	for i := range 5 {
		text, _ := r.do(t, request{method: http.MethodPost, path: "/v1/queues", token: token, body: fmt.Sprintf(`{"name":"mine%d"}`, i)}).ok(t, 201).resource(t, "queue")
		mine = append([]string{field(t, text, "id")}, mine...)
		r.do(t, request{method: http.MethodGet, path: "/v1/queues/" + mine[0], token: token}).ok(t, 200)
	}
	first := r.do(t, request{method: http.MethodGet, path: "/v1/queues?limit=3", token: token}).list(t)
	second := r.do(t, request{method: http.MethodGet, path: "/v1/queues?limit=3&cursor=" + first.NextCursor, token: token}).list(t)
	var got []string
	for _, item := range append(first.Items, second.Items...) {
		got = append(got, field(t, string(item), "id"))
	}
	if fmt.Sprint(got) != fmt.Sprint(mine) || second.NextCursor != "" {
		t.Errorf("listed %v and cursor %q, want %v", got, second.NextCursor, mine)
	}
}

func TestPausedQueueStillTakesTasks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(t, "UPDATE queues SET paused = 1")
	r.post(t, "/v1/tasks", `{"queue_id":"`+r.tenant.QueueID.String()+`","input":null}`).ok(t, 201)
}
