package httpapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

func TestCreateSubscriptionFields(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range 3 {
		r.Outcome(t, r.tenant, `1`)
	}
	r.exec(t, "UPDATE result_streams SET boundary = 2") // sequences 1 and 2 are gone
	n := 0
	body := func(rest string) string {
		n++
		return fmt.Sprintf(`{"name":"s%d","queue_id":"%s"%s}`, n, r.tenant.QueueID, rest)
	}
	cases := []struct {
		name, body string
		status     int
		code       string
		message    string
	}{
		{"least", body(""), 201, "", ""},
		{"name x", `{"name":"x","queue_id":"` + r.tenant.QueueID.String() + `"}`, 201, "", ""},
		{"name X", `{"name":"X","queue_id":"` + r.tenant.QueueID.String() + `"}`, 201, "", ""},
		{"name with space", `{"name":"x ","queue_id":"` + r.tenant.QueueID.String() + `"}`, 400, "INVALID_ARGUMENT", "name: "},
		{"name é", `{"name":"é","queue_id":"` + r.tenant.QueueID.String() + `"}`, 400, "INVALID_ARGUMENT", "name: "},
		{"taken name", `{"name":"x","queue_id":"` + r.tenant.QueueID.String() + `"}`, 409, "STATE_CONFLICT", "name: "},
		{"name of 128", `{"name":"` + strings.Repeat("a", 128) + `","queue_id":"` + r.tenant.QueueID.String() + `"}`, 201, "", ""},
		{"name of 129", `{"name":"` + strings.Repeat("a", 129) + `","queue_id":"` + r.tenant.QueueID.String() + `"}`, 400, "INVALID_ARGUMENT", "name: "},
		{"no queue", `{"name":"q"}`, 400, "INVALID_ARGUMENT", "queue_id: "},
		{"unknown queue", `{"name":"q","queue_id":"` + ids.New().String() + `"}`, 404, "NOT_FOUND", "queue "},
		{"types null", body(`,"types":null`), 201, "", ""},
		{"types empty", body(`,"types":[]`), 201, "", ""},
		{"types all", body(`,"types":["task.succeeded","task.failed","task.cancelled","task.needs_review"]`), 201, "", ""},
		{"types twice", body(`,"types":["task.failed","task.failed"]`), 400, "INVALID_ARGUMENT", "types: "},
		{"types requeued", body(`,"types":["task.requeued"]`), 400, "INVALID_ARGUMENT", "types: "},
		{"types unknown", body(`,"types":["task.done"]`), 400, "INVALID_ARGUMENT", "types: "},
		{"types no array", body(`,"types":"task.failed"`), 400, "INVALID_ARGUMENT", "types: "},
		{"types of null", body(`,"types":[null]`), 400, "INVALID_ARGUMENT", "types"},
		{"from null", body(`,"from_sequence":null`), 201, "", ""},
		{"from 0", body(`,"from_sequence":"0"`), 201, "", ""},
		{"from below the boundary", body(`,"from_sequence":"1"`), 410, "EVENT_HISTORY_EXPIRED", "from_sequence: events up to 2"},
		{"from the boundary", body(`,"from_sequence":"2"`), 201, "", ""},
		{"from the head", body(`,"from_sequence":"3"`), 201, "", ""},
		{"from above the head", body(`,"from_sequence":"4"`), 400, "INVALID_ARGUMENT", "from_sequence: "},
		{"from as a number", body(`,"from_sequence":3`), 400, "INVALID_ARGUMENT", "from_sequence: "},
		{"from with a sign", body(`,"from_sequence":"+3"`), 400, "INVALID_ARGUMENT", "from_sequence: "},
		{"from with a leading zero", body(`,"from_sequence":"03"`), 400, "INVALID_ARGUMENT", "from_sequence: "},
		{"from empty", body(`,"from_sequence":""`), 400, "INVALID_ARGUMENT", "from_sequence: "},
		{"from with a fraction", body(`,"from_sequence":"3.0"`), 400, "INVALID_ARGUMENT", "from_sequence: "},
		{"from past uint64", body(`,"from_sequence":"18446744073709551616"`), 400, "INVALID_ARGUMENT", "from_sequence: "},
		{"max_pending −1", body(`,"max_pending":-1`), 400, "INVALID_ARGUMENT", "max_pending: "},
		{"max_pending 0", body(`,"max_pending":0`), 201, "", ""},
		{"max_pending 1", body(`,"max_pending":1`), 201, "", ""},
		{"max_pending 1000", body(`,"max_pending":1000`), 201, "", ""},
		{"max_pending 1001", body(`,"max_pending":1001`), 400, "INVALID_ARGUMENT", "max_pending: "},
		{"max_pending null", body(`,"max_pending":null`), 400, "INVALID_ARGUMENT", "max_pending: "},
		{"max_attempts −1", body(`,"max_attempts":-1`), 400, "INVALID_ARGUMENT", "max_attempts: "},
		{"max_attempts 0", body(`,"max_attempts":0`), 201, "", ""},
		{"max_attempts 1", body(`,"max_attempts":1`), 201, "", ""},
		{"max_attempts 100", body(`,"max_attempts":100`), 201, "", ""},
		{"max_attempts 101", body(`,"max_attempts":101`), 400, "INVALID_ARGUMENT", "max_attempts: "},
		{"names its credential", body(`,"credential_id":"` + ids.New().String() + `"`), 400, "INVALID_ARGUMENT", "credential_id: unknown member"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { r.post(t, "/v1/subscriptions", c.body).want(t, c.status, c.code, c.message) })
	}

	cursors := map[string]string{"": "3", `,"from_sequence":null`: "3", `,"from_sequence":"0"`: "2", `,"from_sequence":"2"`: "2"}
	for rest, want := range cursors {
		text, _ := r.post(t, "/v1/subscriptions", body(rest)).ok(t, 201).resource(t, "subscription")
		if got := field(t, text, "cursor_sequence"); got != want {
			t.Errorf("%q starts at %s, want %s", rest, got, want)
		}
		if got := r.get(t, "/v1/subscriptions/"+field(t, text, "id")).ok(t, 200); string(got.Data) != text {
			t.Errorf("read %s, created %s", got.Data, text)
		}
	}
}

