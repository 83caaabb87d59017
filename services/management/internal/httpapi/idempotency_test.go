package httpapi

import (
	"fmt"
	"sync"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// writes has one request of every write endpoint, each of which succeeds once, with what it answers.
func (r *rig) writes(t *testing.T) map[string]request {
	t.Helper()
	queue := r.tenant.QueueID.String()
	sub := r.subscribe(t, `{"name":"to-configure","queue_id":"`+queue+`"}`)
	h := r.history(t, 1)
	for len(r.Claim(t, r.tenant, 1)) > 0 { // only the task below waits
	}
	task := r.Submit(t, r.tenant, `1`).String()
	writes := map[string]request{
		"queue":        {method: "POST", path: "/v1/queues", body: `{"name":"w"}`},
		"task":         {method: "POST", path: "/v1/tasks", body: `{"queue_id":"` + queue + `","input":{"a":1}}`},
		"task cancel":  {method: "POST", path: "/v1/tasks/" + task + ":cancel", body: `{"expected_revision":"1","reason":"r"}`},
		"subscription": {method: "POST", path: "/v1/subscriptions", body: `{"name":"w","queue_id":"` + queue + `"}`},
		"subscription configure": {method: "POST", path: "/v1/subscriptions/" + sub + ":configure",
			body: `{"expected_revision":"1","enabled":false,"reason":"r"}`},
		"delivery retry": {method: "POST", path: h.path(h.byState["EXPIRED"][0]) + ":retry",
			body: `{"expected_revision":"3","reason":"r","additional_attempts":2}`},
	}
	r.scheduleWrites(t, writes)
	r.retireWrites(t, writes)
	return writes
}

// resourceOf is the member that a write answers.
func resourceOf(name string) string {
	var first string
	_, _ = fmt.Sscan(name, &first)
	return first
}

// TestFiftyWritesOfOneKey is E1: one effect, one audit row, one receipt, and 49 equal answers.
func TestFiftyWritesOfOneKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, q := range r.writes(t) {
		t.Run(name, func(t *testing.T) {
			q.key = ids.New().String()
			audits := r.count(t, "SELECT COUNT(*) FROM audit")
			answers := make([]*response, 50)
			var all sync.WaitGroup
			for i := range answers {
				all.Go(func() { answers[i] = r.do(t, q) })
			}
			all.Wait()
			firsts := 0
			want, _ := answers[0].resource(t, resourceOf(name))
			for _, res := range answers {
				if res.status != 200 && res.status != 201 {
					t.Fatalf("%d %s", res.status, res.raw)
				}
				text, deduplicated := res.resource(t, resourceOf(name))
				if text != want {
					t.Errorf("answers %s and %s", text, want)
				}
				if !deduplicated {
					firsts++
				}
				creates := name == resourceOf(name)
				if (res.status == 201) != (creates && !deduplicated) {
					t.Errorf("%d for deduplicated %v", res.status, deduplicated)
				}
			}
			if n := r.count(t, "SELECT COUNT(*) FROM audit") - audits; n != 1 || firsts != 1 {
				t.Errorf("%d audit rows, %d first answers", n, firsts)
			}
			if n := r.count(t, "SELECT COUNT(*) FROM receipts WHERE idempotency_key = ?", q.key); n != 1 {
				t.Errorf("%d receipts", n)
			}
		})
	}
}

