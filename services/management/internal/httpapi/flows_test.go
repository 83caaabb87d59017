package httpapi

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// stepsOn writes steps as JSON; QUEUE stands for the tenant's queue.
func (r *rig) stepsOn(text string) string {
	return strings.ReplaceAll(text, "QUEUE", r.tenant.QueueID.String())
}

func (r *rig) newFlow(t *testing.T, name, steps string) string {
	t.Helper()
	text, _ := r.post(t, "/v1/flows", `{"name":"`+name+`","steps":`+r.stepsOn(steps)+`}`).ok(t, 201).resource(t, "flow")
	return field(t, text, "id")
}

func (r *rig) newRun(t *testing.T, flow string) string {
	t.Helper()
	text, _ := r.post(t, "/v1/flows/"+flow+"/runs", `{}`).ok(t, 201).resource(t, "run")
	return field(t, text, "id")
}

// TestFlowsAreRefusedWithTheirPath over HTTP; nothing is kept of a refused one.
func TestFlowsAreRefusedWithTheirPath(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	unknown := ids.New().String()
	for _, c := range []struct {
		steps   string
		status  int
		code    string
		message string
	}{
		{`[{"name":"a","queue_id":"QUEUE","input":1}]`, 201, "", ""},
		{`[{"name":"a","queue_id":"QUEUE","input":1,"depends_on":null,"labels":null}]`, 201, "", ""},
		{`[]`, 400, "INVALID_ARGUMENT", "steps: must have 1…100 items"},
		{`null`, 400, "INVALID_ARGUMENT", "steps: "},
		{`[{"name":"a","queue_id":"QUEUE","input":1},{"name":"a","queue_id":"QUEUE","input":1}]`, 400, "INVALID_ARGUMENT", `steps.1.name: "a" is already`},
		{`[{"name":"a","queue_id":"QUEUE","input":1,"depends_on":["a"]}]`, 400, "INVALID_ARGUMENT", `steps.0.depends_on.0: step "a" depends on itself`},
		{`[{"name":"a","queue_id":"QUEUE","input":1,"depends_on":["b"]}]`, 400, "INVALID_ARGUMENT", `steps.0.depends_on.0: there is no step "b"`},
		{`[{"name":"a","queue_id":"QUEUE","input":1,"depends_on":["b"]},{"name":"b","queue_id":"QUEUE","input":1,"depends_on":["a"]}]`, 400, "INVALID_ARGUMENT", `steps.0.depends_on: is part of the cycle a → b → a`},
		{`[{"name":"a","queue_id":"QUEUE","input":{"x":{"$step":"b","path":""}}}]`, 400, "INVALID_ARGUMENT", `steps.0.input: at "/x": there is no step "b"`},
		{`[{"name":"a","queue_id":"QUEUE","input":{"$run":5}}]`, 400, "INVALID_ARGUMENT", `steps.0.input: at "": a reference to the run's input is exactly`},
		{`[{"name":"a","queue_id":"QUEUE","input":{"k":1,"k":2}}]`, 400, "INVALID_ARGUMENT", "steps.0.input.k: appears twice"},
		{`[{"name":"a","queue_id":"QUEUE","input":1,"run_at":null}]`, 400, "INVALID_ARGUMENT", "steps.0.run_at: unknown member"},
		{`[{"name":"a","queue_id":"QUEUE"}]`, 400, "INVALID_ARGUMENT", "steps.0.input: is required"},
		{`[{"name":"a","queue_id":"QUEUE","input":1},{"name":"b","queue_id":"` + unknown + `","input":1}]`, 404, "NOT_FOUND", "steps.1.queue_id: queue " + unknown + " does not exist here"},
	} {
		name := "f-" + ids.New().String()
		r.post(t, "/v1/flows", `{"name":"`+name+`","steps":`+r.stepsOn(c.steps)+`}`).want(t, c.status, c.code, c.message)
		if n := r.count(t, "SELECT COUNT(*) FROM flows WHERE name = ?", name); n != map[bool]int{true: 1}[c.status == 201] {
			t.Errorf("%s: %d flows", c.steps, n)
		}
	}
	flow := r.newFlow(t, "once", `[{"name":"a","queue_id":"QUEUE","input":1}]`)
	r.post(t, "/v1/flows", `{"name":"once","steps":`+r.stepsOn(`[{"name":"a","queue_id":"QUEUE","input":1}]`)+`}`).want(t, 409, "STATE_CONFLICT", `name: a flow named "once" exists`)
	run := r.newRun(t, flow)
	for _, c := range []struct{ path, body, code, message string }{
		{"/v1/flows/" + flow + ":publish", `{"reason":"r","steps":[]}`, "INVALID_ARGUMENT", "expected_revision: is required"},
		{"/v1/flows/" + flow + ":publish", `{"expected_revision":"7","reason":"r","steps":` + r.stepsOn(`[{"name":"a","queue_id":"QUEUE","input":1}]`) + `}`, "STATE_CONFLICT", "flow " + flow + " is at revision 1"},
		{"/v1/flows/" + flow + "/runs", `{"version":-1}`, "INVALID_ARGUMENT", "version: must be"},
		{"/v1/flows/" + flow + "/runs", `{"version":2}`, "NOT_FOUND", "flow " + flow + " has no version 2 here"},
		{"/v1/flows/" + flow + "/runs", `{"labels":{"a b":"c"}}`, "INVALID_ARGUMENT", "labels: a name"},
		{"/v1/runs/" + run + ":pause", `{}`, "INVALID_ARGUMENT", "reason: is required"},
		{"/v1/runs/" + run + ":pause", `{"reason":"r","expected_revision":"9"}`, "STATE_CONFLICT", "run " + run + " is at revision 1"},
		{"/v1/runs/" + run + ":resume", `{"reason":"r"}`, "STATE_CONFLICT", "run " + run + ": the run is RUNNING"},
		{"/v1/runs/" + run + "/steps/a:retry", `{"reason":"r"}`, "STATE_CONFLICT", "run " + run + `: step "a" is SUBMITTED`},
		{"/v1/runs/" + run + "/steps/b:retry", `{"reason":"r"}`, "NOT_FOUND", "run " + run + ` has no step "b"`},
		{"/v1/runs/" + run + "/steps/-b:retry", `{"reason":"r"}`, "INVALID_ARGUMENT", "step: must begin"},
		{"/v1/runs/" + run + ":restart", `{"reason":"r"}`, "NOT_FOUND", "no such path"},
	} {
		status := map[string]int{"INVALID_ARGUMENT": 400, "NOT_FOUND": 404, "STATE_CONFLICT": 409}[c.code]
		r.post(t, c.path, c.body).want(t, status, c.code, c.message)
	}
	for _, version := range []string{"0", "01", "x", "1000001", "-1"} {
		r.get(t, "/v1/flows/"+flow+"/versions/"+version).want(t, 400, "INVALID_ARGUMENT", "version: must be a whole number 1…1000000")
	}
	r.get(t, "/v1/flows/"+flow+"/runs?state=DONE").want(t, 400, "INVALID_ARGUMENT", "state: must be RUNNING")
}

