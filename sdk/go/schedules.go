package orbit

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// ScheduleState says whether a schedule fires.
type ScheduleState = string

// A schedule is a draft until its first version is published.
const (
	ScheduleStateDraft   ScheduleState = "DRAFT"
	ScheduleStateEnabled ScheduleState = "ENABLED"
	ScheduleStatePaused  ScheduleState = "PAUSED"
)

// CatchUp says what happens to fire times that passed while nothing could fire.
type CatchUp = string

// None of them fires, the latest, or the latest 100.
const (
	CatchUpSkip CatchUp = "skip"
	CatchUpOne  CatchUp = "one"
	CatchUpAll  CatchUp = "all"
)

// Schedule submits a task at each of its fire times (R10.1). NextFireAt is set only while it is ENABLED.
type Schedule struct {
	ID         string           `json:"id"`
	QueueID    string           `json:"queue_id"`
	Name       string           `json:"name"`
	Revision   Counter          `json:"revision"`
	State      ScheduleState    `json:"state"`
	NextFireAt *time.Time       `json:"next_fire_at,omitempty"`
	LastFireAt *time.Time       `json:"last_fire_at,omitempty"`
	CreatedAt  time.Time        `json:"created_at"`
	UpdatedAt  time.Time        `json:"updated_at"`
	Published  *ScheduleVersion `json:"published,omitempty"` // what fires
	Draft      *ScheduleVersion `json:"draft,omitempty"`     // what PublishSchedule would make fire
}

// ScheduleVersion is one content of a schedule; it never changes.
type ScheduleVersion struct {
	Version     int          `json:"version"`
	Cron        string       `json:"cron,omitempty"`  // or
	Every       int          `json:"every,omitempty"` // seconds
	TimeZone    string       `json:"time_zone"`
	CatchUp     CatchUp      `json:"catch_up"`
	CreatedAt   time.Time    `json:"created_at"`
	PublishedAt *time.Time   `json:"published_at,omitempty"`
	Task        ScheduleTask `json:"task"`
}

// ScheduleTask is what every task of a schedule is made of. In an answer, Input is present only in
// GetSchedule, byte for byte.
type ScheduleTask struct {
	Input       json.RawMessage   `json:"input,omitempty"` // required in a request
	RetrySafety RetrySafety       `json:"retry_safety"`    // "": Unsafe
	MaxAttempts int               `json:"max_attempts"`    // 1–100 (0: 3)
	Priority    int               `json:"priority"`        // −100…100, higher first
	Labels      map[string]string `json:"labels,omitempty"`
}

// ScheduleSpec is when a schedule fires and what it submits then. Exactly one of Cron and Every is set.
type ScheduleSpec struct {
	Cron     string       `json:"cron"`      // minute, hour, day of month, month, day of week
	Every    int          `json:"every"`     // seconds, in multiples since 1970-01-01T00:00:00Z
	TimeZone string       `json:"time_zone"` // of the IANA database ("": UTC)
	CatchUp  CatchUp      `json:"catch_up"`  // "": CatchUpSkip
	Task     ScheduleTask `json:"task"`
}

func (s ScheduleSpec) put(o *object) error {
	if s.Cron != "" {
		o.put("cron", s.Cron)
	}
	if s.Every != 0 {
		o.put("every", s.Every)
	}
	if s.TimeZone != "" {
		o.put("time_zone", s.TimeZone)
	}
	if s.CatchUp != "" {
		o.put("catch_up", s.CatchUp)
	}
	t := SubmitTaskRequest{Input: s.Task.Input, RetrySafety: s.Task.RetrySafety, MaxAttempts: s.Task.MaxAttempts, Priority: s.Task.Priority, Labels: s.Task.Labels}
	var task object
	if err := t.put(&task); err != nil {
		return err
	}
	o.raw("task", task.done())
	return nil
}

// CreateScheduleRequest names a schedule; Name is unique in the namespace for ever.
type CreateScheduleRequest struct {
	Name    string `json:"name"`
	QueueID string `json:"queue_id"`
	ScheduleSpec
}

// UpdateScheduleRequest is the whole content of a new draft.
type UpdateScheduleRequest struct {
	ExpectedRevision Counter `json:"expected_revision"`
	Reason           string  `json:"reason"` // 1–1024 characters
	ScheduleSpec
}

// ScheduleCommandRequest is what the other commands on a schedule say.
type ScheduleCommandRequest struct {
	ExpectedRevision Counter `json:"expected_revision"`
	Reason           string  `json:"reason"` // 1–1024 characters
}

// ScheduleResult answers a command: the schedule as the first execution of the key left it, without inputs.
type ScheduleResult struct {
	Schedule     Schedule `json:"schedule"`
	Deduplicated bool     `json:"deduplicated"`
}