// TestAKeyBelongsToItsRequestAndItsCredential: another body or path is a conflict, another
// credential has keys of its own.
func TestAKeyBelongsToItsRequestAndItsCredential(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	queue := r.tenant.QueueID.String()
	create := func(key, token, body string) *response {
		return r.do(t, request{method: "POST", path: "/v1/subscriptions", key: key, token: token, body: body})
	}
	body := `{"name":"a","queue_id":"` + queue + `"}`
	create("k", "", body).ok(t, 201)
	for name, other := range map[string]string{
		"name":          `{"name":"b","queue_id":"` + queue + `"}`,
		"types":         `{"name":"a","queue_id":"` + queue + `","types":["task.failed"]}`,
		"from":          `{"name":"a","queue_id":"` + queue + `","from_sequence":"0"}`,
		"max_pending":   `{"name":"a","queue_id":"` + queue + `","max_pending":99}`,
		"another place": `{"name":"a","queue_id":"` + queue + `","max_attempts":19}`,
	} {
		t.Run(name, func(t *testing.T) { create("k", "", other).want(t, 409, "IDEMPOTENCY_CONFLICT", "Idempotency-Key ") })
	}
	r.do(t, request{method: "POST", path: "/v1/queues", key: "k", body: `{"name":"a"}`}).want(t, 409, "IDEMPOTENCY_CONFLICT", "")
	for name, same := range map[string]string{
		"other spacing and order":  `{ "queue_id" : "` + queue + `", "name":"a" }`,
		"defaults written out":     `{"name":"a","queue_id":"` + queue + `","max_pending":100,"max_attempts":20,"from_sequence":null,"types":null}`,
		"types in another order":   `{"name":"a","queue_id":"` + queue + `","types":["task.succeeded","task.failed","task.cancelled","task.needs_review"]}`,
		"escaped characters, zero": `{"name":"\u0061","queue_id":"` + queue + `","max_pending":0,"types":[]}`,
	} {
		t.Run(name, func(t *testing.T) { create("k", "", same).ok(t, 200) })
	}
	create("K", "", `{"name":"A","queue_id":"`+queue+`"}`).ok(t, 201) // keys are compared byte for byte

	rights := rightsOf("events:manage")
	rights.AllQueues = true
	_, other, err := r.Owner.CreateCredential(t.Context(), r.namespace(t), "app", "other", rights)
	if err != nil {
		t.Fatal(err)
	}
	create("k", other, `{"name":"c","queue_id":"`+queue+`"}`).ok(t, 201)
}

// TestAnOldKeyKeepsItsAnswer after pause, retry, acknowledgement and other writes: R3.2.
func TestAnOldKeyKeepsItsAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := map[string]string{}
	writes := r.writes(t)
	for name, q := range writes {
		q.key = ids.New().String()
		writes[name] = q
		text, _ := r.do(t, q).resource(t, resourceOf(name))
		first[name] = text
	}
	sub := field(t, first["subscription"], "id")
	r.post(t, "/v1/subscriptions/"+sub+":configure", `{"expected_revision":"1","enabled":false,"reason":"r"}`).ok(t, 200)
	r.post(t, "/v1/tasks/"+field(t, first["task"], "id")+":cancel", `{"expected_revision":"1","reason":"r"}`).ok(t, 200)
	configured := field(t, first["subscription configure"], "id")
	r.post(t, "/v1/subscriptions/"+configured+":configure", `{"expected_revision":"2","enabled":true,"reason":"r"}`).ok(t, 200)
	retried := mustID(t, field(t, first["delivery retry"], "subscription_id"))
	r.ack(t, retried, r.claim(t, retried, 32)...)
	for name, q := range writes {
		res := r.do(t, q).ok(t, 200)
		if text, deduplicated := res.resource(t, resourceOf(name)); text != first[name] || !deduplicated {
			t.Errorf("%s: first %s, then %s", name, first[name], res.raw)
		}
	}
}

// TestARefusedRequestLeavesItsKeyFree: R3.3.
func TestARefusedRequestLeavesItsKeyFree(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	do := func(body string) *response {
		return r.do(t, request{method: "POST", path: "/v1/queues", key: "k", body: body})
	}
	do(`{"name":"main"}`).want(t, 409, "STATE_CONFLICT", "name: ")
	do(`{"name":""}`).want(t, 400, "INVALID_ARGUMENT", "name: ")
	do(`{"name":"free"}`).ok(t, 201)
	if n := r.count(t, "SELECT COUNT(*) FROM receipts"); n != 1 {
		t.Errorf("%d receipts", n)
	}
}
