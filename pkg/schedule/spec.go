package schedule

import (
	"strings"
	"time"
	_ "time/tzdata" // images without zone files have the zones too

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// CatchUp says what happens to fire times that passed while nothing could fire.
type CatchUp = string

// None of the missed fire times fires, the latest, or the latest MaxCatchUp.
const (
	CatchUpSkip CatchUp = "skip"
	CatchUpOne  CatchUp = "one"
	CatchUpAll  CatchUp = "all"
)

// Limits of R10.1.
const (
	MaxCatchUp = 100
	MinEvery   = 1                  // seconds
	MaxEvery   = 366 * 24 * 60 * 60 // seconds
	MaxCron    = 256                // bytes
	MaxPreview = 100
	maxZone    = 64
)

// Spec is when a schedule fires and what it submits: the changeable part of a schedule.
type Spec struct {
	Cron     string    `json:"cron"`  // minute hour day-of-month month day-of-week; or
	Every    int       `json:"every"` // seconds, in multiples since 1970-01-01T00:00:00Z
	TimeZone string    `json:"time_zone"`
	CatchUp  CatchUp   `json:"catch_up"`
	Task     *Template `json:"task"`
}

// normalise applies defaults and checks limits; errors are INVALID_ARGUMENT and name the field.
func (s *Spec) normalise() error {
	if (s.Cron == "") == (s.Every == 0) {
		return errs.Invalid("cron", "exactly one of cron and every is required")
	}
	if s.Every != 0 && (s.Every < MinEvery || s.Every > MaxEvery) {
		return errs.Invalid("every", "must be %d…%d seconds, is %d", MinEvery, MaxEvery, s.Every)
	}
	s.Cron = strings.Join(strings.Fields(s.Cron), " ")
	if s.TimeZone == "" {
		s.TimeZone = "UTC"
	}
	if s.CatchUp == "" {
		s.CatchUp = CatchUpSkip
	}
	if s.CatchUp != CatchUpSkip && s.CatchUp != CatchUpOne && s.CatchUp != CatchUpAll {
		return errs.Invalid("catch_up", "must be skip, one or all")
	}
	if _, err := s.Timing(); err != nil {
		return err
	}
	if s.Task == nil {
		return errs.Invalid("task", "is required")
	}
	sub := s.Submit(ids.ID{})
	if err := sub.Normalise(); err != nil {
		return errs.Invalid("task."+fieldOf(err), "%s", textOf(err))
	}
	s.Task.RetrySafety, s.Task.MaxAttempts = sub.RetrySafety, sub.MaxAttempts
	return nil
}

func fieldOf(err error) string { name, _, _ := strings.Cut(errs.MessageOf(err), ": "); return name }
func textOf(err error) string  { _, text, _ := strings.Cut(errs.MessageOf(err), ": "); return text }

// Submit is the task of one fire.
func (s *Spec) Submit(queue ids.ID) task.Submit {
	t := s.Task
	return task.Submit{
		QueueID: &queue, Input: t.Input, RetrySafety: t.RetrySafety, MaxAttempts: t.MaxAttempts, Priority: t.Priority, Labels: t.Labels,
	}
}

// Timing compiles when to fire. Errors are INVALID_ARGUMENT and name cron or time_zone.
func (s *Spec) Timing() (*Timing, error) {
	zone, err := zoneOf(s.TimeZone)
	if err != nil {
		return nil, err
	}
	if s.Every != 0 {
		return &Timing{zone: zone, every: time.Duration(s.Every) * time.Second}, nil
	}
	return parseCron(s.Cron, zone)
}

// zoneOf loads a zone of the IANA database. Names that mean something else on each machine are refused.
func zoneOf(name string) (*time.Location, error) {
	unknown := errs.Invalid("time_zone", "is not a name of the IANA time zone database, such as UTC or Europe/Berlin")
	switch {
	case len(name) > maxZone, name == "Local", name == "localtime", name == "posixrules",
		strings.HasPrefix(name, "posix/"), strings.HasPrefix(name, "right/"):
		return nil, unknown
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, unknown
	}
	return zone, nil
}

// Create is the body of POST /v1/schedules.
type Create struct {
	Name    string  `json:"name"`
	QueueID *ids.ID `json:"queue_id"`
	Spec
}

// Normalise applies defaults and checks limits; errors are INVALID_ARGUMENT and name the field.
func (c *Create) Normalise() error {
	if err := ids.CheckName(c.Name); err != nil {
		return errs.Invalid("name", "%v", err)
	}
	if c.QueueID == nil {
		return errs.Invalid("queue_id", "is required")
	}
	return c.normalise()
}

// Update is the body of :update: the whole content of a new draft.
type Update struct {
	Command
	Spec
}

// Normalise applies defaults and checks limits; errors are INVALID_ARGUMENT and name the field.
func (u *Update) Normalise() error {
	if err := u.Validate(); err != nil {
		return err
	}
	return u.normalise()
}

// Command is the body of :publish, :pause, :resume and :run.
type Command struct {
	ExpectedRevision *ids.Counter `json:"expected_revision"`
	Reason           string       `json:"reason"`
}

// Validate returns INVALID_ARGUMENT naming the field.
func (c Command) Validate() error {
	if c.ExpectedRevision == nil {
		return errs.Invalid("expected_revision", "is required")
	}
	if err := ids.CheckText(c.Reason, 1024); err != nil {
		return errs.Invalid("reason", "%v", err)
	}
	return nil
}
