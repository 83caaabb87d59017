package httpapi

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

func TestSubmitTaskFields(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	body := func(rest string) string {
		return `{"queue_id":"` + r.tenant.QueueID.String() + `","input":{}` + rest + `}`
	}
	input := func(n int) string {
		return `{"queue_id":"` + r.tenant.QueueID.String() + `","input":"` + strings.Repeat("x", n-2) + `"}`
	}
	cases := []struct {
		name, body string
		status     int
		code       string
		message    string
	}{
		{"least", body(""), 201, "", ""},
		{"no queue", `{"input":{}}`, 400, "INVALID_ARGUMENT", "queue_id: "},
		{"queue of 31 characters", `{"queue_id":"` + r.tenant.QueueID.String()[1:] + `","input":{}}`, 400, "INVALID_ARGUMENT", "queue_id: "},
		{"queue in upper case", `{"queue_id":"` + strings.Repeat("A", 32) + `","input":{}}`, 400, "INVALID_ARGUMENT", "queue_id: "},
		{"unknown queue", `{"queue_id":"` + ids.New().String() + `","input":{}}`, 404, "NOT_FOUND", "queue "},
		{"no input", `{"queue_id":"` + r.tenant.QueueID.String() + `"}`, 400, "INVALID_ARGUMENT", "input: "},
		{"input null", `{"queue_id":"` + r.tenant.QueueID.String() + `","input":null}`, 201, "", ""},
		{"duplicate key deep in the input", `{"queue_id":"` + r.tenant.QueueID.String() + `","input":[{"a":{"b":1,"b":2}}]}`, 400, "INVALID_ARGUMENT", "input.0.a.b: appears twice"},
		{"input of 65535", input(65535), 201, "", ""},
		{"input of 65536", input(65536), 201, "", ""},
		{"input of 262143", input(262143), 201, "", ""},
		{"input of 262144", input(262144), 201, "", ""},
		{"input of 262145", input(262145), 400, "INVALID_ARGUMENT", "input: must be at most 262144 bytes"},
		{"retry_safety safe", body(`,"retry_safety":"safe"`), 201, "", ""},
		{"retry_safety other", body(`,"retry_safety":"Safe"`), 400, "INVALID_ARGUMENT", "retry_safety: "},
		{"max_attempts −1", body(`,"max_attempts":-1`), 400, "INVALID_ARGUMENT", "max_attempts: "},
		{"max_attempts 0", body(`,"max_attempts":0`), 201, "", ""},
		{"max_attempts 1", body(`,"max_attempts":1`), 201, "", ""},
		{"max_attempts 100", body(`,"max_attempts":100`), 201, "", ""},
		{"max_attempts 101", body(`,"max_attempts":101`), 400, "INVALID_ARGUMENT", "max_attempts: "},
		{"priority −101", body(`,"priority":-101`), 400, "INVALID_ARGUMENT", "priority: "},
		{"priority −100", body(`,"priority":-100`), 201, "", ""},
		{"priority 100", body(`,"priority":100`), 201, "", ""},
		{"priority 101", body(`,"priority":101`), 400, "INVALID_ARGUMENT", "priority: "},
		{"run_at", body(`,"run_at":"2030-01-01T00:00:00Z"`), 201, "", ""},
		{"run_at null", body(`,"run_at":null`), 201, "", ""},
		{"run_at no time", body(`,"run_at":"tomorrow"`), 400, "INVALID_ARGUMENT", "run_at: "},
		{"labels", body(`,"labels":{"a":"1","B.c-d_e":"é"}`), 201, "", ""},
		{"a label's name", body(`,"labels":{"a b":"1"}`), 400, "INVALID_ARGUMENT", "labels: "},
		{"an empty label", body(`,"labels":{"a":""}`), 400, "INVALID_ARGUMENT", "labels.a: "},
		{"a label of 128", body(`,"labels":{"a":"` + strings.Repeat("é", 128) + `"}`), 201, "", ""},
		{"a label of 129", body(`,"labels":{"a":"` + strings.Repeat("é", 129) + `"}`), 400, "INVALID_ARGUMENT", "labels.a: "},
		{"unknown member", body(`,"namespace_id":"` + ids.New().String() + `"`), 400, "INVALID_ARGUMENT", "namespace_id: unknown member"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { r.post(t, "/v1/tasks", c.body).want(t, c.status, c.code, c.message) })
	}
}

