package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
)

type scheduleRow struct {
	ID            ids.ID     `db:"id"`
	QueueID       ids.ID     `db:"queue_id"`
	ApplicationID ids.ID     `db:"application_id"`
	CredentialID  ids.ID     `db:"credential_id"`
	Name          string     `db:"name"`
	Revision      uint64     `db:"revision"`
	State         string     `db:"state"`
	Version       int        `db:"version"`       // 0 = none
	DraftVersion  int        `db:"draft_version"` // 0 = none
	LastVersion   int        `db:"last_version"`
	NextAt        *time.Time `db:"next_at"`
	LastFireAt    *time.Time `db:"last_fire_at"`
	CreatedAt     time.Time  `db:"created_at"`
	UpdatedAt     time.Time  `db:"updated_at"`
}

const scheduleColumns = `id, queue_id, application_id, credential_id, name, revision, state, version, draft_version, last_version, next_at, last_fire_at, created_at, updated_at`

func (r *scheduleRow) published() versionKey { return versionKey{r.ID, r.Version} }
func (r *scheduleRow) draft() versionKey     { return versionKey{r.ID, r.DraftVersion} }

// withVersions turns rows into objects.
func withVersions(ctx context.Context, q sqlx.QueryerContext, namespace ids.ID, rows []*scheduleRow, inputs bool) ([]*schedule.Schedule, error) {
	var keys []versionKey
	for _, r := range rows {
		for _, k := range []versionKey{r.published(), r.draft()} {
			if k.Version != 0 {
				keys = append(keys, k)
			}
		}
	}
	versions, err := readVersions(ctx, q, namespace, keys, inputs)
	if err != nil {
		return nil, err
	}
	out := make([]*schedule.Schedule, len(rows))
	for i, r := range rows {
		out[i] = &schedule.Schedule{
			ID: r.ID, QueueID: r.QueueID, Name: r.Name, Revision: ids.Counter(r.Revision), State: schedule.State(r.State),
			NextFireAt: r.NextAt, LastFireAt: r.LastFireAt, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
			Published: versions[r.published()], Draft: versions[r.draft()],
		}
	}
	return out, nil
}

// scopedSchedule reads a schedule whose queue is in the caller's scope; a missing one and one out of
// scope answer alike (R2.7).
func scopedSchedule(ctx context.Context, q sqlx.QueryerContext, c *access.Caller, id ids.ID, lock string) (*scheduleRow, error) {
	var row scheduleRow
	err := sqlx.GetContext(ctx, q, &row, "SELECT "+scheduleColumns+" FROM schedules WHERE namespace_id = ? AND id = ?"+lock, c.NamespaceID, id)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !c.MayUse(row.QueueID) {
		return nil, errs.New(errs.NotFound, "schedule %s does not exist here", id)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("read schedule %s: %w", id, err))
	}
	return &row, nil
}

// GetSchedule returns a schedule with both its versions and their tasks' inputs, NOT_FOUND outside the
// caller's scope.
func (s *Store) GetSchedule(ctx context.Context, c *access.Caller, id ids.ID) (*schedule.Schedule, error) {
	row, err := scopedSchedule(ctx, s.db, c, id, "")
	if err != nil {
		return nil, err
	}
	out, err := withVersions(ctx, s.db, c.NamespaceID, []*scheduleRow{row}, true)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// PreviewSchedule returns the next n fire times after the database's now: of the draft, of the published
// version, or with neither named of the published one if there is one. Where it does not exist
// STATE_CONFLICT. A schedule that is not ENABLED is previewed as if it were.
func (s *Store) PreviewSchedule(ctx context.Context, c *access.Caller, id ids.ID, which schedule.Which, n int) ([]schedule.Upcoming, error) {
	row, err := scopedSchedule(ctx, s.db, c, id, "")
	if err != nil {
		return nil, err
	}
	key := row.published()
	if which == schedule.TheDraft || which == "" && key.Version == 0 {
		key = row.draft()
	}
	if key.Version == 0 {
		return nil, errs.New(errs.StateConflict, "version: schedule %s has no %s version", id, which)
	}
	versions, err := readVersions(ctx, s.db, c.NamespaceID, []versionKey{key}, false)
	if err != nil {
		return nil, err
	}
	timing, err := versions[key].Spec.Timing()
	if err != nil {
		return nil, err
	}
	var now time.Time
	if err := s.db.GetContext(ctx, &now, "SELECT UTC_TIMESTAMP(6)"); err != nil {
		return nil, classify(fmt.Errorf("read database clock: %w", err))
	}
	return timing.Preview(now, n), nil
}

const insertScheduleSQL = `
INSERT INTO schedules (namespace_id, id, queue_id, application_id, credential_id, name, revision, state, version, draft_version, last_version, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, 1, 'DRAFT', 0, 1, 1, ?, ?)`

// CreateSchedule makes a DRAFT; nothing fires before it is published. A name that was ever used in the
// namespace is STATE_CONFLICT, a retired queue RESOURCE_RETIRED (R7.2). The snapshot is without the
// task's input, as with every command on a schedule.
func (s *Store) CreateSchedule(ctx context.Context, w Write, create schedule.Create) (Receipt, error) {
	fingerprint, err := Fingerprint("schedule.create", append(specParts(&create.Spec), create.Name, create.QueueID)...)
	if err != nil {
		return Receipt{}, err
	}
	check := func(tx *sqlx.Tx) error {
		_, err := scopedQueue(ctx, tx, w.Caller, *create.QueueID)
		return err
	}
	return s.idempotent(ctx, w, fingerprint, check, func(tx *sqlx.Tx) ([]byte, auditRow, error) {
		namespace := w.Caller.NamespaceID
		if _, err := liveQueue(ctx, tx, namespace, *create.QueueID, forShare); err != nil {
			return nil, auditRow{}, err
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return nil, auditRow{}, err
		}
		id := ids.New()
		_, err = tx.ExecContext(ctx, insertScheduleSQL, namespace, id, *create.QueueID, w.Caller.ApplicationID, w.Caller.CredentialID, []byte(create.Name), now, now)
		if isDuplicate(err) {
			return nil, auditRow{}, errs.New(errs.StateConflict, "name: a schedule named %q exists or existed in this namespace", create.Name)
		}
		if err != nil {
			return nil, auditRow{}, fmt.Errorf("insert schedule: %w", err)
		}
		if err := insertVersion(ctx, tx, w, id, 1, &create.Spec, now); err != nil {
			return nil, auditRow{}, err
		}
		snapshot, err := scheduleSnapshot(ctx, tx, w.Caller, id)
		return snapshot, auditRow{Action: "schedule.create", ResourceKind: "schedule", ResourceID: id}, err
	})
}

// scheduleSnapshot is a schedule as the transaction leaves it, without inputs.
func scheduleSnapshot(ctx context.Context, tx *sqlx.Tx, c *access.Caller, id ids.ID) ([]byte, error) {
	row, err := scopedSchedule(ctx, tx, c, id, "")
	if err != nil {
		return nil, err
	}
	out, err := withVersions(ctx, tx, c.NamespaceID, []*scheduleRow{row}, false)
	if err != nil {
		return nil, err
	}
	return out[0].AppendJSON(nil)
}
