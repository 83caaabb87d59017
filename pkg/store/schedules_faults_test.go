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
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

// yearly fires so seldom that only a test makes it due.
func yearly() schedule.Spec {
	return schedule.Spec{Cron: "0 0 29 2 *", Task: &schedule.Template{
		Input: strictjson.Raw(`1`), RetrySafety: "safe", MaxAttempts: 1, Labels: map[string]string{"a": "b"},
	}}
}

func makeDue(t *testing.T, db *storetest.DB, id ids.ID) {
	t.Helper()
	if _, err := db.SQL.Exec("UPDATE schedules SET next_at = UTC_TIMESTAMP(6) - INTERVAL 5 SECOND WHERE id = ?", id[:]); err != nil {
		t.Fatal(err)
	}
}

// schedulePaths are the writes on schedules, the loop's own among them; its repeats find nothing to do.
func schedulePaths() []writePath {
	type write = func(context.Context, *store.Store) (string, error)
	enabled := func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) ids.ID {
		return db.Schedule(t, tenant, yearly())
	}
	return []writePath{
		{"create schedule", func(_ *testing.T, _ *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			w, create := tenant.Write(), schedule.Create{Name: "s", QueueID: &tenant.QueueID, Spec: yearly()}
			create.TimeZone, create.CatchUp = "UTC", "all"
			return func(ctx context.Context, s *store.Store) (string, error) {
				return state(s.CreateSchedule(ctx, w, create))
			}
		}, true},
		{"update schedule", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			w, id, update := tenant.Write(), enabled(t, db, tenant), schedule.Update{Command: storetest.AtRevision(2), Spec: yearly()}
			update.TimeZone, update.CatchUp = "UTC", "one"
			return func(ctx context.Context, s *store.Store) (string, error) {
				return state(s.UpdateSchedule(ctx, w, id, update))
			}
		}, true},
		{"publish schedule", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			w, id := tenant.Write(), enabled(t, db, tenant)
			update := schedule.Update{Command: storetest.AtRevision(2), Spec: yearly()}
			update.TimeZone, update.CatchUp = "UTC", "one"
			if _, err := db.Management.UpdateSchedule(context.Background(), tenant.Write(), id, update); err != nil {
				t.Fatal(err)
			}
			makeDue(t, db, id)
			return func(ctx context.Context, s *store.Store) (string, error) {
				return state(s.PublishSchedule(ctx, w, id, storetest.AtRevision(3)))
			}
		}, true},
		{"pause schedule", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			w, id := tenant.Write(), enabled(t, db, tenant)
			makeDue(t, db, id)
			return func(ctx context.Context, s *store.Store) (string, error) {
				return state(s.PauseSchedule(ctx, w, id, storetest.AtRevision(2)))
			}
		}, true},
		{"run schedule", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) func(context.Context, *store.Store) (string, error) {
			w, id := tenant.Write(), enabled(t, db, tenant)
			return func(ctx context.Context, s *store.Store) (string, error) {
				return state(s.RunSchedule(ctx, w, id, storetest.AtRevision(2)))
			}
		}, true},
		{"fire", func(t *testing.T, db *storetest.DB, tenant storetest.Tenant) write {
			makeDue(t, db, enabled(t, db, tenant))
			return func(ctx context.Context, s *store.Store) (string, error) {
				_, err := s.FireDueSchedules(ctx, 10)
				return "", err
			}
		}, false},
	}
}

// TestAReplicaThatDiesWhileFiring, at each of its statements: another one finds all of it or nothing.
func TestAReplicaThatDiesWhileFiring(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	p := d.NewProxy(t)
	id := d.Schedule(t, d.tenant, yearly())
	statements := 1
	for at := 1; at <= statements; at++ {
		for _, fate := range []storetest.Fate{storetest.DropBefore, storetest.DropAfter} {
			makeDue(t, d.DB, id)
			before := len(d.fires(t, id))
			count := &inTransaction{at: at, fate: fate}
			p.Decide(count.decide)
			if _, err := p.Store.FireDueSchedules(context.Background(), 10); err == nil {
				t.Fatalf("statement %d: no error", at)
			}
			p.Decide(nil)
			for len(d.fires(t, id)) == before { // until the server has rolled back, the row is locked
				d.drain(t, 10)
			}
			if n := len(d.fires(t, id)); n != before+1 {
				t.Errorf("statement %d: %d entries more", at, n-before)
			}
			if at == 1 {
				makeDue(t, d.DB, id)
				all := &inTransaction{}
				p.Decide(all.decide)
				if _, err := p.Store.FireDueSchedules(context.Background(), 10); err != nil {
					t.Fatal(err)
				}
				p.Decide(nil)
				statements = all.n
			}
		}
	}
	if statements < 8 {
		t.Errorf("only %d statements", statements)
	}
	d.checkOnce(t)
}

// TestAFrozenReplica is F3 in the middle of a transaction: it keeps its schedules from the others for
// seconds, not for as long as it is frozen; the rest fires meanwhile; and when it goes on, none of its
// writes counts.
func TestAFrozenReplica(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	p := d.NewProxy(t)
	held, free := d.Schedule(t, d.tenant, yearly()), d.Schedule(t, d.tenant, yearly())
	makeDue(t, d.DB, held)
	frozen, thaw := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p.Decide(func(query string) storetest.Fate {
		if strings.HasPrefix(strings.TrimSpace(query), "INSERT INTO ready_tasks") { // the task is written, not committed
			once.Do(func() { close(frozen); <-thaw })
		}
		return storetest.Pass
	})
	result := make(chan error, 1)
	go func() {
		_, err := p.Store.FireDueSchedules(context.Background(), 10)
		result <- err
	}()
	<-frozen
	// By the whole key: this update must not wait for the row that is held.
	d.exec(t, "UPDATE schedules SET next_at = UTC_TIMESTAMP(6) - INTERVAL 5 SECOND WHERE namespace_id = ? AND id = ?", d.tenant.NamespaceID[:], free[:])
	if n := d.drain(t, 10); n != 1 || len(d.fires(t, free)) != 1 || len(d.fires(t, held)) != 0 {
		t.Errorf("%d settled while a replica is frozen", n)
	}
	for deadline := time.Now().Add(time.Minute); len(d.fires(t, held)) == 0; time.Sleep(50 * time.Millisecond) {
		d.drain(t, 10)
		if time.Now().After(deadline) {
			t.Fatal("the frozen replica still holds its schedule")
		}
	}
	close(thaw)
	if err := <-result; err == nil {
		t.Error("the thawed replica's transaction went through")
	}
	p.Decide(nil)
	if n := len(d.fires(t, held)); n != 1 {
		t.Errorf("%d entries", n)
	}
	d.checkOnce(t)
	if _, err := p.Store.FireDueSchedules(context.Background(), 10); err != nil {
		t.Errorf("the thawed replica is of no use: %v", err)
	}
}
