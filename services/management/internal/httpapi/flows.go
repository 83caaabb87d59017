package httpapi

import (
	"context"
	"strconv"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

func (a *API) createFlow(ctx context.Context, c *call) (answer, error) {
	var body flow.Create
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	plan, err := body.Plan()
	if err != nil {
		return answer{}, err
	}
	receipt, err := a.store.CreateFlow(ctx, c.write(), body.Name, plan)
	if err != nil {
		return answer{}, err
	}
	return created("flow", receipt), nil
}

func (a *API) publishFlow(ctx context.Context, c *call) (answer, error) {
	var body flow.Publish
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	plan, err := body.Plan()
	if err != nil {
		return answer{}, err
	}
	receipt, err := a.store.PublishFlow(ctx, c.write(), c.ids["id"], body, plan)
	if err != nil {
		return answer{}, err
	}
	return commanded("flow", receipt), nil
}

func (a *API) listFlows(ctx context.Context, c *call) (answer, error) {
	scope := scopeOf("flows")
	page, err := a.page(ctx, c, scope)
	if err != nil {
		return answer{}, err
	}
	items, after, err := a.store.ListFlows(ctx, c.caller, page)
	if err != nil {
		return answer{}, err
	}
	next, err := a.next(ctx, c, scope, after)
	if err != nil {
		return answer{}, err
	}
	return list(items, appendValue, next)
}

func (a *API) getFlow(ctx context.Context, c *call) (answer, error) {
	f, err := a.store.GetFlow(ctx, c.caller, c.ids["id"])
	if err != nil {
		return answer{}, err
	}
	text, err := appendValue(nil, f)
	return object(text), err
}

func (a *API) getFlowVersion(ctx context.Context, c *call) (answer, error) {
	text := c.texts["version"]
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > flow.MaxVersion || strconv.Itoa(n) != text {
		return answer{}, errs.Invalid("version", "must be a whole number 1…%d", flow.MaxVersion)
	}
	v, err := a.store.GetFlowVersion(ctx, c.caller, c.ids["id"], n)
	if err != nil {
		return answer{}, err
	}
	out, err := v.AppendJSON(nil)
	return object(out), err
}

// startFlow answers the run without its input, which the caller has just sent.
func (a *API) startFlow(ctx context.Context, c *call) (answer, error) {
	var body flow.Start
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if err := body.Normalise(); err != nil {
		return answer{}, err
	}
	receipt, err := a.store.StartFlow(ctx, c.write(), c.ids["id"], body)
	if err != nil {
		return answer{}, err
	}
	a.moved()
	return created("run", receipt), nil
}

func (a *API) listRuns(ctx context.Context, c *call) (answer, error) {
	filter := store.RunFilter{FlowID: c.ids["id"]}
	if text, given := c.query["state"]; given {
		var err error
		if filter.State, err = flow.ParseState(text); err != nil {
			return answer{}, err
		}
	}
	scope := scopeOf("runs", filter.FlowID.String(), string(filter.State))
	page, err := a.page(ctx, c, scope)
	if err != nil {
		return answer{}, err
	}
	items, after, err := a.store.ListRuns(ctx, c.caller, filter, page)
	if err != nil {
		return answer{}, err
	}
	next, err := a.next(ctx, c, scope, after)
	if err != nil {
		return answer{}, err
	}
	return list(items, func(b []byte, r *flow.RunRecord) ([]byte, error) { return r.AppendJSON(b) }, next)
}

func (a *API) getRun(ctx context.Context, c *call) (answer, error) {
	r, err := a.store.GetRun(ctx, c.caller, c.ids["id"])
	if err != nil {
		return answer{}, err
	}
	text, err := r.AppendJSON(nil)
	return object(text), err
}

func (a *API) pauseRun(ctx context.Context, c *call) (answer, error) {
	return a.commandRun(ctx, c, flow.Pause)
}

func (a *API) resumeRun(ctx context.Context, c *call) (answer, error) {
	return a.commandRun(ctx, c, flow.Resume)
}

func (a *API) cancelRun(ctx context.Context, c *call) (answer, error) {
	return a.commandRun(ctx, c, flow.Cancel)
}

func (a *API) commandRun(ctx context.Context, c *call, kind flow.Kind) (answer, error) {
	body, err := runCommand(c)
	if err != nil {
		return answer{}, err
	}
	receipt, err := a.store.CommandRun(ctx, c.write(), c.ids["id"], kind, body)
	if err != nil {
		return answer{}, err
	}
	a.moved()
	return commanded("run", receipt), nil
}

func (a *API) retryStep(ctx context.Context, c *call) (answer, error) {
	step := c.texts["step"]
	if err := ids.CheckName(step); err != nil {
		return answer{}, errs.Invalid("step", "%v", err)
	}
	body, err := runCommand(c)
	if err != nil {
		return answer{}, err
	}
	receipt, err := a.store.RetryStep(ctx, c.write(), c.ids["id"], step, body)
	if err != nil {
		return answer{}, err
	}
	a.moved()
	return commanded("run", receipt), nil
}

func runCommand(c *call) (flow.Command, error) {
	var body flow.Command
	if err := strictjson.Decode(c.body, &body); err != nil {
		return body, err
	}
	return body, body.Validate()
}