// TestFlowsOfAnotherAreNotThere: another namespace, and a credential whose scope lacks the queue of a
// step, get for each path what they would for an id that never was.
func TestFlowsOfAnotherAreNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	flow := r.newFlow(t, "theirs", `[{"name":"a","queue_id":"QUEUE","input":1}]`)
	run := r.newRun(t, flow)
	stranger := r.Tenant(t)
	_, narrow, err := r.Owner.CreateCredential(t.Context(), r.namespace(t), "app", "narrow", store.Rights{Actions: access.Actions})
	if err != nil {
		t.Fatal(err)
	}
	steps := r.stepsOn(`[{"name":"a","queue_id":"QUEUE","input":1}]`)
	for who, token := range map[string]string{"stranger": stranger.Token, "narrow": narrow} {
		for _, p := range []struct{ method, path, body, kind string }{
			{"GET", "/v1/flows/" + flow, "", "flow " + flow + " does not exist here"},
			{"GET", "/v1/flows/" + flow + "/versions/1", "", "flow " + flow + " has no version 1 here"},
			{"GET", "/v1/flows/" + flow + "/runs", "", "flow " + flow + " does not exist here"},
			{"POST", "/v1/flows/" + flow + "/runs", `{}`, "flow " + flow + " does not exist here"},
			{"POST", "/v1/flows/" + flow + ":publish", `{"expected_revision":"9","reason":"r","steps":` + steps + `}`, "flow " + flow + " does not exist here"},
			{"POST", "/v1/flows", `{"name":"mine","steps":` + steps + `}`, "steps.0.queue_id: queue " + r.tenant.QueueID.String() + " does not exist here"},
			{"GET", "/v1/runs/" + run, "", "run " + run + " does not exist here"},
			{"POST", "/v1/runs/" + run + ":cancel", `{"reason":"r","expected_revision":"9"}`, "run " + run + " does not exist here"},
			{"POST", "/v1/runs/" + run + "/steps/a:retry", `{"reason":"r"}`, "run " + run + " does not exist here"},
		} {
			r.do(t, request{method: p.method, path: p.path, body: p.body, token: token}).want(t, 404, "NOT_FOUND", p.kind)
		}
		if l := r.do(t, request{method: "GET", path: "/v1/flows", token: token}).ok(t, 200).list(t); len(l.Items) != 0 {
			t.Errorf("%s sees %s", who, l.Items)
		}
	}
	for _, c := range []struct{ method, path, action string }{
		{"POST", "/v1/flows", "flows:manage"}, {"GET", "/v1/flows/" + flow, "flows:read"}, {"POST", "/v1/flows/" + flow + "/runs", "flows:start"}, {"POST", "/v1/runs/" + run + ":cancel", "flows:manage"},
	} {
		var others []access.Action
		for _, a := range access.Actions {
			if string(a) != c.action {
				others = append(others, a)
			}
		}
		_, token, err := r.Owner.CreateCredential(t.Context(), r.namespace(t), "app", "c-"+ids.New().String(), store.Rights{Actions: others, AllQueues: true})
		if err != nil {
			t.Fatal(err)
		}
		q := request{method: c.method, path: c.path, token: token}
		if c.method == "POST" {
			q.body = `nonsense` // no body is read for a caller who may not act
		}
		res := r.do(t, q).want(t, 403, "PERMISSION_DENIED", "credential ")
		if !strings.HasSuffix(res.Error.Message, c.action) {
			t.Errorf("%s does not name %s", res.Error.Message, c.action)
		}
	}
}

