package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// retirable is what both :retire endpoints share in this test.
type retirable struct {
	kind, id, path string
}

// retireWrites adds a retirement of each kind, of resources that nothing uses.
func (r *rig) retireWrites(t *testing.T, writes map[string]request) {
	t.Helper()
	queue := func(name string) string {
		text, _ := r.post(t, "/v1/queues", `{"name": "`+name+`"}`).ok(t, 201).resource(t, "queue")
		return field(t, text, "id")
	}
	sub := r.subscribe(t, `{"name": "to-retire", "queue_id": "`+queue("quiet")+`"}`)
	const body = `{"expected_revision": "1", "reason": "r"}`
	writes["queue retire"] = request{method: "POST", path: "/v1/queues/" + queue("to-retire") + ":retire", body: body}
	writes["subscription retire"] = request{method: "POST", path: "/v1/subscriptions/" + sub + ":retire", body: body}
}

// TestRetireKeepsTheOrderOfChecks: R2.9 on both endpoints, and nothing is written by a refusal.
func TestRetireKeepsTheOrderOfChecks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	text, _ := r.post(t, "/v1/queues", `{"name": "q"}`).ok(t, 201).resource(t, "queue")
	queue := field(t, text, "id")
	sub := r.subscribe(t, `{"name": "s", "queue_id": "`+r.tenant.QueueID.String()+`"}`)
	tokenOf := func(name string, actions ...access.Action) string {
		t.Helper()
		rights := rightsOf(actions...)
		rights.AllQueues = true
		_, token, err := r.Owner.CreateCredential(t.Context(), r.namespace(t), "app", name, rights)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	reader, other := tokenOf("reader", "events:read", "queues:read"), tokenOf("other", "events:manage", "queues:manage")
	const body = `{"expected_revision": "1", "reason": "r"}`
	for _, kind := range []retirable{
		{"queue", queue, "/v1/queues/" + queue + ":retire"},
		{"subscription", sub, "/v1/subscriptions/" + sub + ":retire"},
	} {
		for _, c := range []struct {
			name          string
			q             request
			status        int
			code, message string
		}{
			{"no credential", request{path: kind.path, token: "nonsense", body: "{"}, 401, "UNAUTHENTICATED", ""},
			{"no action", request{path: kind.path, token: reader, body: "{"}, 403, "PERMISSION_DENIED", ""},
			{"a parameter", request{path: kind.path + "?force=true", body: body}, 400, "INVALID_ARGUMENT", "query: "},
			{"no id", request{path: strings.Replace(kind.path, kind.id, "abc", 1), body: body}, 400, "INVALID_ARGUMENT", "id: "},
			{"no body", request{path: kind.path}, 400, "INVALID_ARGUMENT", ""},
			{"unknown member", request{path: kind.path, body: `{"expected_revision": "1", "reason": "r", "force": true}`}, 400, "INVALID_ARGUMENT", "force: "},
			{"no revision", request{path: kind.path, body: `{"reason": "r"}`}, 400, "INVALID_ARGUMENT", "expected_revision: "},
			{"null revision", request{path: kind.path, body: `{"expected_revision": null, "reason": "r"}`}, 400, "INVALID_ARGUMENT", "expected_revision: "},
			{"a number", request{path: kind.path, body: `{"expected_revision": 1, "reason": "r"}`}, 400, "INVALID_ARGUMENT", "expected_revision: "},
			{"no reason", request{path: kind.path, body: `{"expected_revision": "1"}`}, 400, "INVALID_ARGUMENT", "reason: "},
			{"reason of 1025", request{path: kind.path, body: `{"expected_revision": "1", "reason": "` + strings.Repeat("界", 1025) + `"}`}, 400, "INVALID_ARGUMENT", "reason: "},
			{"unknown id", request{path: strings.Replace(kind.path, kind.id, ids.New().String(), 1), body: body}, 404, "NOT_FOUND", kind.kind + " "},
			{"stale", request{path: kind.path, body: `{"expected_revision": "2", "reason": "r"}`}, 409, "STATE_CONFLICT", kind.kind + " "},
		} {
			c.q.method = "POST"
			res := r.do(t, c.q)
			if res.status != c.status || res.Error.Code != c.code || !strings.HasPrefix(res.Error.Message, c.message) {
				t.Errorf("%s, %s: got %d %s, want %d %s %s", kind.kind, c.name, res.status, res.raw, c.status, c.code, c.message)
			}
		}
		r.do(t, request{method: "GET", path: kind.path}).want(t, 405, "INVALID_ARGUMENT", "")
	}
	r.do(t, request{method: "POST", path: "/v1/subscriptions/" + sub + ":retire", token: other, body: body}).want(t, 404, "NOT_FOUND", "")
	if n := r.count(t, "SELECT (SELECT COUNT(*) FROM queues WHERE retired_at IS NOT NULL) + (SELECT COUNT(*) FROM subscriptions WHERE retired_at IS NOT NULL)"); n != 0 {
		t.Errorf("%d were retired by refused requests", n)
	}
	if n := r.count(t, "SELECT COUNT(*) FROM audit WHERE action LIKE '%.retire'"); n != 0 {
		t.Errorf("%d refused requests are audited", n)
	}
}

