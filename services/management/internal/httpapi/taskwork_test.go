package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// batchBody is n tasks for the tenant's queue.
func (r *rig) batchBody(n int) string {
	item := fmt.Sprintf(`{"queue_id":%q,"input":1}`, r.tenant.QueueID)
	return `{"tasks":[` + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + `]}`
}

func TestSubmitTasksInABatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	type batch struct {
		Tasks        []json.RawMessage `json:"tasks"`
		Deduplicated bool              `json:"deduplicated"`
	}
	for n, ok := range map[int]bool{0: false, 1: true, 2: true, 499: true, 500: true, 501: false} {
		before := r.count(t, "SELECT COUNT(*) FROM tasks")
		res := r.post(t, "/v1/tasks:batch", r.batchBody(n))
		if !ok {
			res.want(t, 400, "INVALID_ARGUMENT", "tasks: must have 1…500 items")
			n = 0
		} else {
			var got batch
			if err := json.Unmarshal(res.ok(t, 201).Data, &got); err != nil || len(got.Tasks) != n || got.Deduplicated {
				t.Errorf("%d tasks: %d, %v", n, len(got.Tasks), err)
			}
		}
		if after := r.count(t, "SELECT COUNT(*) FROM tasks"); after != before+n {
			t.Errorf("%d tasks became %d rows", n, after-before)
		}
	}

	before := r.count(t, "SELECT COUNT(*) FROM tasks")
	good := fmt.Sprintf(`{"queue_id":%q,"input":1}`, r.tenant.QueueID)
	for _, c := range []struct {
		second, message string
		status          int
	}{
		{fmt.Sprintf(`{"queue_id":%q,"input":1,"priority":101}`, r.tenant.QueueID), "tasks.1: priority: ", 400},
		{fmt.Sprintf(`{"queue_id":%q}`, r.tenant.QueueID), "tasks.1: input: ", 400},
		{fmt.Sprintf(`{"queue_id":%q,"input":{"a":1,"a":1}}`, r.tenant.QueueID), "tasks.1.input.a: appears twice", 400},
		{fmt.Sprintf(`{"queue_id":%q,"input":1,"extra":1}`, r.tenant.QueueID), "tasks.1.extra: unknown member", 400},
		{fmt.Sprintf(`{"queue_id":%q,"input":1}`, ids.New()), "queue ", 404},
	} {
		code := map[int]string{400: "INVALID_ARGUMENT", 404: "NOT_FOUND"}[c.status]
		r.post(t, "/v1/tasks:batch", `{"tasks":[`+good+`,`+c.second+`]}`).want(t, c.status, code, c.message)
	}
	if after := r.count(t, "SELECT COUNT(*) FROM tasks"); after != before {
		t.Errorf("refused batches left %d tasks", after-before)
	}

	key := ids.New().String()
	first := r.do(t, request{method: "POST", path: "/v1/tasks:batch", key: key, body: r.batchBody(3)}).ok(t, 201)
	again := r.do(t, request{method: "POST", path: "/v1/tasks:batch", key: key, body: r.batchBody(3)}).ok(t, 200)
	if want := strings.Replace(string(first.Data), `"deduplicated":false`, `"deduplicated":true`, 1); string(again.Data) != want {
		t.Errorf("repeated: %s, want %s", again.Data, want)
	}
	r.do(t, request{method: "POST", path: "/v1/tasks:batch", key: key, body: r.batchBody(2)}).want(t, 409, "IDEMPOTENCY_CONFLICT", "")
}

func TestListTasksByStateAndLabel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var all, labelled []string
	for i := range 7 {
		id := r.Submit(t, r.tenant, `1`, func(s *task.Submit) {
			if i%2 == 0 {
				s.Labels = map[string]string{"customer": "a:b", "kind": "x"}
			}
		}).String()
		all = append([]string{id}, all...)
		if i%2 == 0 {
			labelled = append([]string{id}, labelled...)
		}
	}
	done := r.Claim(t, r.tenant, 2)
	r.Complete(t, r.tenant, done[0], `1`)
	first, second := all[6], all[5]
	q := "/v1/tasks?queue_id=" + r.tenant.QueueID.String()
	for path, want := range map[string][]string{
		q:                                      all,
		q + "&state=QUEUED":                    all[:5],
		q + "&state=RUNNING":                   {second},
		q + "&state=SUCCEEDED":                 {first},
		q + "&state=FAILED":                    nil,
		q + "&label=customer:a:b":              labelled,
		q + "&label=customer:a:b&state=QUEUED": labelled[:3],
		q + "&label=customer:b":                nil,
		q + "&label=kind:x&state=SUCCEEDED":    {first},
		q + "&label=Kind:x":                    nil,
	} {
		for _, limit := range []int{1, 2, 100} {
			if got := r.walk(t, fmt.Sprintf("%s&limit=%d", path, limit)); !slices.Equal(got, want) {
				t.Errorf("%s limit %d: %v, want %v", path, limit, got, want)
			}
		}
	}
	cursor := r.get(t, q+"&limit=1").ok(t, 200).list(t).NextCursor
	r.get(t, q+"&state=QUEUED&limit=1&cursor="+cursor).want(t, 400, "INVALID_ARGUMENT", "cursor: ")
	r.get(t, "/v1/tasks").want(t, 400, "INVALID_ARGUMENT", "queue_id: is required")
	r.get(t, "/v1/tasks?queue_id="+ids.New().String()).want(t, 404, "NOT_FOUND", "queue ")
	for _, bad := range []string{"state=queued", "label=x", "label=:x", "label=a:", "label=" + strings.Repeat("n", 65) + ":x", "label=a:" + strings.Repeat("v", 129)} {
		r.get(t, q+"&"+bad).want(t, 400, "INVALID_ARGUMENT", bad[:5])
	}
}

