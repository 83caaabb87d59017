// Package schedule is recurring work (R10.1): when a schedule fires, and what it submits then.
package schedule

import (
	"time"

	"github.com/go-json-experiment/json"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

// State says whether a schedule fires.
type State string

// A schedule is a DRAFT until its first version is published; then it is ENABLED, and fires, until it
// is PAUSED.
const (
	Draft   State = "DRAFT"
	Enabled State = "ENABLED"
	Paused  State = "PAUSED"
)

// Schedule is the object as answers show it. NextFireAt is set only while ENABLED.
type Schedule struct {
	ID         ids.ID      `json:"id"`
	QueueID    ids.ID      `json:"queue_id"`
	Name       string      `json:"name"`
	Revision   ids.Counter `json:"revision"`
	State      State       `json:"state"`
	NextFireAt *time.Time  `json:"next_fire_at,omitzero"`
	LastFireAt *time.Time  `json:"last_fire_at,omitzero"`
	CreatedAt  time.Time   `json:"created_at"`
	UpdatedAt  time.Time   `json:"updated_at"`
	Published  *Version    `json:"-"` // what fires
	Draft      *Version    `json:"-"` // what the next publish makes fire
}

// Version is one immutable content of a schedule.
type Version struct {
	Number      int
	Spec        Spec // Spec.Task.Input only where one schedule is read
	CreatedAt   time.Time
	PublishedAt *time.Time
}

// AppendJSON appends the object; the tasks' inputs, where present, byte for byte.
func (s *Schedule) AppendJSON(b []byte) ([]byte, error) {
	head, err := json.Marshal(s)
	if err != nil {
		return b, err
	}
	b = append(b, head[:len(head)-1]...)
	for _, v := range []struct {
		name    string
		version *Version
	}{{"published", s.Published}, {"draft", s.Draft}} {
		if v.version == nil {
			continue
		}
		b = append(append(append(b, `,"`...), v.name...), `":`...)
		if b, err = v.version.appendJSON(b); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

func (v *Version) appendJSON(b []byte) ([]byte, error) {
	head, err := json.Marshal(struct {
		Version     int        `json:"version"`
		Cron        string     `json:"cron,omitzero"`
		Every       int        `json:"every,omitzero"`
		TimeZone    string     `json:"time_zone"`
		CatchUp     CatchUp    `json:"catch_up"`
		CreatedAt   time.Time  `json:"created_at"`
		PublishedAt *time.Time `json:"published_at,omitzero"`
	}{v.Number, v.Spec.Cron, v.Spec.Every, v.Spec.TimeZone, v.Spec.CatchUp, v.CreatedAt, v.PublishedAt})
	if err != nil {
		return b, err
	}
	b = append(append(b, head[:len(head)-1]...), `,"task":`...)
	b, err = v.Spec.Task.appendJSON(b)
	return append(b, '}'), err
}

func (t *Template) appendJSON(b []byte) ([]byte, error) {
	head, err := json.Marshal(struct {
		RetrySafety string            `json:"retry_safety"`
		MaxAttempts int               `json:"max_attempts"`
		Priority    int               `json:"priority"`
		Labels      map[string]string `json:"labels,omitempty"`
	}{t.RetrySafety, t.MaxAttempts, t.Priority, t.Labels}, json.Deterministic(true))
	if err != nil {
		return b, err
	}
	b = append(b, head[:len(head)-1]...)
	if t.Input != nil {
		b = append(append(b, `,"input":`...), t.Input...)
	}
	return append(b, '}'), nil
}

// FireState is what became of a fire time.
type FireState string

// FIRED has a task, SKIPPED a reason.
const (
	Fired   FireState = "FIRED"
	Skipped FireState = "SKIPPED"
)

// Why fire times were skipped: passed while nothing could fire (catch_up), passed but not yet fired
// when the schedule was paused, no room in the application's limit of queued tasks, queue retired.
const (
	ReasonMissed   = "MISSED"
	ReasonPaused   = "PAUSED"
	ReasonCapacity = "CAPACITY_EXCEEDED"
	ReasonRetired  = "RESOURCE_RETIRED"
)

// Fire is one entry of a schedule's history. A SKIPPED one stands for Skipped fire times,
// FirstFireAt … FireAt; a manual one is a run-now, and FireAt is when it was asked for.
type Fire struct {
	ScheduleID  ids.ID     `json:"schedule_id"`
	FireAt      time.Time  `json:"fire_at"`
	State       FireState  `json:"state"`
	Manual      bool       `json:"manual"`
	Version     int        `json:"version"`
	TaskID      *ids.ID    `json:"task_id,omitzero"`
	Reason      string     `json:"reason,omitzero"`
	Skipped     int        `json:"skipped,omitzero"`
	FirstFireAt *time.Time `json:"first_fire_at,omitzero"`
	CreatedAt   time.Time  `json:"created_at"`
}

// Which names one of a schedule's two versions.
type Which string

// The names of the versions in a preview.
const (
	TheDraft     Which = "draft"
	ThePublished Which = "published"
)

// ParseWhich accepts the two names.
func ParseWhich(s string) (Which, error) {
	if s == string(TheDraft) || s == string(ThePublished) {
		return Which(s), nil
	}
	return "", errs.Invalid("version", "must be draft or published")
}

// Upcoming is one fire time of a preview: the instant, and the wall clock of the schedule's zone with
// its offset, as RFC 3339.
type Upcoming struct {
	FireAt    time.Time `json:"fire_at"`
	LocalTime string    `json:"local_time"`
}

// Template is what every task of a schedule is made of, as R8.2 but for queue_id and run_at.
type Template struct {
	Input       strictjson.Raw    `json:"input"`
	RetrySafety string            `json:"retry_safety"`
	MaxAttempts int               `json:"max_attempts"`
	Priority    int               `json:"priority"`
	Labels      map[string]string `json:"labels"`
}
