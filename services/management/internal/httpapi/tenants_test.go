package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// TestNothingOfAnotherIsReachable is E4: every id, cursor and key of A used by B, where B is another
// namespace, another credential of the same namespace, or has another queue scope. Each answer has
// the shape of that for an id that never existed, and changes nothing.
func TestNothingOfAnotherIsReachable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := r.history(t, 2)
	sub, queue, delivery := h.id.String(), r.tenant.QueueID.String(), h.byState["EXPIRED"][0]
	r.subscribe(t, `{"name":"second","queue_id":"`+queue+`"}`)
	task := r.Submit(t, r.tenant, `"theirs"`).String()

	schedule := r.schedule(t).String()

	stranger := r.Tenant(t)
	all := store.Rights{Actions: access.Actions, AllQueues: true}
	_, colleague, err := r.Owner.CreateCredential(t.Context(), r.namespace(t), "app", "colleague", all)
	if err != nil {
		t.Fatal(err)
	}
	_, narrow, err := r.Owner.CreateCredential(t.Context(), r.namespace(t), "app", "narrow", store.Rights{Actions: access.Actions})
	if err != nil {
		t.Fatal(err)
	}

	type probe struct {
		method, path, body string
		kind               string // of the thing that is not there
		shared             bool   // a colleague of the same namespace and scope may use it
	}
	probes := []probe{
		{"GET", "/v1/queues/" + queue, "", "queue " + queue, true},
		{"GET", "/v1/tasks/" + task, "", "task " + task, true},
		{"POST", "/v1/tasks/" + task + ":cancel", `{"expected_revision":"9","reason":"r"}`, "task " + task, true},
		{"POST", "/v1/tasks", `{"queue_id":"` + queue + `","input":1}`, "queue " + queue, true},
		{"POST", "/v1/subscriptions", `{"name":"probe","queue_id":"` + queue + `"}`, "queue " + queue, true},
		{"GET", "/v1/subscriptions?queue_id=" + queue, "", "queue " + queue, true},
		{"GET", "/v1/subscriptions/" + sub, "", "subscription " + sub, false},
		{"POST", "/v1/queues/" + queue + ":retire", `{"expected_revision":"9","reason":"r"}`, "queue " + queue, true},
		{"POST", "/v1/subscriptions/" + sub + ":retire", `{"expected_revision":"9","reason":"r"}`, "subscription " + sub, false},
		{"POST", "/v1/subscriptions/" + sub + ":configure", `{"expected_revision":"1","enabled":false,"reason":"r"}`, "subscription " + sub, false},
		{"GET", "/v1/subscriptions/" + sub + "/deliveries", "", "subscription " + sub, false},
		{"GET", h.path(delivery), "", "subscription " + sub, false},
		{"POST", "/v1/schedules", `{"name":"probe","queue_id":"` + queue + `","every":60,"task":{"input":1}}`, "queue " + queue, true},
		{"GET", "/v1/schedules?queue_id=" + queue, "", "queue " + queue, true},
		{"GET", "/v1/schedules/" + schedule, "", "schedule " + schedule, true},
		{"GET", "/v1/schedules/" + schedule + "/preview", "", "schedule " + schedule, true},
		{"GET", "/v1/schedules/" + schedule + "/fires", "", "schedule " + schedule, true},
		{"POST", "/v1/schedules/" + schedule + ":update", `{"expected_revision":"2","reason":"r","every":60,"task":{"input":1}}`, "schedule " + schedule, true},
		{"POST", "/v1/schedules/" + schedule + ":publish", `{"expected_revision":"2","reason":"r"}`, "schedule " + schedule, true},
		{"POST", "/v1/schedules/" + schedule + ":pause", `{"expected_revision":"2","reason":"r"}`, "schedule " + schedule, true},
		{"POST", "/v1/schedules/" + schedule + ":resume", `{"expected_revision":"2","reason":"r"}`, "schedule " + schedule, true},
		{"POST", "/v1/schedules/" + schedule + ":run", `{"expected_revision":"2","reason":"r"}`, "schedule " + schedule, true},
		{"POST", h.path(delivery) + ":retry", `{"expected_revision":"3","reason":"r","additional_attempts":1}`, "subscription " + sub, false},
	}
	for who, token := range map[string]string{"stranger": stranger.Token, "colleague": colleague, "narrow": narrow} {
		for _, p := range probes {
			if who == "colleague" && p.shared {
				continue
			}
			t.Run(fmt.Sprintf("%s %s %s", who, p.method, p.path), func(t *testing.T) {
				theirs := r.do(t, request{method: p.method, path: p.path, body: p.body, token: token}).want(t, 404, "NOT_FOUND", p.kind+" does not exist here")
				nobodys := ids.New().String()
				swap := strings.NewReplacer(sub, nobodys, queue, nobodys, task, nobodys, delivery, nobodys, schedule, nobodys)
				missing := r.do(t, request{method: p.method, path: swap.Replace(p.path), body: swap.Replace(p.body), token: token}).ok(t, 404)
				if swap.Replace(theirs.Error.Message) != missing.Error.Message || len(theirs.header) != len(missing.header) {
					t.Errorf("tells them apart: %s and %s", theirs.raw, missing.raw)
				}
			})
		}
	}
	if n := r.count(t, "SELECT COUNT(*) FROM subscriptions WHERE name = 'probe' OR (enabled = 0 AND id = ?)", h.id[:]); n != 0 {
		t.Errorf("%d rows were changed by others", n)
	}
	r.keysAndCursorsStayApart(t, stranger.Token, colleague, h)
}

