package httpapi

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

// schedule makes an ENABLED one, at revision 2, that fires next year.
func (r *rig) schedule(t *testing.T) ids.ID {
	t.Helper()
	return r.Schedule(t, r.tenant, schedule.Spec{Cron: "0 0 29 2 *"})
}

// scheduleWrites adds the writes on schedules that succeed once.
func (r *rig) scheduleWrites(t *testing.T, writes map[string]request) {
	t.Helper()
	path := func(id ids.ID, verb string) string { return "/v1/schedules/" + id.String() + ":" + verb }
	draft := r.DraftSchedule(t, r.tenant, schedule.Spec{Every: 3600})
	paused := r.schedule(t)
	if _, err := r.Management.PauseSchedule(context.Background(), r.tenant.Write(), paused, storetest.AtRevision(2)); err != nil {
		t.Fatal(err)
	}
	writes["schedule"] = request{method: "POST", path: "/v1/schedules", body: `{"name":"w","queue_id":"` + r.tenant.QueueID.String() + `","every":60,"task":{"input":{"a":1}}}`}
	writes["schedule update"] = request{method: "POST", path: path(r.schedule(t), "update"), body: `{"expected_revision":"2","reason":"r","every":60,"task":{"input":1}}`}
	writes["schedule publish"] = request{method: "POST", path: path(draft, "publish"), body: `{"expected_revision":"1","reason":"r"}`}
	writes["schedule pause"] = request{method: "POST", path: path(r.schedule(t), "pause"), body: `{"expected_revision":"2","reason":"r"}`}
	writes["schedule resume"] = request{method: "POST", path: path(paused, "resume"), body: `{"expected_revision":"3","reason":"r"}`}
}

func TestCreateScheduleFields(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	queue := r.tenant.QueueID.String()
	n := 0
	const ok = ""
	for _, c := range []struct{ name, rest, message string }{
		{"cron", `"cron":"*/5 * * * *","task":{"input":1}`, ok},
		{"everything", `"cron":"30 2 1-7 JAN,jul MON","time_zone":"America/New_York","catch_up":"all","task":{"input":{"a":1e400},"retry_safety":"safe","max_attempts":100,"priority":-100,"labels":{"a":"b"}}`, ok},
		{"every", `"every":1,"task":{"input":null}`, ok},
		{"neither", `"task":{"input":1}`, "cron: exactly one of cron and every"},
		{"both", `"cron":"* * * * *","every":5,"task":{"input":1}`, "cron: exactly one"},
		{"null cron", `"cron":null,"task":{"input":1}`, "cron: must not be null"},
		{"null zone", `"every":5,"time_zone":null,"task":{"input":1}`, "time_zone: must not be null"},
		{"null catch_up", `"every":5,"catch_up":null,"task":{"input":1}`, "catch_up: must not be null"},
		{"never", `"cron":"0 0 31 2 *","task":{"input":1}`, "cron: never fires"},
		{"six fields", `"cron":"0 0 * * * *","task":{"input":1}`, "cron: must have 5 fields"},
		{"a fraction", `"every":1.5,"task":{"input":1}`, "every: "},
		{"negative", `"every":-5,"task":{"input":1}`, "every: must be 1…31622400"},
		{"too seldom", `"every":31622401,"task":{"input":1}`, "every: must be 1…31622400"},
		{"zone", `"every":5,"time_zone":"Europe/Newtown","task":{"input":1}`, "time_zone: "},
		{"the machine's zone", `"every":5,"time_zone":"Local","task":{"input":1}`, "time_zone: "},
		{"catch_up", `"every":5,"catch_up":"ALL","task":{"input":1}`, "catch_up: must be skip, one or all"},
		{"no task", `"every":5`, "task: is required"},
		{"null task", `"every":5,"task":null`, "task: is required"},
		{"no input", `"every":5,"task":{}`, "task.input: is required"},
		{"run_at", `"every":5,"task":{"input":1,"run_at":"2027-01-01T00:00:00Z"}`, "task.run_at: unknown member"},
		{"another queue", `"every":5,"task":{"input":1,"queue_id":"` + queue + `"}`, "task.queue_id: unknown member"},
		{"priority", `"every":5,"task":{"input":1,"priority":101}`, "task.priority: "},
		{"duplicate inside the input", `"every":5,"task":{"input":{"a":1,"a":2}}`, "task.input.a: appears twice"},
		{"input of 262144", `"every":5,"task":{"input":"` + strings.Repeat("x", 262142) + `"}`, ok},
		{"input of 262145", `"every":5,"task":{"input":"` + strings.Repeat("x", 262143) + `"}`, "task.input: must be at most 262144 bytes, has 262145"},
		{"unknown member", `"every":5,"task":{"input":1},"enabled":true`, "enabled: unknown member"},
		{"other case", `"Every":5,"task":{"input":1}`, "Every: unknown member"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n++
			res := r.post(t, "/v1/schedules", fmt.Sprintf(`{"name":"n%d","queue_id":"%s",%s}`, n, queue, c.rest))
			if c.message == ok {
				res.ok(t, 201)
				return
			}
			res.want(t, 400, "INVALID_ARGUMENT", c.message)
		})
	}
	for name, c := range map[string]struct {
		body    string
		status  int
		code    string
		message string
	}{
		"taken name": {`{"name":"n1","queue_id":"` + queue + `","every":5,"task":{"input":1}}`, 409, "STATE_CONFLICT", "name: "},
		"no name":    {`{"queue_id":"` + queue + `","every":5,"task":{"input":1}}`, 400, "INVALID_ARGUMENT", "name: "},
		"no queue":   {`{"name":"q","every":5,"task":{"input":1}}`, 400, "INVALID_ARGUMENT", "queue_id: is required"},
		"unknown":    {`{"name":"q","queue_id":"` + ids.New().String() + `","every":5,"task":{"input":1}}`, 404, "NOT_FOUND", "queue "},
	} {
		t.Run(name, func(t *testing.T) { r.post(t, "/v1/schedules", c.body).want(t, c.status, c.code, c.message) })
	}
}