// TestRetiredForEver: the old key gets the old answer, whatever became of the resource; the same key
// with other content is a conflict; a new command is refused; every read shows it.
func TestRetiredForEver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	text, _ := r.post(t, "/v1/queues", `{"name": "q"}`).ok(t, 201).resource(t, "queue")
	queue := field(t, text, "id")
	create := request{method: "POST", path: "/v1/subscriptions", key: "create", body: `{"name": "s", "queue_id": "` + queue + `"}`}
	created := r.do(t, create).ok(t, 201)
	text, _ = created.resource(t, "subscription")
	sub := field(t, text, "id")
	submit := request{method: "POST", path: "/v1/tasks", key: "submit", body: `{"queue_id": "` + queue + `", "input": 1}`}
	submitted, _ := r.do(t, submit).ok(t, 201).resource(t, "task")
	task := field(t, submitted, "id")
	r.post(t, "/v1/tasks/"+task+":cancel", `{"expected_revision": "1", "reason": "r"}`).ok(t, 200)
	tenant := r.tenant
	tenant.QueueID = mustID(t, queue)
	r.consume(t, tenant, mustID(t, sub))

	for _, kind := range []retirable{
		{kind: "subscription", id: sub, path: "/v1/subscriptions/" + sub},
		{kind: "queue", id: queue, path: "/v1/queues/" + queue},
	} {
		retire := request{method: "POST", path: kind.path + ":retire", key: "retire-" + kind.kind, body: `{"expected_revision": "1", "reason": "done"}`}
		first, repeated := r.do(t, retire).ok(t, 200).resource(t, kind.kind)
		if repeated || field(t, first, "revision") != "2" || field(t, first, "retired_at") != field(t, first, "updated_at") {
			t.Errorf("%s: %s", kind.kind, first)
		}
		for range 2 {
			again, repeated := r.do(t, retire).ok(t, 200).resource(t, kind.kind)
			if !repeated || again != first {
				t.Errorf("%s, same key: %v %s, first %s", kind.kind, repeated, again, first)
			}
		}
		// The order and the spacing of members are not content.
		spaced := retire
		spaced.body = `{ "reason":"done","expected_revision":"1" }`
		r.do(t, spaced).ok(t, 200)
		for _, body := range []string{`{"expected_revision": "2", "reason": "done"}`, `{"expected_revision": "1", "reason": "other"}`} {
			other := retire
			other.body = body
			r.do(t, other).want(t, 409, "IDEMPOTENCY_CONFLICT", "")
			other.key = ""
			r.do(t, other).want(t, 409, "RESOURCE_RETIRED", kind.kind+" "+kind.id)
		}
		if read := string(r.get(t, kind.path).ok(t, 200).Data); read != first {
			t.Errorf("%s is read as %s, was %s", kind.kind, read, first)
		}
	}
	for name, q := range map[string]request{
		"configure subscription": {path: "/v1/subscriptions/" + sub + ":configure", body: `{"expected_revision": "2", "enabled": true, "reason": "r"}`},
		"configure queue":        {path: "/v1/queues/" + queue + ":configure", body: `{"expected_revision": "2", "paused": false, "reason": "r"}`},
		"submit":                 {path: "/v1/tasks", body: submit.body},
		"submit batch":           {path: "/v1/tasks:batch", body: `{"tasks": [{"queue_id": "` + r.tenant.QueueID.String() + `", "input": 1}, ` + submit.body + `]}`},
		"subscribe":              {path: "/v1/subscriptions", body: `{"name": "s2", "queue_id": "` + queue + `"}`},
	} {
		q.method = "POST"
		if res := r.do(t, q); res.status != 409 || res.Error.Code != "RESOURCE_RETIRED" || !strings.Contains(res.Error.Message, " was retired at ") {
			t.Errorf("%s: %d %s", name, res.status, res.raw)
		}
	}
	// Receipts of before stay as they were.
	if again, repeated := r.do(t, submit).ok(t, 200).resource(t, "task"); !repeated || again != submitted {
		t.Errorf("an old submit: %v %s", repeated, again)
	}
	if again, repeated := r.do(t, create).ok(t, 200).resource(t, "subscription"); !repeated || strings.Contains(again, "retired_at") {
		t.Errorf("an old create: %v %s", repeated, again)
	}
	for name, n := range map[string]int{
		"/v1/tasks?queue_id=" + queue:              1,
		"/v1/subscriptions?queue_id=" + queue:      1,
		"/v1/subscriptions/" + sub + "/deliveries": 1,
		"/v1/queues": 2,
	} {
		page := r.get(t, name).ok(t, 200).list(t)
		if len(page.Items) != n {
			t.Errorf("%s has %d items", name, len(page.Items))
		}
		if strings.HasSuffix(name, queue) && strings.HasPrefix(name, "/v1/subscriptions") && field(t, string(page.Items[0]), "retired_sequence") != field(t, string(page.Items[0]), "cursor_sequence") {
			t.Errorf("listed as %s", page.Items[0])
		}
	}
	r.get(t, "/v1/tasks/"+task).ok(t, 200)
	for _, create := range []request{
		{path: "/v1/queues", body: `{"name": "q"}`},
		{path: "/v1/subscriptions", body: `{"name": "s", "queue_id": "` + r.tenant.QueueID.String() + `"}`},
	} {
		create.method = "POST"
		r.do(t, create).want(t, 409, "STATE_CONFLICT", "name: ")
	}
}