// TestAStartHappensOnce: parallel starts with one key make one run; the key outlives the run.
func TestAStartHappensOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	flow := r.newFlow(t, "once", `[{"name":"a","queue_id":"QUEUE","input":{"$run":""}},{"name":"b","queue_id":"QUEUE","input":2,"depends_on":["a"]}]`)
	q := request{method: "POST", path: "/v1/flows/" + flow + "/runs", key: "k", body: `{"input":[1.0, 1e400]}`}
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for range 20 {
		wg.Go(func() {
			res := r.do(t, q)
			text, _ := res.resource(t, "run")
			mu.Lock()
			defer mu.Unlock()
			answers[fmt.Sprint(res.status, text)]++
		})
	}
	wg.Wait()
	if len(answers) != 2 || r.count(t, "SELECT COUNT(*) FROM flow_runs") != 1 || r.count(t, "SELECT COUNT(*) FROM tasks") != 1 {
		t.Errorf("answers %v", answers)
	}
	if n := r.count(t, "SELECT COUNT(*) FROM audit WHERE action = 'flow.start' AND resource_kind = 'run'"); n != 1 {
		t.Errorf("%d audit rows", n)
	}
	r.do(t, request{method: "POST", path: q.path, key: "k", body: `{"input":[1, 1e400]}`}).want(t, 409, "IDEMPOTENCY_CONFLICT", "")
	run := string(r.do(t, q).ok(t, 200).Data)
	id := field(t, run, "run", "id")
	for range 2 {
		for _, a := range r.Claim(t, r.tenant, 1) {
			r.Complete(t, r.tenant, a, `1`)
		}
		catchUp(t, r.Management)
	}
	got := r.get(t, "/v1/runs/"+id).ok(t, 200)
	if s := string(got.Data); !strings.Contains(s, `"state":"SUCCEEDED"`) || !strings.Contains(s, `"input":[1.0, 1e400]`) {
		t.Errorf("%s", s)
	}
	if again := string(r.do(t, q).ok(t, 200).Data); again != run {
		t.Errorf("the old key answers %s, before %s", again, run)
	}
}
