package httpapi

import (
	"context"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

func (a *API) createSubscription(ctx context.Context, c *call) (answer, error) {
	var body subscription.Create
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	n, err := body.Normalise()
	if err != nil {
		return answer{}, err
	}
	receipt, err := a.store.CreateSubscription(ctx, c.write(), n)
	if err != nil {
		return answer{}, err
	}
	return created("subscription", receipt), nil
}

func (a *API) getSubscription(ctx context.Context, c *call) (answer, error) {
	s, err := a.store.GetSubscription(ctx, c.caller, c.ids["id"])
	if err != nil {
		return answer{}, err
	}
	text, err := appendValue(nil, s)
	return object(text), err
}

func (a *API) listSubscriptions(ctx context.Context, c *call) (answer, error) {
	text, given := c.query["queue_id"]
	if !given {
		return answer{}, errs.Invalid("queue_id", "this parameter is required")
	}
	queue, err := ids.ParseID(text)
	if err != nil {
		return answer{}, errs.Invalid("queue_id", "%v", err)
	}
	scope := scopeOf("subscriptions", queue.String())
	page, err := a.page(ctx, c, scope)
	if err != nil {
		return answer{}, err
	}
	items, after, err := a.store.ListSubscriptions(ctx, c.caller, queue, page)
	if err != nil {
		return answer{}, err
	}
	next, err := a.next(ctx, c, scope, after)
	if err != nil {
		return answer{}, err
	}
	return list(items, appendValue, next)
}

func (a *API) configureSubscription(ctx context.Context, c *call) (answer, error) {
	var body subscription.Configure
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if err := body.Validate(); err != nil {
		return answer{}, err
	}
	receipt, err := a.store.ConfigureSubscription(ctx, c.write(), c.ids["id"], body)
	if err != nil {
		return answer{}, err
	}
	return commanded("subscription", receipt), nil
}