// TestAScheduleOverHTTP from draft to history.
func TestAScheduleOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const input = `{"a":9007199254740993, "b":1.0}`
	text, _ := r.post(t, "/v1/schedules", `{"name":"s","queue_id":"`+r.tenant.QueueID.String()+`","cron":"30  2 * * *","time_zone":"America/New_York","task":{"input":`+input+`}}`).ok(t, 201).resource(t, "schedule")
	if strings.Contains(text, "input") || field(t, text, "state") != "DRAFT" || field(t, text, "draft", "cron") != "30 2 * * *" || field(t, text, "draft", "catch_up") != "skip" {
		t.Error(text)
	}
	path := "/v1/schedules/" + field(t, text, "id")
	command := func(verb, revision string) *response {
		return r.post(t, path+":"+verb, `{"expected_revision":"`+revision+`","reason":"r"}`)
	}
	if got := string(r.get(t, path).ok(t, 200).Data); !strings.Contains(got, `"input":`+input+`}`) {
		t.Error(got)
	}
	if n := len(r.get(t, path+"/preview").ok(t, 200).list(t).Items); n != 10 {
		t.Errorf("%d fire times", n)
	}
	r.get(t, path+"/preview?version=published").want(t, 409, "STATE_CONFLICT", "version: schedule ")
	if item := string(r.get(t, path+"/preview?version=draft&count=100").ok(t, 200).list(t).Items[99]); !strings.Contains(item, "T02:30:00-0") && !strings.Contains(item, "T03:00:00-04:00") {
		t.Error(item)
	}
	for _, bad := range []string{"0", "101", "01", "a", "-1", "1.0", ""} {
		r.get(t, path+"/preview?count="+bad).want(t, 400, "INVALID_ARGUMENT", "count: must be a whole number 1…100")
	}
	r.get(t, path+"/preview?version=Draft").want(t, 400, "INVALID_ARGUMENT", "version: must be draft or published")
	r.get(t, path+"/preview?limit=1").want(t, 400, "INVALID_ARGUMENT", "query: unknown parameter")
	command("publish", "2").want(t, 409, "STATE_CONFLICT", "schedule ")
	command("publish", "1").ok(t, 200)
	command("publish", "2").want(t, 409, "STATE_CONFLICT", "schedule "+field(t, text, "id")+" has no draft")
	r.get(t, path+"/preview?version=draft").want(t, 409, "STATE_CONFLICT", "version: ")
	fire, _ := command("run", "2").ok(t, 200).resource(t, "fire")
	task := string(r.get(t, "/v1/tasks/"+field(t, fire, "task_id")).ok(t, 200).Data)
	if !strings.Contains(task, `"input":`+input) || field(t, task, "run_at") != field(t, fire, "fire_at") {
		t.Error(task)
	}
	r.exec(t, "UPDATE schedules SET next_at = '2026-01-02 07:30:00'")
	if n, err := r.Management.FireDueSchedules(t.Context(), 10); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	list := r.get(t, path+"/fires?limit=1").ok(t, 200).list(t)
	if list.NextCursor == "" || field(t, string(list.Items[0]), "manual") != "true" {
		t.Errorf("%s", list.Items)
	}
	list = r.get(t, path+"/fires?limit=1&cursor="+list.NextCursor).ok(t, 200).list(t)
	if list.NextCursor != "" || field(t, string(list.Items[0]), "reason") != "MISSED" || field(t, string(list.Items[0]), "first_fire_at") != "2026-01-02T07:30:00Z" {
		t.Errorf("%s", list.Items)
	}
	r.get(t, path+"/fires?state=FIRED").want(t, 400, "INVALID_ARGUMENT", "query: unknown parameter")
	r.post(t, path+":pause", `{"expected_revision":"2"}`).want(t, 400, "INVALID_ARGUMENT", "reason: is required")
	r.post(t, path+":pause", `{"reason":"r"}`).want(t, 400, "INVALID_ARGUMENT", "expected_revision: is required")
	command("pause", "2").ok(t, 200)
	command("resume", "3").ok(t, 200)
	r.post(t, path+":update", `{"expected_revision":"4","reason":"r","every":5,"task":{"input":1},"name":"t"}`).want(t, 400, "INVALID_ARGUMENT", "name: unknown member")
	r.get(t, "/v1/schedules?queue_id=x").want(t, 400, "INVALID_ARGUMENT", "queue_id: ")
	if n := len(r.get(t, "/v1/schedules?queue_id="+r.tenant.QueueID.String()).ok(t, 200).list(t).Items); n != 1 {
		t.Errorf("%d schedules", n)
	}
}

