package store_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

// Among many idle schedules and a long history, the loop and the lists read no more than they need, and
// the look for due schedules reads its index alone.
func TestPlansOfSchedules(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	n := planRows(t)
	id := d.Schedule(t, d.tenant, schedule.Spec{Every: 60})
	d.grow(t, id, n)
	for range 30 {
		d.Schedule(t, d.tenant, schedule.Spec{Every: 3600})
	}
	p := d.NewProxy(t)
	ctx, c, s := context.Background(), d.tenant.Caller, p.Store
	narrow := *c
	narrow.AllQueues, narrow.Queues = false, []ids.ID{d.tenant.QueueID, ids.New()}
	const limit = 20
	page := store.Page{Limit: limit}
	deep := store.Page{Limit: limit, After: &store.Position{ID: ids.ID{0x80}}}
	past := store.Page{Limit: limit, After: &store.Position{CreatedAt: time.Now().Add(-1000 * time.Minute).UTC().Truncate(time.Microsecond), ID: ids.ID{0x80}}}
	for _, one := range []struct {
		name string
		most int
		call func() error
	}{
		{"idle", 1, func() error { return second(s.FireDueSchedules(ctx, 10)) }},
		{"due", 41, func() error {
			d.exec(t, "UPDATE schedules SET next_at = UTC_TIMESTAMP(6) - INTERVAL 5 SECOND WHERE state = 'ENABLED'")
			return second(s.FireDueSchedules(ctx, 10))
		}},
		{"sweep", limit + 1, func() error { return second(s.SweepScheduleFires(ctx, 720*time.Hour, limit)) }},
		{"list", 2 * (limit + 1), func() error { _, _, err := s.ListSchedules(ctx, c, nil, page); return err }},
		{"list, deep", 2 * (limit + 1), func() error { _, _, err := s.ListSchedules(ctx, c, nil, deep); return err }},
		{"list of a queue", 2 * (limit + 1), func() error { _, _, err := s.ListSchedules(ctx, c, &d.tenant.QueueID, deep); return err }},
		{"list of a scope", 3 * (limit + 1), func() error { _, _, err := s.ListSchedules(ctx, &narrow, nil, page); return err }},
		{"fires", limit + 1, func() error { _, _, err := s.ListScheduleFires(ctx, c, id, page); return err }},
		{"fires, deep", limit + 1, func() error { _, _, err := s.ListScheduleFires(ctx, c, id, past); return err }},
		{"read", 2, func() error { return second(s.GetSchedule(ctx, c, id)) }},
	} {
		var mu sync.Mutex
		var reads []string
		p.Decide(func(query string) storetest.Fate {
			mu.Lock()
			defer mu.Unlock()
			if q := strings.TrimSpace(query); strings.HasPrefix(q, "SELECT") && strings.Contains(q, "FROM ") || strings.HasPrefix(q, "(SELECT") {
				reads = append(reads, q)
			}
			return storetest.Pass
		})
		if err := one.call(); err != nil {
			t.Errorf("%s: %v", one.name, err)
		}
		p.Decide(nil)
		if len(reads) == 0 {
			t.Errorf("%s: no read was seen", one.name)
		}
		for _, query := range reads {
			checkPlan(t, d.DB, one.name, query, one.most)
			if strings.Contains(query, "schedules_due") {
				d.checkIndexOnly(t, query, "schedules_due")
			}
		}
	}
	// What retirement counts, among tens of thousands that are not ENABLED.
	count := "SELECT COUNT(*) FROM schedules FORCE INDEX (schedules_state) WHERE namespace_id = X'" + d.tenant.NamespaceID.String() + "' AND queue_id = X'" + d.tenant.QueueID.String() + "' AND state = 'ENABLED'"
	checkPlan(t, d.DB, "enabled", count, 32)
	d.checkIndexOnly(t, count, "schedules_state")
}

func (d *scheduling) checkIndexOnly(t *testing.T, query, index string) {
	t.Helper()
	rows, err := d.SQL.Query("EXPLAIN " + query)
	if err != nil {
		t.Fatal(err)
	}
	for _, plan := range table(t, rows) {
		if plan["key"] != index || !strings.Contains(plan["Extra"], "Using index") || strings.Contains(plan["Extra"], "Using index condition") || strings.Contains(plan["Extra"], "filesort") {
			t.Errorf("not by %s alone: %v", index, plan)
		}
	}
}

// grow makes n PAUSED schedules out of one, and n entries of its history.
func (d *scheduling) grow(t *testing.T, id ids.ID, n int) {
	t.Helper()
	d.exec(t, `INSERT INTO schedule_fires (namespace_id, schedule_id, fire_at, run, version, task_id, skipped, created_at)
SELECT namespace_id, id, UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE, REPEAT(CHAR(0), 16), 1, id, 0, UTC_TIMESTAMP(6) FROM schedules WHERE id = ?`, id[:])
	d.exec(t, `INSERT INTO schedules (namespace_id, id, queue_id, application_id, credential_id, name, revision, state, version, draft_version, last_version, created_at, updated_at)
SELECT namespace_id, UNHEX(REPLACE(UUID(), '-', '')), queue_id, application_id, credential_id, UUID(), 1, 'PAUSED', 1, 0, 1, created_at, updated_at FROM schedules WHERE id = ?`, id[:])
	for have := 1; have < n; have *= 2 {
		d.exec(t, `INSERT INTO schedule_fires (namespace_id, schedule_id, fire_at, run, version, task_id, skipped, created_at)
SELECT namespace_id, schedule_id, fire_at - INTERVAL ? MINUTE, run, version, task_id, 0, created_at FROM schedule_fires`, have)
		d.exec(t, `INSERT INTO schedules (namespace_id, id, queue_id, application_id, credential_id, name, revision, state, version, draft_version, last_version, created_at, updated_at)
SELECT namespace_id, UNHEX(REPLACE(UUID(), '-', '')), queue_id, application_id, credential_id, UUID(), 1, 'PAUSED', 1, 0, 1, created_at, updated_at FROM schedules WHERE state = 'PAUSED'`)
	}
	d.exec(t, `INSERT INTO schedule_versions (namespace_id, schedule_id, version, credential_id, every_seconds, time_zone, catch_up, priority, retry_safety, max_attempts, input, created_at, published_at)
SELECT namespace_id, id, 1, credential_id, 60, 'UTC', 'skip', 0, 'unsafe', 3, '1', created_at, created_at FROM schedules WHERE state = 'PAUSED'`)
}