func (r *rig) keysAndCursorsStayApart(t *testing.T, stranger, colleague string, h history) {
	t.Helper()
	queue := r.tenant.QueueID.String()
	cursors := map[string]string{}
	for name, path := range map[string]string{
		"subscriptions": "/v1/subscriptions?limit=1&queue_id=" + queue,
		"deliveries":    "/v1/subscriptions/" + h.id.String() + "/deliveries?limit=1",
		"acked":         "/v1/subscriptions/" + h.id.String() + "/deliveries?limit=1&state=ACKED",
		"audit":         "/v1/audit?limit=1",
	} {
		if cursors[name] = r.get(t, path).ok(t, 200).list(t).NextCursor; cursors[name] == "" {
			t.Fatalf("%s: one page holds all", name)
		}
	}
	other, _ := r.post(t, "/v1/queues", `{"name":"other"}`).ok(t, 201).resource(t, "queue")
	second := r.subscribe(t, `{"name":"third","queue_id":"`+queue+`"}`)
	misuse := []struct{ name, path, token string }{
		{"audit", "/v1/audit?cursor=", stranger},
		{"audit", "/v1/audit?cursor=", colleague},
		{"audit", "/v1/queues?cursor=", ""},
		{"subscriptions", "/v1/subscriptions?queue_id=" + queue + "&cursor=", colleague},
		{"subscriptions", "/v1/subscriptions?queue_id=" + field(t, other, "id") + "&cursor=", ""},
		{"subscriptions", "/v1/queues?cursor=", ""},
		{"deliveries", "/v1/subscriptions/" + h.id.String() + "/deliveries?state=ACKED&cursor=", ""},
		{"acked", "/v1/subscriptions/" + h.id.String() + "/deliveries?cursor=", ""},
		{"acked", "/v1/subscriptions/" + h.id.String() + "/deliveries?state=PENDING&cursor=", ""},
		{"deliveries", "/v1/subscriptions/" + second + "/deliveries?cursor=", ""},
	}
	for _, m := range misuse {
		r.do(t, request{method: "GET", path: m.path + cursors[m.name], token: m.token}).want(t, 400, "INVALID_ARGUMENT", "cursor: is not one that this list gave out")
	}
	r.get(t, "/v1/subscriptions/"+h.id.String()+"/deliveries?limit=2&cursor="+cursors["deliveries"]).ok(t, 200) // limit may change

	r.exec(t, "UPDATE result_streams SET generation = ?", make([]byte, 16)) // as after a restore
	r.get(t, "/v1/audit?cursor="+cursors["audit"]).want(t, 400, "INVALID_ARGUMENT", "cursor: ")

	r.do(t, request{method: "POST", path: "/v1/queues", key: "shared", body: `{"name":"mine"}`}).ok(t, 201)
	r.do(t, request{method: "POST", path: "/v1/queues", key: "shared", token: stranger, body: `{"name":"theirs"}`}).ok(t, 201)
	r.do(t, request{method: "POST", path: "/v1/queues", key: "shared", token: stranger, body: `{"name":"mine"}`}).want(t, 409, "IDEMPOTENCY_CONFLICT", "")
}

// TestEachActionOpensItsEndpointsOnly: none implies another.
func TestEachActionOpensItsEndpointsOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tokens := map[access.Action]string{}
	for _, action := range access.Actions {
		_, token, err := r.Owner.CreateCredential(t.Context(), r.namespace(t), "app", "one", store.Rights{Actions: []access.Action{action}, AllQueues: true})
		if err != nil {
			t.Fatal(err)
		}
		tokens[action] = token
	}
	id := ids.New().String()
	for _, rt := range routes() {
		path := strings.NewReplacer("{id}", id, "{delivery_id}", id).Replace(rt.template)
		for action, token := range tokens {
			q := request{method: rt.method, path: path, token: token}
			if rt.isWrite() {
				q.body = "["
			} else {
				q.path += "?nonsense"
			}
			res := r.do(t, q)
			allowed := false
			for _, a := range rt.actions {
				allowed = allowed || a == action
			}
			if allowed != (res.status == http.StatusBadRequest) || allowed == (res.status == http.StatusForbidden) {
				t.Errorf("%s %s with %s: %d %s", rt.method, rt.template, action, res.status, res.raw)
			}
		}
	}
}

// TestARevokedCredentialIsOutAtOnce, and one secret of several without the others.
func TestARevokedCredentialIsOutAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rights := rightsOf("queues:read")
	rights.AllQueues = true
	id, old, err := r.Owner.CreateCredential(t.Context(), r.namespace(t), "app", "c", rights)
	if err != nil {
		t.Fatal(err)
	}
	status := func(token string) int {
		return r.do(t, request{method: "GET", path: "/v1/queues", token: token}).status
	}
	fresh, err := r.Owner.AddSecret(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if status(old) != 200 || status(fresh) != 200 {
		t.Error("the secrets do not overlap")
	}
	list, err := r.Owner.ListCredentials(t.Context(), r.namespace(t))
	if err != nil {
		t.Fatal(err)
	}
	secrets := list[len(list)-1].Secrets
	if err := r.Owner.RevokeSecret(t.Context(), id, secrets[0].Fingerprint); err != nil {
		t.Fatal(err)
	}
	if status(old) != 401 || status(fresh) != 200 {
		t.Errorf("after revoking the old secret: %d and %d", status(old), status(fresh))
	}
	if err := r.Owner.RevokeCredential(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if status(fresh) != 401 {
		t.Errorf("after revoking the credential: %d", status(fresh))
	}
}
