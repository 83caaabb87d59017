package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// call is one request on its way through a route; a handler finds in it only what was checked.
type call struct {
	requestID ids.ID
	caller    *access.Caller
	ids       map[string]ids.ID // of the path, by their names in the template
	texts     map[string]string // what else is in the path: {version} and {step}
	query     map[string]string
	key       string // Idempotency-Key of a write
	body      []byte // of a write
}

// write is who writes under which key, for the store.
func (c *call) write() store.Write {
	return store.Write{Caller: c.caller, Key: c.key, RequestID: c.requestID}
}

// run takes a request through the checks in the order of R2.9: room, credential, action, shape; the
// handler does the rest. No body is read for a caller who may not act.
func (a *API) run(c *call, rt route, values []string, w http.ResponseWriter, r *http.Request) (answer, error) {
	deadline := time.Now().Add(a.timeout)
	ctx, cancel := context.WithDeadline(r.Context(), deadline)
	defer cancel()

	leave, err := a.enter()
	if err != nil {
		return answer{}, err
	}
	defer leave()
	if c.caller, err = a.store.Authenticate(ctx, bearer(r.Header)); err != nil {
		return answer{}, err
	}
	if err := requireAny(c.caller, rt.actions); err != nil {
		return answer{}, err
	}
	if err := c.readShape(rt, values, w, r, deadline); err != nil {
		return answer{}, err
	}
	return rt.handle(a, ctx, c)
}

// requireAny names the first action when the caller has none of them.
func requireAny(caller *access.Caller, actions []access.Action) error {
	if slices.ContainsFunc(actions, func(action access.Action) bool { return caller.Require(action) == nil }) {
		return nil
	}
	return caller.Require(actions[0])
}

func (c *call) readShape(rt route, values []string, w http.ResponseWriter, r *http.Request, deadline time.Time) (err error) {
	if c.ids, c.texts, err = pathParams(rt.params(), values); err != nil {
		return err
	}
	if c.query, err = queryOf(r.URL.RawQuery, rt.query); err != nil {
		return err
	}
	if !rt.isWrite() {
		return noBody(r)
	}
	if c.key, err = idempotencyKey(r.Header); err != nil {
		return err
	}
	if err = checkContent(r.Header); err != nil {
		return err
	}
	c.body, err = readBody(w, r, deadline)
	return err
}

// enter takes one of the places for requests in flight; without a free one it is CAPACITY_EXCEEDED,
// and UNAVAILABLE before the schema is known to fit.
func (a *API) enter() (leave func(), err error) {
	if !a.admit() {
		return nil, errs.New(errs.Unavailable, "the service is starting and waits for its database")
	}
	select {
	case a.places <- struct{}{}:
		return func() { <-a.places }, nil
	default:
		return nil, errs.New(errs.CapacityExceeded, "this node has %d requests in flight, its limit", cap(a.places))
	}
}
