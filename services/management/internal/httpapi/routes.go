package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
)

// route is one endpoint. Its template is spelled as in the OpenAPI document: {name} is an id (but for
// {version} and {step}), and what follows the last colon is a verb.
type route struct {
	method   string
	template string
	actions  []access.Action // any one of them suffices
	query    []string        // the parameters it takes; list endpoints only (R2.5)
	handle   func(a *API, ctx context.Context, c *call) (answer, error)
}

func (r route) isWrite() bool { return r.method == http.MethodPost }

// routes is the whole API.
func routes() []route {
	only := func(action access.Action) []access.Action { return []access.Action{action} }
	return []route{
		{http.MethodPost, "/v1/queues", only(access.QueuesManage), nil, (*API).createQueue},
		{http.MethodGet, "/v1/queues", only(access.QueuesRead), []string{"limit", "cursor"}, (*API).listQueues},
		{http.MethodGet, "/v1/queues/{id}", only(access.QueuesRead), nil, (*API).getQueue},

		{http.MethodPost, "/v1/queues/{id}:configure", only(access.QueuesManage), nil, (*API).configureQueue},
		{http.MethodPost, "/v1/queues/{id}:retire", only(access.QueuesManage), nil, (*API).retireQueue},

		{http.MethodPost, "/v1/tasks", only(access.TasksSubmit), nil, (*API).submitTask},
		{http.MethodPost, "/v1/tasks:batch", only(access.TasksSubmit), nil, (*API).submitTasks},
		{http.MethodGet, "/v1/tasks", only(access.TasksRead), []string{"queue_id", "state", "label", "limit", "cursor"}, (*API).listTasks},
		{http.MethodGet, "/v1/tasks/{id}", only(access.TasksRead), nil, (*API).getTask},
		{http.MethodPost, "/v1/tasks/{id}:cancel", only(access.TasksManage), nil, (*API).cancelTask},
		{http.MethodPost, "/v1/tasks/{id}:resolve", only(access.TasksManage), nil, (*API).resolveTask},
		{http.MethodGet, "/v1/tasks/{id}/attempts", only(access.TasksRead), []string{"limit", "cursor"}, (*API).listAttempts},

		{http.MethodPost, "/v1/subscriptions", only(access.EventsManage), nil, (*API).createSubscription},
		{http.MethodGet, "/v1/subscriptions", only(access.EventsRead), []string{"queue_id", "limit", "cursor"}, (*API).listSubscriptions},
		{http.MethodGet, "/v1/subscriptions/{id}", only(access.EventsRead), nil, (*API).getSubscription},
		{http.MethodPost, "/v1/subscriptions/{id}:configure", only(access.EventsManage), nil, (*API).configureSubscription},
		{http.MethodPost, "/v1/subscriptions/{id}:retire", only(access.EventsManage), nil, (*API).retireSubscription},
		{http.MethodGet, "/v1/subscriptions/{id}/deliveries", only(access.EventsRead), []string{"state", "limit", "cursor"}, (*API).listDeliveries},
		{http.MethodGet, "/v1/subscriptions/{id}/deliveries/{delivery_id}", only(access.EventsRead), nil, (*API).getDelivery},
		{http.MethodPost, "/v1/subscriptions/{id}/deliveries/{delivery_id}:retry", only(access.EventsManage), nil, (*API).retryDelivery},

		{http.MethodPost, "/v1/schedules", only(access.SchedulesManage), nil, (*API).createSchedule},
		{http.MethodGet, "/v1/schedules", only(access.SchedulesRead), []string{"queue_id", "limit", "cursor"}, (*API).listSchedules},
		{http.MethodGet, "/v1/schedules/{id}", only(access.SchedulesRead), nil, (*API).getSchedule},
		{http.MethodPost, "/v1/schedules/{id}:update", only(access.SchedulesManage), nil, (*API).updateSchedule},
		{http.MethodPost, "/v1/schedules/{id}:publish", only(access.SchedulesManage), nil, (*API).publishSchedule},
		{http.MethodPost, "/v1/schedules/{id}:pause", only(access.SchedulesManage), nil, (*API).pauseSchedule},
		{http.MethodPost, "/v1/schedules/{id}:resume", only(access.SchedulesManage), nil, (*API).resumeSchedule},
		{http.MethodPost, "/v1/schedules/{id}:run", only(access.SchedulesManage), nil, (*API).runSchedule},
		{http.MethodGet, "/v1/schedules/{id}/preview", only(access.SchedulesRead), []string{"version", "count"}, (*API).previewSchedule},
		{http.MethodGet, "/v1/schedules/{id}/fires", only(access.SchedulesRead), []string{"limit", "cursor"}, (*API).listScheduleFires},

		{http.MethodGet, "/v1/audit", []access.Action{access.EventsManage, access.QueuesManage}, []string{"limit", "cursor"}, (*API).listAudit},

		{http.MethodPost, "/v1/flows", only(access.FlowsManage), nil, (*API).createFlow},
		{http.MethodGet, "/v1/flows", only(access.FlowsRead), []string{"limit", "cursor"}, (*API).listFlows},
		{http.MethodGet, "/v1/flows/{id}", only(access.FlowsRead), nil, (*API).getFlow},
		{http.MethodPost, "/v1/flows/{id}:publish", only(access.FlowsManage), nil, (*API).publishFlow},
		{http.MethodGet, "/v1/flows/{id}/versions/{version}", only(access.FlowsRead), nil, (*API).getFlowVersion},
		{http.MethodPost, "/v1/flows/{id}/runs", only(access.FlowsStart), nil, (*API).startFlow},
		{http.MethodGet, "/v1/flows/{id}/runs", only(access.FlowsRead), []string{"state", "limit", "cursor"}, (*API).listRuns},
		{http.MethodGet, "/v1/runs/{id}", only(access.FlowsRead), nil, (*API).getRun},
		{http.MethodPost, "/v1/runs/{id}:pause", only(access.FlowsManage), nil, (*API).pauseRun},
		{http.MethodPost, "/v1/runs/{id}:resume", only(access.FlowsManage), nil, (*API).resumeRun},
		{http.MethodPost, "/v1/runs/{id}:cancel", only(access.FlowsManage), nil, (*API).cancelRun},
		{http.MethodPost, "/v1/runs/{id}/steps/{step}:retry", only(access.FlowsManage), nil, (*API).retryStep},
	}
}