// TestRetiringFreesOnePlace: 64 are active; of many that race for the place of a retired one exactly
// one more is made.
func TestRetiringFreesOnePlace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	queue := r.tenant.QueueID.String()
	var subs []string
	for i := range 64 {
		subs = append(subs, r.subscribe(t, fmt.Sprintf(`{"name": "s%d", "queue_id": "%s"}`, i, queue)))
	}
	r.post(t, "/v1/subscriptions/"+subs[1]+":configure", `{"expected_revision": "1", "enabled": false, "reason": "a paused one counts"}`).ok(t, 200)
	create := func(name string) request {
		return request{method: "POST", path: "/v1/subscriptions", body: `{"name": "` + name + `", "queue_id": "` + queue + `"}`}
	}
	r.do(t, create("more")).want(t, 409, "SUBSCRIPTION_LIMIT", "")
	r.post(t, "/v1/subscriptions/"+subs[0]+":retire", `{"expected_revision": "1", "reason": "r"}`).ok(t, 200)
	r.do(t, create("one")).ok(t, 201)
	r.do(t, create("two")).want(t, 409, "SUBSCRIPTION_LIMIT", "")

	const racers = 8
	for round := range 5 {
		made := make(chan bool, racers)
		go func() {
			r.post(t, "/v1/subscriptions/"+subs[2+round]+":retire", `{"expected_revision": "1", "reason": "r"}`).want(t, 200, "", "")
		}()
		for i := range racers {
			go func() {
				for { // until the place of this round is taken
					res := r.do(t, create(fmt.Sprintf("r%d-%d", round, i)))
					if res.status == 201 {
						made <- true
						return
					}
					res.want(t, 409, "SUBSCRIPTION_LIMIT", "")
					if r.active(t) == 64 && r.retired(t) == 2+round {
						made <- false
						return
					}
				}
			}()
		}
		n := 0
		for range racers {
			if <-made {
				n++
			}
		}
		if n != 1 || r.active(t) != 64 {
			t.Fatalf("round %d: %d were made, %d are active", round, n, r.active(t))
		}
	}
}

func (r *rig) active(t *testing.T) int {
	return r.count(t, "SELECT COUNT(*) FROM subscriptions WHERE retired_at IS NULL")
}

func (r *rig) retired(t *testing.T) int {
	return r.count(t, "SELECT COUNT(*) FROM subscriptions WHERE retired_at IS NOT NULL")
}