// TestBusinessJSONKeepsItsBytes is E2 as far as this service goes: task, delivery detail.
func TestBusinessJSONKeepsItsBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const precise = `{ "z":9007199254740993, "b":18446744073709551615,"c":1.0,  "d":1e400,"é":"\u00e9\/" }`
	sub := r.subscribe(t, `{"name":"s","queue_id":"`+r.tenant.QueueID.String()+`"}`)
	text, _ := r.post(t, "/v1/tasks", `{"queue_id":"`+r.tenant.QueueID.String()+`","input":`+precise+`}`).ok(t, 201).resource(t, "task")
	for _, a := range r.Claim(t, r.tenant, 1) {
		r.Complete(t, r.tenant, a, precise)
	}
	task := r.get(t, "/v1/tasks/"+field(t, text, "id")).ok(t, 200)
	if !strings.Contains(string(task.raw), `,"input":`+precise+`,"result":`+precise+`}`) {
		t.Errorf("%s", task.raw)
	}
	subscription := mustID(t, sub)
	if _, err := r.Gateway.ClaimDeliveries(context.Background(), r.tenant.NamespaceID, subscription, nil); err != nil {
		t.Fatal(err)
	}
	deliveries := r.get(t, "/v1/subscriptions/"+sub+"/deliveries").ok(t, 200).list(t)
	detail := r.get(t, "/v1/subscriptions/"+sub+"/deliveries/"+field(t, string(deliveries.Items[0]), "id")).ok(t, 200)
	if !strings.Contains(string(detail.raw), `,"result":`+precise+`,`) {
		t.Errorf("%s", detail.raw)
	}
}

func mustID(t *testing.T, text string) ids.ID {
	t.Helper()
	id, err := ids.ParseID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestCancelTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cancel := func(id, revision string) *response {
		return r.post(t, "/v1/tasks/"+id+":cancel", fmt.Sprintf(`{"expected_revision":%q,"reason":"r"}`, revision))
	}
	state := func(id string) string { return field(t, string(r.get(t, "/v1/tasks/"+id).ok(t, 200).Data), "state") }

	queued := r.Submit(t, r.tenant, `1`).String()
	cancel(queued, "0").want(t, 409, "STATE_CONFLICT", "task "+queued+" is at revision 1")
	cancel(queued, "2").want(t, 409, "STATE_CONFLICT", "task ")
	cancel(queued, "1").ok(t, 200)
	if s := state(queued); s != "CANCELLED" {
		t.Errorf("queued, then %s", s)
	}
	cancel(queued, "2").want(t, 409, "STATE_CONFLICT", "task "+queued+" is CANCELLED")

	running := r.Submit(t, r.tenant, `1`).String()
	assigned := r.Claim(t, r.tenant, 1)[0]
	text, _ := cancel(running, "2").ok(t, 200).resource(t, "task")
	if field(t, text, "state") != "RUNNING" || field(t, text, "cancel_requested") != "true" {
		t.Errorf("running: %s", text)
	}
	r.Complete(t, r.tenant, assigned, `2`)
	cancel(running, "4").want(t, 409, "STATE_CONFLICT", "task "+running+" is SUCCEEDED")

	for _, s := range []string{"FAILED", "NEEDS_REVIEW"} {
		id := r.Submit(t, r.tenant, `1`)
		r.exec(t, "UPDATE tasks SET state = ?, current_attempt_id = id WHERE id = ?", s, id[:])
		cancel(id.String(), "1").want(t, 409, "STATE_CONFLICT", "task "+id.String()+" is "+s)
	}
	cancel(ids.New().String(), "1").want(t, 404, "NOT_FOUND", "task ")

	fresh := r.Submit(t, r.tenant, `1`).String()
	for _, c := range []struct{ body, message string }{
		{`{"reason":"r"}`, "expected_revision: is required"},
		{`{"expected_revision":1,"reason":"r"}`, "expected_revision: "},
		{`{"expected_revision":"01","reason":"r"}`, "expected_revision: "},
		{`{"expected_revision":"-1","reason":"r"}`, "expected_revision: "},
		{`{"expected_revision":"18446744073709551616","reason":"r"}`, "expected_revision: "},
		{`{"expected_revision":"1"}`, "reason: is required"},
		{`{"expected_revision":"1","reason":""}`, "reason: "},
		{`{"expected_revision":"1","reason":"` + strings.Repeat("é", 1025) + `"}`, "reason: "},
	} {
		r.post(t, "/v1/tasks/"+fresh+":cancel", c.body).want(t, 400, "INVALID_ARGUMENT", c.message)
	}
	r.post(t, "/v1/tasks/"+fresh+":cancel", `{"expected_revision":"18446744073709551615","reason":"`+strings.Repeat("é", 1024)+`"}`).want(t, 409, "STATE_CONFLICT", "task ")
}