// pattern is a template in gin's spelling. A verb after an id comes with the id, as in /v1/tasks/:id
// for /v1/tasks/{id}:cancel; one after a literal is a parameter of its own, as in /v1/tasks:verb.
func (r route) pattern() string {
	path, verb := cutVerb(r.template)
	if verb != "" && !strings.HasSuffix(path, "}") {
		path += ":verb"
	}
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// params are the names of the ids in the template, in order.
func (r route) params() []string {
	var names []string
	for segment := range strings.SplitSeq(r.template, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			name, _, _ = strings.Cut(name, "}")
			names = append(names, name)
		}
	}
	return names
}

func (r route) verb() string {
	_, verb := cutVerb(r.template)
	return verb
}

// cutVerb splits the verb from the last segment of a decoded path.
func cutVerb(path string) (rest, verb string) {
	if colon := strings.LastIndexByte(path, ':'); colon > strings.LastIndexByte(path, '/') {
		return path[:colon], path[colon+1:]
	}
	return path, ""
}

// allowed lists the methods that some route takes at this path, sorted; none for an unknown path.
// Literal parts must be spelled plainly; an id or a verb may be percent-encoded, its colon too.
func allowed(table []route, escapedPath string) []string {
	segments := strings.Split(escapedPath, "/")
	var out []string
	for _, r := range table {
		if r.matches(segments) {
			out = append(out, r.method)
			if r.method == http.MethodGet {
				out = append(out, http.MethodHead)
			}
		}
	}
	if out == nil {
		return nil
	}
	out = append(out, http.MethodOptions)
	slices.Sort(out)
	return slices.Compact(out)
}

func (r route) matches(segments []string) bool {
	path, verb := cutVerb(r.template)
	want := strings.Split(path, "/")
	if len(want) != len(segments) {
		return false
	}
	for i, w := range want {
		wantVerb := ""
		if i == len(want)-1 {
			wantVerb = verb
		}
		if !segmentMatches(w, wantVerb, segments[i]) {
			return false
		}
	}
	return true
}

// segmentMatches compares one segment of a template, and the verb after it, with an escaped one.
func segmentMatches(want, verb, escaped string) bool {
	if !strings.HasPrefix(want, "{") {
		rest, ok := strings.CutPrefix(escaped, want)
		decoded, err := url.PathUnescape(rest)
		return ok && err == nil && (decoded == "" && rest == "" && verb == "" || verb != "" && decoded == ":"+verb)
	}
	decoded, err := url.PathUnescape(escaped)
	if err != nil || decoded == "" {
		return false
	}
	_, got := cutVerb(decoded)
	return got == verb
}