func TestListSubscriptions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	queue := r.tenant.QueueID.String()
	var want []string
	for i := range 5 {
		want = append(want, r.subscribe(t, fmt.Sprintf(`{"name":"s%d","queue_id":"%s"}`, i, queue)))
	}
	r.exec(t, "UPDATE subscriptions SET created_at = '2026-01-01' WHERE name IN ('s1', 's2', 's3')") // equal times: by id
	slices.Sort(want[1:4])
	want = []string{want[4], want[0], want[3], want[2], want[1]}
	for _, limit := range []int{1, 2, 4, 5, 6, 100} {
		if got := r.walk(t, fmt.Sprintf("/v1/subscriptions?queue_id=%s&limit=%d", queue, limit)); !slices.Equal(got, want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
	}
	text, _ := r.post(t, "/v1/queues", `{"name":"other"}`).ok(t, 201).resource(t, "queue")
	if got := r.walk(t, "/v1/subscriptions?limit=1&queue_id="+field(t, text, "id")); got != nil {
		t.Errorf("another queue lists %v", got)
	}
	for _, c := range []struct{ query, message string }{
		{"", "queue_id: this parameter is required"},
		{"?queue_id=", "queue_id: "},
		{"?queue_id=" + strings.ToUpper(ids.New().String()), "queue_id: "},
		{"?queue_id=" + queue + "&queue_id=" + queue, "queue_id: is given 2 times"},
		{"?queue_id=" + queue + "&limit=0", "limit: "},
		{"?queue_id=" + queue + "&limit=101", "limit: "},
		{"?queue_id=" + queue + "&limit=-1", "limit: "},
		{"?queue_id=" + queue + "&limit=+1", "limit: "},
		{"?queue_id=" + queue + "&limit=01", "limit: "},
		{"?queue_id=" + queue + "&limit=", "limit: "},
		{"?queue_id=" + queue + "&limit=1&limit=1", "limit: is given 2 times"},
		{"?queue_id=" + queue + "&cursor=", "cursor: "},
		{"?queue_id=" + queue + "&cursor=AAAA", "cursor: "},
		{"?queue_id=" + queue + "&state=PENDING", "query: unknown parameter"},
		{"?queue_id=" + queue + "&Limit=1", "query: unknown parameter"},
		{"?queue_id=" + queue + ";limit=1", "query: is malformed"},
		{"?queue_id=%zz", "query: is malformed"},
	} {
		r.get(t, "/v1/subscriptions"+c.query).want(t, 400, "INVALID_ARGUMENT", c.message)
	}
	r.get(t, "/v1/subscriptions?queue_id="+ids.New().String()).want(t, 404, "NOT_FOUND", "queue ")
}