// ScheduleFire says what became of a fire time: FIRED has a task, SKIPPED a reason. A SKIPPED one stands
// for Skipped fire times, FirstFireAt … FireAt; a Manual one was asked for at FireAt.
type ScheduleFire struct {
	ScheduleID  string     `json:"schedule_id"`
	FireAt      time.Time  `json:"fire_at"`
	State       string     `json:"state"` // FIRED or SKIPPED
	Manual      bool       `json:"manual"`
	Version     int        `json:"version"`
	TaskID      string     `json:"task_id,omitempty"`
	Reason      string     `json:"reason,omitempty"` // MISSED, PAUSED, CAPACITY_EXCEEDED or RESOURCE_RETIRED
	Skipped     int        `json:"skipped,omitempty"`
	FirstFireAt *time.Time `json:"first_fire_at,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
}

// ScheduleFireResult answers RunSchedule.
type ScheduleFireResult struct {
	Fire         ScheduleFire `json:"fire"`
	Deduplicated bool         `json:"deduplicated"`
}

// UpcomingFire is one fire time of a preview. LocalTime is the wall clock of the schedule's zone with its
// offset, as RFC 3339.
type UpcomingFire struct {
	FireAt    time.Time `json:"fire_at"`
	LocalTime string    `json:"local_time"`
}

// CreateSchedule makes a draft; nothing fires before PublishSchedule.
func (c *Client) CreateSchedule(ctx context.Context, key string, r CreateScheduleRequest) (*ScheduleResult, error) {
	var o object
	o.put("name", r.Name)
	o.put("queue_id", r.QueueID)
	if err := r.put(&o); err != nil {
		return nil, err
	}
	out := new(ScheduleResult)
	return result(out, c.post(ctx, "/v1/schedules", key, o.done(), out))
}

// UpdateSchedule makes a new draft; what is published goes on as it is.
func (c *Client) UpdateSchedule(ctx context.Context, id, key string, r UpdateScheduleRequest) (*ScheduleResult, error) {
	var o object
	o.put("expected_revision", r.ExpectedRevision)
	o.put("reason", r.Reason)
	if err := r.put(&o); err != nil {
		return nil, err
	}
	out := new(ScheduleResult)
	return result(out, c.command(ctx, "schedules", id, ":update", key, o.done(), out))
}

// PublishSchedule lets the draft fire, from the next fire time on. ErrStateConflict: no draft, or the
// revision moved on.
func (c *Client) PublishSchedule(ctx context.Context, id, key string, r ScheduleCommandRequest) (*ScheduleResult, error) {
	out := new(ScheduleResult)
	return result(out, c.command(ctx, "schedules", id, ":publish", key, plain(r), out))
}

// PauseSchedule stops a schedule: once this has answered, it makes no more tasks.
func (c *Client) PauseSchedule(ctx context.Context, id, key string, r ScheduleCommandRequest) (*ScheduleResult, error) {
	out := new(ScheduleResult)
	return result(out, c.command(ctx, "schedules", id, ":pause", key, plain(r), out))
}

// ResumeSchedule lets a paused schedule fire again, from the next fire time on.
func (c *Client) ResumeSchedule(ctx context.Context, id, key string, r ScheduleCommandRequest) (*ScheduleResult, error) {
	out := new(ScheduleResult)
	return result(out, c.command(ctx, "schedules", id, ":resume", key, plain(r), out))
}

// RunSchedule submits the published version's task now; the schedule may be paused.
func (c *Client) RunSchedule(ctx context.Context, id, key string, r ScheduleCommandRequest) (*ScheduleFireResult, error) {
	out := new(ScheduleFireResult)
	return result(out, c.command(ctx, "schedules", id, ":run", key, plain(r), out))
}

// GetSchedule reads a schedule with its published version and its draft.
func (c *Client) GetSchedule(ctx context.Context, id string) (*Schedule, error) {
	out := new(Schedule)
	return result(out, c.one(ctx, "schedules", id, "", nil, out))
}

// ListSchedulesRequest selects schedules in the credential's scope.
type ListSchedulesRequest struct {
	QueueID string // "": all
	Limit   int    // 1–100 (0: 20)
	Cursor  string
}

// ListSchedules reads one page, newest first, without the tasks' inputs.
func (c *Client) ListSchedules(ctx context.Context, r ListSchedulesRequest) (*Page[Schedule], error) {
	q := ListOptions{Limit: r.Limit, Cursor: r.Cursor}.query()
	set(q, "queue_id", r.QueueID)
	out := new(Page[Schedule])
	return result(out, c.get(ctx, "/v1/schedules", q, out))
}

// AllSchedules reads page after page. A failure is yielded once and ends the sequence.
func (c *Client) AllSchedules(ctx context.Context, r ListSchedulesRequest) iter.Seq2[Schedule, error] {
	start := ListOptions{Limit: r.Limit, Cursor: r.Cursor}
	return all(ctx, start, func(ctx context.Context, o ListOptions) (*Page[Schedule], error) {
		r.Limit, r.Cursor = o.Limit, o.Cursor
		return c.ListSchedules(ctx, r)
	})
}

// PreviewScheduleRequest selects fire times to preview.
type PreviewScheduleRequest struct {
	Version string // "draft" or "published" ("": the published one if there is one)
	Count   int    // 1–100 (0: 10)
}

// PreviewSchedule reads the next fire times after now, on the server's clock.
func (c *Client) PreviewSchedule(ctx context.Context, id string, r PreviewScheduleRequest) ([]UpcomingFire, error) {
	q := url.Values{}
	set(q, "version", r.Version)
	if r.Count != 0 {
		q.Set("count", strconv.Itoa(r.Count))
	}
	var out Page[UpcomingFire]
	err := c.one(ctx, "schedules", id, "/preview", q, &out)
	return out.Items, err
}

// ListScheduleFires reads one page of what became of a schedule's fire times, newest first.
func (c *Client) ListScheduleFires(ctx context.Context, id string, o ListOptions) (*Page[ScheduleFire], error) {
	out := new(Page[ScheduleFire])
	return result(out, c.one(ctx, "schedules", id, "/fires", o.query(), out))
}

// AllScheduleFires reads page after page. A failure is yielded once and ends the sequence.
func (c *Client) AllScheduleFires(ctx context.Context, id string) iter.Seq2[ScheduleFire, error] {
	return all(ctx, ListOptions{Limit: 100}, func(ctx context.Context, o ListOptions) (*Page[ScheduleFire], error) {
		return c.ListScheduleFires(ctx, id, o)
	})
}
