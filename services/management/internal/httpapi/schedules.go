package httpapi

import (
	"context"
	"strconv"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

const defaultPreview = 10

// createSchedule answers the draft without the task's input, as every command on a schedule does.
func (a *API) createSchedule(ctx context.Context, c *call) (answer, error) {
	var body schedule.Create
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if err := body.Normalise(); err != nil {
		return answer{}, err
	}
	receipt, err := a.store.CreateSchedule(ctx, c.write(), body)
	if err != nil {
		return answer{}, err
	}
	return created("schedule", receipt), nil
}

func (a *API) getSchedule(ctx context.Context, c *call) (answer, error) {
	s, err := a.store.GetSchedule(ctx, c.caller, c.ids["id"])
	if err != nil {
		return answer{}, err
	}
	text, err := s.AppendJSON(nil)
	return object(text), err
}

func (a *API) listSchedules(ctx context.Context, c *call) (answer, error) {
	var queue *ids.ID
	if text, given := c.query["queue_id"]; given {
		id, err := ids.ParseID(text)
		if err != nil {
			return answer{}, errs.Invalid("queue_id", "%v", err)
		}
		queue = &id
	}
	scope := scopeOf("schedules", c.query["queue_id"])
	page, err := a.page(ctx, c, scope)
	if err != nil {
		return answer{}, err
	}
	items, after, err := a.store.ListSchedules(ctx, c.caller, queue, page)
	if err != nil {
		return answer{}, err
	}
	next, err := a.next(ctx, c, scope, after)
	if err != nil {
		return answer{}, err
	}
	return list(items, func(b []byte, s *schedule.Schedule) ([]byte, error) { return s.AppendJSON(b) }, next)
}

func (a *API) updateSchedule(ctx context.Context, c *call) (answer, error) {
	var body schedule.Update
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if err := body.Normalise(); err != nil {
		return answer{}, err
	}
	receipt, err := a.store.UpdateSchedule(ctx, c.write(), c.ids["id"], body)
	if err != nil {
		return answer{}, err
	}
	return commanded("schedule", receipt), nil
}

// scheduleCommand is one of the commands that say no more than the revision and the reason.
type scheduleCommand func(ctx context.Context, w store.Write, id ids.ID, cmd schedule.Command) (store.Receipt, error)

func (c *call) commandSchedule(ctx context.Context, resource string, run scheduleCommand) (answer, error) {
	var body schedule.Command
	if err := strictjson.Decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if err := body.Validate(); err != nil {
		return answer{}, err
	}
	receipt, err := run(ctx, c.write(), c.ids["id"], body)
	if err != nil {
		return answer{}, err
	}
	return commanded(resource, receipt), nil
}

func (a *API) publishSchedule(ctx context.Context, c *call) (answer, error) {
	return c.commandSchedule(ctx, "schedule", a.store.PublishSchedule)
}

func (a *API) pauseSchedule(ctx context.Context, c *call) (answer, error) {
	return c.commandSchedule(ctx, "schedule", a.store.PauseSchedule)
}

func (a *API) resumeSchedule(ctx context.Context, c *call) (answer, error) {
	return c.commandSchedule(ctx, "schedule", a.store.ResumeSchedule)
}

// runSchedule answers the entry of the history, which names the task.
func (a *API) runSchedule(ctx context.Context, c *call) (answer, error) {
	return c.commandSchedule(ctx, "fire", a.store.RunSchedule)
}

func (a *API) previewSchedule(ctx context.Context, c *call) (answer, error) {
	var which schedule.Which
	if text, given := c.query["version"]; given {
		var err error
		if which, err = schedule.ParseWhich(text); err != nil {
			return answer{}, err
		}
	}
	count := defaultPreview
	if text, given := c.query["count"]; given {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > schedule.MaxPreview || strconv.Itoa(n) != text {
			return answer{}, errs.Invalid("count", "must be a whole number 1…%d", schedule.MaxPreview)
		}
		count = n
	}
	items, err := a.store.PreviewSchedule(ctx, c.caller, c.ids["id"], which, count)
	if err != nil {
		return answer{}, err
	}
	return list(items, appendValue, "")
}

func (a *API) listScheduleFires(ctx context.Context, c *call) (answer, error) {
	id := c.ids["id"]
	scope := scopeOf("fires", id.String())
	page, err := a.page(ctx, c, scope)
	if err != nil {
		return answer{}, err
	}
	items, after, err := a.store.ListScheduleFires(ctx, c.caller, id, page)
	if err != nil {
		return answer{}, err
	}
	next, err := a.next(ctx, c, scope, after)
	if err != nil {
		return answer{}, err
	}
	return list(items, appendValue, next)
}
