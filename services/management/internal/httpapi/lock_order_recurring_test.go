package httpapi

import (
	"context"
	"fmt"
	"math/rand/v2"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// The schedules and flows of TestLockOrder.

// addSchedule makes one that fires every second or two, and publishes it.
func (w *world) addSchedule() string {
	q, ok := w.openQueue()
	if !ok {
		return nothing
	}
	data, outcome := w.call("POST", "/v1/schedules", fmt.Sprintf(`{"name": "c-%s", "queue_id": "%s", "every": %d, "catch_up": "all", "task": {"input": 1}}`, ids.New(), q.id, 1+rand.IntN(2)))
	if data == nil {
		return outcome
	}
	id, ok := w.idFrom(data, "schedule")
	if !ok {
		return "broken"
	}
	put(w, &w.schedules, held[ids.ID]{q.id, id})
	return w.command("/v1/schedules/"+id.String(), "publish", "")
}

func (w *world) commandSchedule() string {
	s, ok := anyOf(w, &w.schedules)
	if !ok {
		return nothing
	}
	verb := []string{"pause", "pause", "resume", "run", "publish"}[rand.IntN(5)]
	w.mu.Lock()
	for _, q := range w.queues {
		if q.id == s.of && q.closing {
			verb = "pause"
		}
	}
	w.mu.Unlock()
	outcome := w.command("/v1/schedules/"+s.what.String(), verb, "")
	forget(w, &w.schedules, s, outcome)
	return verb + ", " + outcome
}

func (w *world) fire() string {
	_, err := w.stores[rand.IntN(2)].FireDueSchedules(context.Background(), 20)
	return w.judge("fire", err)
}

// addFlow makes one of two steps in queues of their own.
func (w *world) addFlow() string {
	a, ok := w.openQueue()
	b, ok2 := w.openQueue()
	if !ok || !ok2 {
		return nothing
	}
	data, outcome := w.call("POST", "/v1/flows", fmt.Sprintf(`{"name": "f-%s", "steps": [{"name": "a", "queue_id": "%s", "input": 1, "retry_safety": "safe"}, {"name": "b", "queue_id": "%s", "input": 1, "depends_on": ["a"]}]}`, ids.New(), a.id, b.id))
	if data == nil {
		return outcome
	}
	if id, ok := w.idFrom(data, "flow"); ok {
		put(w, &w.flows, id)
	}
	return outcome
}

func (w *world) startRun() string {
	id, ok := anyOf(w, &w.flows)
	if !ok {
		return nothing
	}
	data, outcome := w.call("POST", "/v1/flows/"+id.String()+"/runs", `{"input": {"n": 1}}`)
	forget(w, &w.flows, id, outcome)
	if data == nil {
		return outcome
	}
	if run, ok := w.idFrom(data, "run"); ok {
		put(w, &w.runs, run)
	}
	return outcome
}

func (w *world) commandRun() string {
	run, ok := anyOf(w, &w.runs)
	if !ok {
		return nothing
	}
	path := "/v1/runs/" + run.String()
	verb := []string{":cancel", ":cancel", ":pause", ":resume", "/steps/a:retry"}[rand.IntN(5)]
	_, outcome := w.call("POST", path+verb, `{"reason": "r"}`)
	if verb == ":cancel" || outcome == string(errs.ResourceRetired) {
		w.mu.Lock()
		for i, one := range w.runs {
			if one == run {
				w.runs = append(w.runs[:i:i], w.runs[i+1:]...)
				break
			}
		}
		w.mu.Unlock()
	}
	return verb + ", " + outcome
}

// progress is what the background does for flows.
func (w *world) progress() string {
	ctx, s := context.Background(), w.stores[rand.IntN(2)]
	switch rand.IntN(6) {
	case 0:
		_, err := s.SubmitWaiting(ctx, 20)
		return "waiting, " + w.judge("submit waiting", err)
	case 1:
		_, err := s.RestFlows(ctx)
		return "rest, " + w.judge("rest flows", err)
	}
	lags, err := s.FlowLags(ctx)
	for _, lag := range lags {
		if lag.Cursor < lag.Head && err == nil {
			_, err = s.FollowLog(ctx, lag)
		}
	}
	return w.judge("follow", err)
}
