package httpapi

import (
	"context"

	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

func (a *API) createQueue(ctx context.Context, c *call) (answer, error) {
	var body queue.Create
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if err := body.Normalise(); err != nil {
		return answer{}, err
	}
	receipt, err := a.store.CreateQueue(ctx, c.write(), body)
	if err != nil {
		return answer{}, err
	}
	return created("queue", receipt), nil
}

func (a *API) getQueue(ctx context.Context, c *call) (answer, error) {
	q, err := a.store.GetQueue(ctx, c.caller, c.ids["id"])
	if err != nil {
		return answer{}, err
	}
	text, err := appendValue(nil, q)
	return object(text), err
}

func (a *API) listQueues(ctx context.Context, c *call) (answer, error) {
	scope := scopeOf("queues")
	page, err := a.page(ctx, c, scope)
	if err != nil {
		return answer{}, err
	}
	items, after, err := a.store.ListQueues(ctx, c.caller, page)
	if err != nil {
		return answer{}, err
	}
	next, err := a.next(ctx, c, scope, after)
	if err != nil {
		return answer{}, err
	}
	return list(items, appendValue, next)
}
