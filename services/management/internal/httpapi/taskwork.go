package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// submitTasks queues a batch, all or none, and answers in the order of the request.
func (a *API) submitTasks(ctx context.Context, c *call) (answer, error) {
	var body task.Batch
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if err := body.Normalise(); err != nil {
		return answer{}, err
	}
	tasks, deduplicated, err := a.store.SubmitTasks(ctx, c.write(), body.Tasks)
	if err != nil {
		return answer{}, err
	}
	b := []byte(`{"tasks":[`)
	for i, t := range tasks {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = t.AppendJSON(b); err != nil {
			return answer{}, err
		}
	}
	b = strconv.AppendBool(append(b, `],"deduplicated":`...), deduplicated)
	status := http.StatusCreated
	if deduplicated {
		status = http.StatusOK
	}
	return answer{status, append(b, '}')}, nil
}

// listTasks takes label=name:value; a value may hold colons, a name cannot.
func (a *API) listTasks(ctx context.Context, c *call) (answer, error) {
	var filter store.TaskFilter
	var err error
	text, given := c.query["queue_id"]
	if !given {
		return answer{}, errs.Invalid("queue_id", "is required")
	}
	if filter.QueueID, err = ids.ParseID(text); err != nil {
		return answer{}, errs.Invalid("queue_id", "%v", err)
	}
	if text, given := c.query["state"]; given {
		if filter.State, err = task.ParseState(text); err != nil {
			return answer{}, err
		}
	}
	if text, given := c.query["label"]; given {
		name, value, ok := strings.Cut(text, ":")
		if !ok || ids.CheckName(name) != nil || len(name) > task.MaxLabelName || ids.CheckText(value, task.MaxLabelValue) != nil {
			return answer{}, errs.Invalid("label", "must be name:value")
		}
		filter.LabelName, filter.LabelValue = name, value
	}
	scope := scopeOf("tasks", filter.QueueID.String(), string(filter.State), filter.LabelName, filter.LabelValue)
	page, err := a.page(ctx, c, scope)
	if err != nil {
		return answer{}, err
	}
	items, after, err := a.store.ListTasks(ctx, c.caller, filter, page)
	if err != nil {
		return answer{}, err
	}
	next, err := a.next(ctx, c, scope, after)
	if err != nil {
		return answer{}, err
	}
	return list(items, func(b []byte, t *task.Task) ([]byte, error) { return t.AppendJSON(b) }, next)
}

func (a *API) listAttempts(ctx context.Context, c *call) (answer, error) {
	scope := scopeOf("attempts", c.ids["id"].String())
	page, err := a.page(ctx, c, scope)
	if err != nil {
		return answer{}, err
	}
	items, after, err := a.store.ListAttempts(ctx, c.caller, c.ids["id"], page)
	if err != nil {
		return answer{}, err
	}
	next, err := a.next(ctx, c, scope, after)
	if err != nil {
		return answer{}, err
	}
	return list(items, appendValue, next)
}

func (a *API) resolveTask(ctx context.Context, c *call) (answer, error) {
	var body task.Resolve
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if err := body.Validate(); err != nil {
		return answer{}, err
	}
	receipt, err := a.store.ResolveTask(ctx, c.write(), c.ids["id"], body)
	if err != nil {
		return answer{}, err
	}
	return commanded("task", receipt), nil
}

func (a *API) configureQueue(ctx context.Context, c *call) (answer, error) {
	var body queue.Configure
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if err := body.Validate(); err != nil {
		return answer{}, err
	}
	receipt, err := a.store.ConfigureQueue(ctx, c.write(), c.ids["id"], body)
	if err != nil {
		return answer{}, err
	}
	return commanded("queue", receipt), nil
}
