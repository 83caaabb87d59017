package store

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
)

type versionKey struct {
	Schedule ids.ID
	Version  int
}

type versionRow struct {
	ScheduleID   ids.ID     `db:"schedule_id"`
	Version      int        `db:"version"`
	Cron         *string    `db:"cron"`
	EverySeconds *int       `db:"every_seconds"`
	TimeZone     string     `db:"time_zone"`
	CatchUp      string     `db:"catch_up"`
	Priority     int        `db:"priority"`
	RetrySafety  string     `db:"retry_safety"`
	MaxAttempts  int        `db:"max_attempts"`
	Labels       []byte     `db:"labels"`
	Input        []byte     `db:"input"`
	CreatedAt    time.Time  `db:"created_at"`
	PublishedAt  *time.Time `db:"published_at"`
}

const versionColumns = `schedule_id, version, cron, every_seconds, time_zone, catch_up, priority, retry_safety, max_attempts, labels, created_at, published_at`

func (r *versionRow) content() (*schedule.Version, error) {
	t := &schedule.Template{Input: r.Input, RetrySafety: r.RetrySafety, MaxAttempts: r.MaxAttempts, Priority: r.Priority}
	if r.Labels != nil {
		if err := json.Unmarshal(r.Labels, &t.Labels); err != nil {
			return nil, fmt.Errorf("labels of schedule %s, version %d: %w", r.ScheduleID, r.Version, err)
		}
	}
	v := &schedule.Version{
		Number: r.Version, CreatedAt: r.CreatedAt, PublishedAt: r.PublishedAt,
		Spec: schedule.Spec{TimeZone: r.TimeZone, CatchUp: r.CatchUp, Task: t},
	}
	if r.Cron != nil {
		v.Spec.Cron = *r.Cron
	} else if r.EverySeconds != nil {
		v.Spec.Every = *r.EverySeconds
	}
	return v, nil
}

// readVersions reads versions by their keys, with the tasks' inputs where they are asked for.
func readVersions(ctx context.Context, q sqlx.QueryerContext, namespace ids.ID, keys []versionKey, inputs bool) (map[versionKey]*schedule.Version, error) {
	out := make(map[versionKey]*schedule.Version, len(keys))
	if len(keys) == 0 {
		return out, nil
	}
	columns := versionColumns
	if inputs {
		columns += ", input"
	}
	args := []any{namespace}
	where := ""
	for i, k := range keys {
		if i > 0 {
			where += " OR "
		}
		where += "(schedule_id = ? AND version = ?)"
		args = append(args, k.Schedule, k.Version)
	}
	var rows []versionRow
	err := sqlx.SelectContext(ctx, q, &rows, "SELECT "+columns+" FROM schedule_versions FORCE INDEX (PRIMARY) WHERE namespace_id = ? AND ("+where+")", args...)
	if err != nil {
		return nil, classify(fmt.Errorf("read %d versions of schedules: %w", len(keys), err))
	}
	for i := range rows {
		v, err := rows[i].content()
		if err != nil {
			return nil, err
		}
		out[versionKey{rows[i].ScheduleID, rows[i].Version}] = v
	}
	if len(out) != len(keys) {
		return nil, fmt.Errorf("read versions of schedules: %d rows for %d keys", len(out), len(keys))
	}
	return out, nil
}

const insertVersionSQL = `
INSERT INTO schedule_versions (namespace_id, schedule_id, version, credential_id, cron, every_seconds, time_zone, catch_up, priority, retry_safety,
  max_attempts, labels, input, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

func insertVersion(ctx context.Context, tx *sqlx.Tx, w Write, id ids.ID, number int, spec *schedule.Spec, now time.Time) error {
	var cron, every any
	if spec.Every != 0 {
		every = spec.Every
	} else {
		cron = []byte(spec.Cron)
	}
	sub := spec.Submit(ids.ID{})
	_, err := tx.ExecContext(ctx, insertVersionSQL, w.Caller.NamespaceID, id, number, w.Caller.CredentialID, cron, every, []byte(spec.TimeZone),
		spec.CatchUp, sub.Priority, sub.RetrySafety, sub.MaxAttempts, sub.LabelsJSON(), []byte(sub.Input), now)
	if err != nil {
		return fmt.Errorf("insert version %d of schedule %s: %w", number, id, err)
	}
	return nil
}

// specParts are what a fingerprint covers of a spec.
func specParts(s *schedule.Spec) []any {
	sub := s.Submit(ids.ID{})
	return []any{s.Cron, s.Every, s.TimeZone, s.CatchUp, string(sub.Input), sub.RetrySafety, sub.MaxAttempts, sub.Priority, string(sub.LabelsJSON())}
}