// schedules has an exchange of each call; their times are far enough away to stay what they are.
func (g *golden) schedules(t *testing.T, queue string) {
	t.Helper()
	create := request{method: "POST", path: "/v1/schedules", body: `{"name": "daily-report", "queue_id": "` + queue + `", "cron": "30 2 * * *", "time_zone": "Asia/Kolkata",
  "catch_up": "all", "task": {"input": {"report": 1.0}, "retry_safety": "safe", "max_attempts": 5, "priority": 7, "labels": {"tenant": "blue"}}}`}
	first := g.rig.do(t, create).ok(t, 201)
	text, _ := first.resource(t, "schedule")
	id := g.knows(field(t, text, "id"), goldSchedule)
	g.known[first.RequestID] = goldRequest
	g.hold(t, "create_schedule", create, first)
	path := "/v1/schedules/" + id
	post := func(name, verb, body string) {
		g.do(t, name, request{method: "POST", path: path + ":" + verb, body: body}).ok(t, 200)
	}
	post("publish_schedule", "publish", `{"expected_revision": "1", "reason": "reviewed"}`)
	post("update_schedule", "update", `{"expected_revision": "2", "reason": "more often", "every": 300, "time_zone": "UTC", "catch_up": "skip", "task": {"input": [1e400]}}`)
	run := request{method: "POST", path: path + ":run", body: `{"expected_revision": "3", "reason": "now, please"}`}
	ran := g.rig.do(t, run).ok(t, 200)
	fire, _ := ran.resource(t, "fire")
	g.knows(field(t, fire, "task_id"), goldTask)
	g.known[ran.RequestID] = goldRequest
	g.hold(t, "run_schedule", run, ran)
	g.exec(t, "DELETE FROM ready_tasks WHERE task_id = ?", mustBytes(t, field(t, fire, "task_id"))) // later exchanges count what waits
	g.do(t, "get_schedule", request{method: "GET", path: path}).ok(t, 200)
	g.do(t, "list_schedules", request{method: "GET", path: "/v1/schedules?queue_id=" + queue + "&limit=10"}).ok(t, 200)
	g.exec(t, "UPDATE schedules SET next_at = UTC_TIMESTAMP(6) - INTERVAL 1000 DAY")
	post("pause_schedule", "pause", `{"expected_revision": "3", "reason": "holidays"}`)
	g.exec(t, "UPDATE schedule_fires SET skipped = 1000 WHERE skipped > 0")
	g.do(t, "list_schedule_fires", request{method: "GET", path: path + "/fires?limit=2"}).ok(t, 200)
	post("resume_schedule", "resume", `{"expected_revision": "4", "reason": "back"}`)
	preview := request{method: "GET", path: path + "/preview?version=published&count=2"}
	g.do(t, "preview_schedule", preview).ok(t, 200)
	if _, err := g.Management.PauseSchedule(t.Context(), g.tenant.Write(), mustID(t, id), storetest.AtRevision(5)); err != nil {
		t.Fatal(err)
	}
}

func mustBytes(t *testing.T, id string) []byte { parsed := mustID(t, id); return parsed[:] }
