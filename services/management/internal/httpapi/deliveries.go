package httpapi

import (
	"context"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

func (a *API) listDeliveries(ctx context.Context, c *call) (answer, error) {
	subscription := c.ids["id"]
	var state delivery.State
	if text, given := c.query["state"]; given {
		var err error
		if state, err = delivery.ParseState(text); err != nil {
			return answer{}, err
		}
	}
	scope := scopeOf("deliveries", subscription.String(), string(state))
	page, err := a.page(ctx, c, scope)
	if err != nil {
		return answer{}, err
	}
	items, after, err := a.store.ListDeliveries(ctx, c.caller, subscription, state, page)
	if err != nil {
		return answer{}, err
	}
	next, err := a.next(ctx, c, scope, after)
	if err != nil {
		return answer{}, err
	}
	return list(items, func(b []byte, d *delivery.Delivery) ([]byte, error) { return d.AppendJSON(b), nil }, next)
}

func (a *API) getDelivery(ctx context.Context, c *call) (answer, error) {
	d, event, err := a.store.GetDelivery(ctx, c.caller, c.ids["id"], c.ids["delivery_id"])
	if err != nil {
		return answer{}, err
	}
	b := append([]byte(`{"delivery":`), d.AppendJSON(nil)...)
	b = event.AppendJSON(append(b, `,"event":`...))
	return object(append(b, '}')), nil
}

func (a *API) retryDelivery(ctx context.Context, c *call) (answer, error) {
	var body delivery.Retry
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if err := body.Validate(); err != nil {
		return answer{}, err
	}
	receipt, err := a.store.RetryDelivery(ctx, c.write(), c.ids["id"], c.ids["delivery_id"], body)
	if err != nil {
		return answer{}, err
	}
	return commanded("delivery", receipt), nil
}
