package httpapi

import (
	"context"

	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// submitTask answers the task without its input, which the caller has just sent.
func (a *API) submitTask(ctx context.Context, c *call) (answer, error) {
	var body task.Submit
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if err := body.Normalise(); err != nil {
		return answer{}, err
	}
	receipt, err := a.store.SubmitTask(ctx, c.write(), body)
	if err != nil {
		return answer{}, err
	}
	return created("task", receipt), nil
}

func (a *API) getTask(ctx context.Context, c *call) (answer, error) {
	t, err := a.store.GetTask(ctx, c.caller, c.ids["id"])
	if err != nil {
		return answer{}, err
	}
	text, err := t.AppendJSON(nil)
	return object(text), err
}

func (a *API) cancelTask(ctx context.Context, c *call) (answer, error) {
	var body task.Cancel
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if err := body.Validate(); err != nil {
		return answer{}, err
	}
	receipt, err := a.store.CancelTask(ctx, c.write(), c.ids["id"], body)
	if err != nil {
		return answer{}, err
	}
	return commanded("task", receipt), nil
}
