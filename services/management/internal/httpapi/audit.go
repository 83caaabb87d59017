package httpapi

import "context"

func (a *API) listAudit(ctx context.Context, c *call) (answer, error) {
	scope := scopeOf("audit")
	page, err := a.page(ctx, c, scope)
	if err != nil {
		return answer{}, err
	}
	items, after, err := a.store.ListAudit(ctx, c.caller, page)
	if err != nil {
		return answer{}, err
	}
	next, err := a.next(ctx, c, scope, after)
	if err != nil {
		return answer{}, err
	}
	return list(items, appendValue, next)
}
