package httpapi

import (
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

const (
	goldFlow = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	goldRun  = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// first makes an exchange whose answer holds the id of a new resource.
func (g *golden) first(t *testing.T, name, resource, stand string, q request) string {
	t.Helper()
	res := g.rig.do(t, q).ok(t, 201)
	text, _ := res.resource(t, resource)
	id := g.knows(field(t, text, "id"), stand)
	g.known[res.RequestID] = goldRequest
	g.hold(t, name, q, res)
	return id
}

// caughtUp lets the runs follow the log to its end.
func (g *golden) caughtUp(t *testing.T) {
	t.Helper()
	catchUp(t, g.Management)
}

func catchUp(t *testing.T, s *store.Store) {
	t.Helper()
	for passed := 1; passed > 0; {
		passed = 0
		lags, err := s.FlowLags(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, lag := range lags {
			if lag.Head > lag.Cursor {
				n, err := s.FollowLog(t.Context(), lag)
				if err != nil {
					t.Fatal(err)
				}
				passed += n
			}
		}
	}
}

func (g *golden) flows(t *testing.T, queue string) {
	t.Helper()
	do := func(name, method, path, body string) {
		g.do(t, name, request{method: method, path: path, body: body}).ok(t, 200)
	}
	steps := `[
    {"name": "fetch", "queue_id": "` + queue + `", "input": {"url": {"$run": "/url"}}},
    {"name": "resize", "queue_id": "` + queue + `", "depends_on": ["fetch"], "input": {"file": {"$step": "fetch", "path": "/file"}, "width": 2e2}, "retry_safety": "safe"}
  ]`
	flow := g.first(t, "create_flow", "flow", goldFlow, request{method: "POST", path: "/v1/flows", body: `{"name": "thumbnails", "steps": ` + steps + `}`})
	do("get_flow", "GET", "/v1/flows/"+flow, "")
	do("list_flows", "GET", "/v1/flows?limit=1", "")
	do("get_flow_version", "GET", "/v1/flows/"+flow+"/versions/1", "")
	run := g.first(t, "start_flow", "run", goldRun, request{
		method: "POST", path: "/v1/flows/" + flow + "/runs", body: `{"input": {"url": "https://example.com/a.png", "n": 1.0}, "labels": {"customer": "blue"}}`,
	})
	do("list_runs", "GET", "/v1/flows/"+flow+"/runs?state=RUNNING", "")
	command := `{"reason": "the source is being moved"}`
	do("pause_run", "POST", "/v1/runs/"+run+":pause", command)
	do("resume_run", "POST", "/v1/runs/"+run+":resume", `{"expected_revision": "2", "reason": "it was moved"}`)
	claimed := g.Claim(t, g.tenant, 100) // older tests' tasks too
	for _, a := range claimed {
		if string(a.Task.Input) == `{"url": "https://example.com/a.png"}` {
			g.knows(a.Task.ID.String(), goldTask)
		}
		g.Complete(t, g.tenant, a, `{"file": "a.png"}`)
	}
	g.caughtUp(t)
	do("get_run", "GET", "/v1/runs/"+run, "")
	do("cancel_run", "POST", "/v1/runs/"+run+":cancel", command)
	g.caughtUp(t)
	do("retry_step", "POST", "/v1/runs/"+run+"/steps/resize:retry", command)
	do("publish_flow", "POST", "/v1/flows/"+flow+":publish", `{"expected_revision": "1", "reason": "smaller", "steps": `+steps+`}`)
}