func TestConfigureSubscription(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.subscribe(t, `{"name":"s","queue_id":"`+r.tenant.QueueID.String()+`"}`)
	path := "/v1/subscriptions/" + id + ":configure"
	wakes := func() int { return r.count(t, "SELECT wake_version FROM result_streams") }

	for _, c := range []struct{ body, message string }{
		{`{"enabled":false,"reason":"r"}`, "expected_revision: is required"},
		{`{"expected_revision":null,"enabled":false,"reason":"r"}`, "expected_revision: "},
		{`{"expected_revision":"","enabled":false,"reason":"r"}`, "expected_revision: "},
		{`{"expected_revision":1,"enabled":false,"reason":"r"}`, "expected_revision: "},
		{`{"expected_revision":"1","reason":"r"}`, "enabled: is required"},
		{`{"expected_revision":"1","enabled":null,"reason":"r"}`, "enabled: "},
		{`{"expected_revision":"1","enabled":"false","reason":"r"}`, "enabled: "},
		{`{"expected_revision":"1","enabled":false}`, "reason: is required"},
		{`{"expected_revision":"1","enabled":false,"reason":null}`, "reason: "},
		{`{"expected_revision":"1","enabled":false,"reason":""}`, "reason: "},
		{`{"expected_revision":"1","enabled":false,"reason":"` + strings.Repeat("界", 1025) + `"}`, "reason: must be at most 1024"},
		{`{"expected_revision":"1","enabled":false,"reason":"r","name":"n"}`, "name: unknown member"},
	} {
		r.post(t, path, c.body).want(t, 400, "INVALID_ARGUMENT", c.message)
	}
	r.post(t, path, `{"expected_revision":"0","enabled":false,"reason":"r"}`).want(t, 409, "STATE_CONFLICT", "subscription "+id+" is at revision 1")
	r.post(t, path, `{"expected_revision":"2","enabled":false,"reason":"r"}`).want(t, 409, "STATE_CONFLICT", "subscription ")
	if n := r.count(t, "SELECT COUNT(*) FROM receipts"); n != 1 {
		t.Errorf("%d receipts: a refused request leaves none", n)
	}
	before := wakes()
	steps := []struct{ revision, enabled, want string }{
		{"1", "false", "2"}, {"2", "false", "3"}, {"3", "true", "4"}, {"4", "true", "5"},
	}
	for _, s := range steps {
		text, _ := r.post(t, path, fmt.Sprintf(`{"expected_revision":%q,"enabled":%s,"reason":"%s"}`, s.revision, s.enabled, strings.Repeat("界", 1024))).
			ok(t, 200).resource(t, "subscription")
		if field(t, text, "revision") != s.want || field(t, text, "enabled") != s.enabled {
			t.Errorf("after %+v: %s", s, text)
		}
		if got := r.get(t, "/v1/subscriptions/"+id).ok(t, 200); string(got.Data) != text {
			t.Errorf("read %s, answered %s", got.Data, text)
		}
	}
	if n := wakes() - before; n != len(steps) {
		t.Errorf("woke gateways %d times for %d commands", n, len(steps))
	}
	if n := r.count(t, "SELECT COUNT(*) FROM audit WHERE action = 'subscription.configure'"); n != len(steps) {
		t.Errorf("%d audit rows for %d commands", n, len(steps))
	}
	r.post(t, "/v1/subscriptions/"+ids.New().String()+":configure", `{"expected_revision":"1","enabled":true,"reason":"r"}`).want(t, 404, "NOT_FOUND", "subscription ")
	r.post(t, "/v1/subscriptions/abc:configure", `{}`).want(t, 400, "INVALID_ARGUMENT", "id: must be 32")
}
