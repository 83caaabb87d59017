package httpapi

import (
	"context"

	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

func (a *API) retireSubscription(ctx context.Context, c *call) (answer, error) {
	var body subscription.Retire
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if err := body.Validate(); err != nil {
		return answer{}, err
	}
	receipt, err := a.store.RetireSubscription(ctx, c.write(), c.ids["id"], body)
	if err != nil {
		return answer{}, err
	}
	return commanded("subscription", receipt), nil
}

func (a *API) retireQueue(ctx context.Context, c *call) (answer, error) {
	var body queue.Retire
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if err := body.Validate(); err != nil {
		return answer{}, err
	}
	receipt, err := a.store.RetireQueue(ctx, c.write(), c.ids["id"], body)
	if err != nil {
		return answer{}, err
	}
	return commanded("queue", receipt), nil
}