func TestAttemptsOfATask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.Submit(t, r.tenant, `1`, func(s *task.Submit) { s.RetrySafety = "safe"; s.MaxAttempts = 5 })
	path := "/v1/tasks/" + id.String() + "/attempts"
	finish := func(o task.Outcome) {
		t.Helper()
		a := r.Claim(t, r.tenant, 1)[0]
		o.Proof = storetest.ProofOf(a)
		out, err := r.Gateway.FinishAttempts(context.Background(), r.tenant.NamespaceID, r.tenant.QueueID, []task.Outcome{o})
		if err != nil || out.Results[0].Err != nil {
			t.Fatal(err, out)
		}
		r.exec(t, "UPDATE ready_tasks SET due_at = due_at - INTERVAL 1 DAY WHERE lane = 1")
		r.exec(t, "UPDATE tasks SET run_at = run_at - INTERVAL 1 DAY WHERE id = ? AND run_at > UTC_TIMESTAMP(6)", id[:])
	}
	if got := r.walk(t, path+"?limit=1"); got != nil {
		t.Errorf("before the first: %v", got)
	}
	finish(task.Outcome{Kind: task.OutcomeFail, Retryable: true, Failure: &task.Failure{Code: "E1", Message: "first"}})
	finish(task.Outcome{Kind: task.OutcomeRelease})
	running := r.Claim(t, r.tenant, 1)[0]
	items := r.get(t, path).ok(t, 200).list(t).Items
	if len(items) != 2 {
		t.Fatalf("%s", items)
	}
	for i, want := range []string{`"number":1,"epoch":"1","state":"FAILED","worker":"test"`, `"number":2,"epoch":"3","state":"RUNNING","worker":"test"`} {
		if !strings.Contains(string(items[i]), want) {
			t.Errorf("attempt %d is %s, want %s", i+1, items[i], want)
		}
	}
	if !strings.Contains(string(items[0]), `"error":{"code":"E1","message":"first"}`) || !strings.Contains(string(items[1]), `"lease_until"`) {
		t.Errorf("%s", items)
	}
	if got := r.walk(t, path+"?limit=1"); len(got) != 2 || got[1] != running.Attempt.ID.String() {
		t.Errorf("page by page: %v", got)
	}
	r.get(t, "/v1/tasks/"+ids.New().String()+"/attempts").want(t, 404, "NOT_FOUND", "task ")
}

func TestResolveTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	resolve := func(id ids.ID, revision, rest string) *response {
		return r.post(t, "/v1/tasks/"+id.String()+":resolve", fmt.Sprintf(`{"expected_revision":%q,"reason":"r",%s}`, revision, rest))
	}
	review := func() ids.ID {
		id := r.Submit(t, r.tenant, `1`)
		r.Claim(t, r.tenant, 1)
		r.exec(t, "UPDATE permits SET lease_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE task_id = ?", id[:])
		if n, err := r.Management.SweepAttempts(context.Background(), 10); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		return id
	}
	for outcome, want := range map[string]string{"succeeded": "SUCCEEDED", "failed": "FAILED", "requeue": "QUEUED"} {
		id := review()
		resolve(id, "2", `"outcome":"`+outcome+`"`).want(t, 409, "STATE_CONFLICT", "task "+id.String()+" is at revision 3")
		text, _ := resolve(id, "3", `"outcome":"`+outcome+`"`).ok(t, 200).resource(t, "task")
		if field(t, text, "state") != want || field(t, text, "revision") != "4" || field(t, text, "effect_uncertain") != "false" {
			t.Errorf("%s: %s", outcome, text)
		}
		resolve(id, "4", `"outcome":"failed"`).want(t, 409, "STATE_CONFLICT", "task "+id.String()+" is "+want)
		if outcome == "requeue" {
			r.Complete(t, r.tenant, r.Claim(t, r.tenant, 1)[0], `1`)
		}
	}
	id := review()
	const result = `{"n": 9007199254740993,  "x":1.0}`
	resolve(id, "3", `"outcome":"succeeded","result":`+result).ok(t, 200)
	if raw := string(r.get(t, "/v1/tasks/"+id.String()).ok(t, 200).raw); !strings.Contains(raw, `"result":`+result) {
		t.Errorf("the result is not byte for byte in %s", raw)
	}
	if n := r.count(t, "SELECT COUNT(*) FROM result_events WHERE aggregate_id = ? AND type = 'task.succeeded' AND snapshot LIKE ?", id[:], "%"+result+"%"); n != 1 {
		t.Errorf("%d events have the result", n)
	}
	id = review()
	for _, c := range []struct{ rest, message string }{
		{`"outcome":"cancelled"`, "outcome: "}, {`"outcome":"failed","result":1`, "result: "}, {`"outcome":null`, "outcome: "}, {`"outcome":"Failed"`, "outcome: "},
		{`"outcome":"succeeded","result":"` + strings.Repeat("x", 262_143) + `"`, "result: must be at most 262144 bytes"},
	} {
		resolve(id, "3", c.rest).want(t, 400, "INVALID_ARGUMENT", c.message)
	}
	resolve(id, "3", `"outcome":"succeeded","result":"`+strings.Repeat("x", 262_142)+`"`).ok(t, 200)
	queued := r.Submit(t, r.tenant, `1`)
	resolve(queued, "1", `"outcome":"failed"`).want(t, 409, "STATE_CONFLICT", "task "+queued.String()+" is QUEUED")
}

func TestConfigureQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := "/v1/queues/" + r.tenant.QueueID.String() + ":configure"
	for _, c := range []struct{ body, message string }{
		{`{"reason":"r","paused":true}`, "expected_revision: "},
		{`{"expected_revision":"1","paused":true}`, "reason: "},
		{`{"expected_revision":"1","reason":"r"}`, "body: "},
		{`{"expected_revision":"1","reason":"r","max_running":-1}`, "max_running: "},
		{`{"expected_revision":"1","reason":"r","max_running":1000001}`, "max_running: "},
		{`{"expected_revision":"1","reason":"r","lease_duration_ms":4999}`, "lease_duration_ms: "},
		{`{"expected_revision":"1","reason":"r","lease_duration_ms":3600001}`, "lease_duration_ms: "},
		{`{"expected_revision":"1","reason":"r","paused":"true"}`, "paused: "},
		{`{"expected_revision":"1","reason":"r","name":"n"}`, "name: unknown member"},
	} {
		r.post(t, path, c.body).want(t, 400, "INVALID_ARGUMENT", c.message)
	}
	revision := 1
	for _, change := range []string{
		`"max_running":0`, `"max_running":1`, `"max_running":1000000`, `"lease_duration_ms":5000`, `"lease_duration_ms":3600000`,
		`"paused":true`, `"paused":true`, `"paused":false,"max_running":2`,
	} {
		text, _ := r.post(t, path, fmt.Sprintf(`{"expected_revision":"%d","reason":"r",%s}`, revision, change)).ok(t, 200).resource(t, "queue")
		revision++
		if field(t, text, "revision") != fmt.Sprint(revision) {
			t.Errorf("%s: %s", change, text)
		}
		for part := range strings.SplitSeq(change, ",") {
			if !strings.Contains(text, part) {
				t.Errorf("%s is not in %s", part, text)
			}
		}
	}
	r.post(t, path, `{"expected_revision":"1","reason":"r","paused":true}`).want(t, 409, "STATE_CONFLICT", "queue ")
	r.post(t, "/v1/queues/"+ids.New().String()+":configure", `{"expected_revision":"1","reason":"r","paused":true}`).want(t, 404, "NOT_FOUND", "queue ")
	for range 3 {
		r.Submit(t, r.tenant, `1`)
	}
	if got := r.Claim(t, r.tenant, 10); len(got) != 2 {
		t.Errorf("max_running 2 let %d run", len(got))
	}
	r.post(t, path, fmt.Sprintf(`{"expected_revision":"%d","reason":"r","paused":true,"max_running":0}`, revision)).ok(t, 200)
	if got := r.Claim(t, r.tenant, 10); len(got) != 0 {
		t.Errorf("a paused queue let %d run", len(got))
	}
}

func TestQueuedQuota(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.Owner.SetQuota(context.Background(), r.tenant.NamespaceID, r.tenant.ApplicationID, 3, 0); err != nil {
		t.Fatal(err)
	}
	r.post(t, "/v1/tasks:batch", r.batchBody(4)).want(t, 429, "CAPACITY_EXCEEDED", "application ")
	r.post(t, "/v1/tasks:batch", r.batchBody(2)).ok(t, 201)
	key := ids.New().String()
	one := fmt.Sprintf(`{"queue_id":%q,"input":1}`, r.tenant.QueueID)
	r.do(t, request{method: "POST", path: "/v1/tasks", key: key, body: one}).ok(t, 201)
	if res := r.post(t, "/v1/tasks", one).want(t, 429, "CAPACITY_EXCEEDED", "application "); res.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", res.header.Get("Retry-After"))
	}
	r.do(t, request{method: "POST", path: "/v1/tasks", key: key, body: one}).ok(t, 200) // an old key keeps its answer
	r.Complete(t, r.tenant, r.Claim(t, r.tenant, 1)[0], string(strictjson.Raw(`1`)))
	r.post(t, "/v1/tasks", one).ok(t, 201)
}
