package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

// scheduling is a database with one tenant and what these tests ask of it.
type scheduling struct {
	*storetest.DB
	tenant storetest.Tenant
}

func newScheduling(t *testing.T) *scheduling {
	t.Helper()
	db := storetest.New(t)
	return &scheduling{db, db.Tenant(t)}
}

func (d *scheduling) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := d.SQL.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func (d *scheduling) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := d.SQL.QueryRow(query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// back puts a schedule's next fire time into the past: nothing ran since.
func (d *scheduling) back(t *testing.T, id ids.ID, seconds int) {
	t.Helper()
	d.exec(t, "UPDATE schedules SET next_at = next_at - INTERVAL ? SECOND WHERE id = ?", seconds, id[:])
}

// drain fires until nothing is due and returns how many schedules were settled.
func (d *scheduling) drain(t *testing.T, limit int) (total int) {
	t.Helper()
	for {
		n, err := d.Management.FireDueSchedules(context.Background(), limit)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return total
		}
		total += n
	}
}

func (d *scheduling) fires(t *testing.T, id ids.ID) []*schedule.Fire {
	t.Helper()
	var out []*schedule.Fire
	page := store.Page{Limit: 50}
	for {
		items, next, err := d.Management.ListScheduleFires(context.Background(), d.tenant.Caller, id, page)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, items...)
		if next == nil {
			return out
		}
		page.After = next
	}
}

// checkOnce: every FIRED entry has its one task at its fire time on the right queue, claimable, and no
// task is without an entry.
func (d *scheduling) checkOnce(t *testing.T) {
	t.Helper()
	fired := d.count(t, "SELECT COUNT(*) FROM schedule_fires WHERE task_id IS NOT NULL")
	matched := d.count(t, `
SELECT COUNT(*) FROM schedule_fires f JOIN schedules s ON s.namespace_id = f.namespace_id AND s.id = f.schedule_id
JOIN tasks t ON t.namespace_id = f.namespace_id AND t.id = f.task_id AND t.run_at = f.fire_at AND t.queue_id = s.queue_id
JOIN ready_tasks r ON r.namespace_id = t.namespace_id AND r.task_id = t.id AND r.lane = 0`)
	if tasks := d.count(t, "SELECT COUNT(*) FROM tasks"); tasks != fired || matched != fired {
		t.Errorf("%d tasks and %d matching rows for %d entries", tasks, matched, fired)
	}
}

// TestTwoWeeksOfDowntime with an interval of 5 seconds, under each catch_up.
func TestTwoWeeksOfDowntime(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	const weeks, every = 14 * 24 * 60 * 60, 5
	for _, c := range []struct {
		catchUp string
		fired   int
	}{{"skip", 0}, {"one", 1}, {"all", 100}} {
		id := d.Schedule(t, d.tenant, schedule.Spec{Every: every, CatchUp: c.catchUp, Task: &schedule.Template{Input: strictjson.Raw(`{"n":1.0}`), Priority: 7}})
		d.back(t, id, weeks)
		var from time.Time
		if err := d.SQL.QueryRow("SELECT next_at FROM schedules WHERE id = ?", id[:]).Scan(&from); err != nil {
			t.Fatal(err)
		}
		d.drain(t, 10)
		s, err := d.Management.GetSchedule(context.Background(), d.tenant.Caller, id)
		if err != nil {
			t.Fatal(err)
		}
		due := int(s.NextFireAt.Sub(from).Seconds()) / every // fire times from the first missed to the next
		fires := d.fires(t, id)
		if len(fires) != c.fired+1 {
			t.Fatalf("%s: %d entries", c.catchUp, len(fires))
		}
		skipped := fires[c.fired]
		last := s.NextFireAt.Add(-time.Duration(c.fired+1) * every * time.Second)
		if skipped.State != schedule.Skipped || skipped.Reason != schedule.ReasonMissed || skipped.TaskID != nil || skipped.Skipped != due-c.fired ||
			!skipped.FirstFireAt.Equal(from) || !skipped.FireAt.Equal(last) || due < weeks/every {
			t.Errorf("%s: %d due, skipped %+v", c.catchUp, due, skipped)
		}
		for i, f := range fires[:c.fired] {
			if want := s.NextFireAt.Add(-time.Duration(i+1) * every * time.Second); f.State != schedule.Fired || f.TaskID == nil || !f.FireAt.Equal(want) || f.Skipped != 0 || f.Manual {
				t.Errorf("%s: entry %d is %+v, want %s", c.catchUp, i, f, want)
			}
		}
		if c.fired > 0 && (s.LastFireAt == nil || !s.LastFireAt.Equal(fires[0].FireAt)) {
			t.Errorf("%s: last_fire_at %v", c.catchUp, s.LastFireAt)
		}
		d.exec(t, "UPDATE schedules SET state = 'PAUSED', next_at = NULL WHERE id = ?", id[:])
	}
	d.checkOnce(t)
	if n := d.count(t, `SELECT COUNT(*) FROM tasks WHERE input = '{"n":1.0}' AND priority = 7`); n != 101 {
		t.Errorf("%d tasks as the template says", n)
	}
}

// TestALittleLateIsNotMissed: up to a minute, every fire time fires, whatever catch_up says.
func TestALittleLateIsNotMissed(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	id := d.Schedule(t, d.tenant, schedule.Spec{Every: 10, CatchUp: "skip"})
	d.back(t, id, 40)
	d.drain(t, 10)
	fires := d.fires(t, id)
	if n := len(fires); n < 3 || n > 5 || fires[n-1].State != schedule.Fired {
		t.Errorf("%d entries", n)
	}
	for i := range fires[1:] {
		if fires[i].FireAt.Sub(fires[i+1].FireAt) != 10*time.Second {
			t.Errorf("%s follows %s", fires[i].FireAt, fires[i+1].FireAt)
		}
	}
	d.checkOnce(t)
}

// TestManySchedulersFireOnce: 4 replicas at 300 due schedules with several fire times each, in batches
// that overlap.
func TestManySchedulersFireOnce(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	other := d.Tenant(t)
	const each = 100
	for i := range each {
		d.Schedule(t, d.tenant, schedule.Spec{Every: 60, CatchUp: "all"})
		if i%10 == 0 {
			d.Schedule(t, other, schedule.Spec{Cron: "* * * * *", CatchUp: "all"})
		}
	}
	d.exec(t, "UPDATE schedules SET next_at = next_at - INTERVAL 300 SECOND")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for d.count(t, "SELECT COUNT(*) FROM schedules WHERE next_at <= UTC_TIMESTAMP(6)") > 0 {
				if _, err := d.Management.FireDueSchedules(context.Background(), 7); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	d.checkOnce(t)
	// Each went back by five fire times.
	if short := d.count(t, "SELECT COUNT(*) FROM (SELECT schedule_id FROM schedule_fires GROUP BY schedule_id HAVING COUNT(*) < 5 OR COUNT(*) > 6) x"); short != 0 {
		t.Errorf("%d schedules without exactly what was due", short)
	}
	if n := d.count(t, "SELECT COUNT(DISTINCT schedule_id) FROM schedule_fires"); n != each+each/10 {
		t.Errorf("%d schedules fired", n)
	}
}

// TestAPublishTakesEffectAfterwards: what was due before fires as it was published then.
func TestAPublishTakesEffectAfterwards(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	ctx := context.Background()
	id := d.Schedule(t, d.tenant, schedule.Spec{Every: 3600, Task: &schedule.Template{Input: strictjson.Raw(`"old"`)}})
	d.exec(t, "UPDATE schedules SET next_at = UTC_TIMESTAMP(6) - INTERVAL 5 SECOND")
	update := schedule.Update{Command: storetest.AtRevision(2), Spec: schedule.Spec{Every: 7200, Task: &schedule.Template{Input: strictjson.Raw(`"new"`)}}}
	if err := update.Normalise(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Management.UpdateSchedule(ctx, d.tenant.Write(), id, update); err != nil {
		t.Fatal(err)
	}
	s, err := d.Management.GetSchedule(ctx, d.tenant.Caller, id)
	if err != nil || s.Published.Number != 1 || s.Draft.Number != 2 || string(s.Published.Spec.Task.Input) != `"old"` || string(s.Draft.Spec.Task.Input) != `"new"` || s.Revision != 3 {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, err := d.Management.PublishSchedule(ctx, d.tenant.Write(), id, storetest.AtRevision(3)); err != nil {
		t.Fatal(err)
	}
	fires := d.fires(t, id)
	if len(fires) != 1 || fires[0].Version != 1 || fires[0].State != schedule.Fired {
		t.Errorf("%d entries, %+v", len(fires), fires[0])
	}
	d.checkOnce(t)
	if n := d.count(t, `SELECT COUNT(*) FROM tasks WHERE input = '"old"'`); n != 1 {
		t.Errorf("%d old tasks", n)
	}
	s, err = d.Management.GetSchedule(ctx, d.tenant.Caller, id)
	if err != nil || s.Published.Number != 2 || s.Draft != nil || s.State != schedule.Enabled || s.NextFireAt.Unix()%7200 != 0 || s.Published.PublishedAt == nil {
		t.Fatalf("%+v, %v", s, err)
	}
	d.exec(t, "UPDATE schedules SET next_at = UTC_TIMESTAMP(6) - INTERVAL 5 SECOND")
	d.drain(t, 1)
	if fires = d.fires(t, id); len(fires) != 2 || fires[0].Version != 2 {
		t.Errorf("%d entries, %+v", len(fires), fires[0])
	}
	_, err = d.Management.PublishSchedule(ctx, d.tenant.Write(), id, storetest.AtRevision(4))
	if !errs.Is(err, errs.StateConflict) {
		t.Errorf("a publish without a draft: %v", err)
	}
}

// TestPauseAndResume: nothing fires after a pause has answered, what was due is told, and a resume goes
// on with the future.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	ctx, s := context.Background(), d.Management
	draft := d.DraftSchedule(t, d.tenant, schedule.Spec{Every: 60})
	for name, err := range map[string]error{
		"pause":  second(s.PauseSchedule(ctx, d.tenant.Write(), draft, storetest.AtRevision(1))),
		"resume": second(s.ResumeSchedule(ctx, d.tenant.Write(), draft, storetest.AtRevision(1))),
		"run":    second(s.RunSchedule(ctx, d.tenant.Write(), draft, storetest.AtRevision(1))),
	} {
		if !errs.Is(err, errs.StateConflict) {
			t.Errorf("%s of a draft: %v", name, err)
		}
	}
	id := d.Schedule(t, d.tenant, schedule.Spec{Every: 60, CatchUp: "all"})
	if err := second(s.PauseSchedule(ctx, d.tenant.Write(), id, storetest.AtRevision(1))); !errs.Is(err, errs.StateConflict) {
		t.Errorf("another revision: %v", err)
	}
	d.back(t, id, 600)
	if err := second(s.PauseSchedule(ctx, d.tenant.Write(), id, storetest.AtRevision(2))); err != nil {
		t.Fatal(err)
	}
	fires := d.fires(t, id)
	if len(fires) != 1 || fires[0].State != schedule.Skipped || fires[0].Reason != schedule.ReasonPaused || fires[0].Skipped < 10 || fires[0].Skipped > 11 {
		t.Fatalf("%d entries, %+v", len(fires), fires[0])
	}
	if n := d.drain(t, 10); n != 0 {
		t.Errorf("%d schedules fired while paused", n)
	}
	if err := second(s.PauseSchedule(ctx, d.tenant.Write(), id, storetest.AtRevision(3))); err != nil {
		t.Errorf("once more: %v", err)
	}
	if err := second(s.ResumeSchedule(ctx, d.tenant.Write(), id, storetest.AtRevision(4))); err != nil {
		t.Fatal(err)
	}
	got, err := s.GetSchedule(ctx, d.tenant.Caller, id)
	if err != nil || got.State != schedule.Enabled || got.Revision != 5 || got.NextFireAt == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	d.exec(t, "UPDATE schedules SET next_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE id = ?", id[:])
	if err := second(s.ResumeSchedule(ctx, d.tenant.Write(), id, storetest.AtRevision(5))); err != nil {
		t.Fatal(err)
	}
	if n := d.drain(t, 10); n != 1 {
		t.Errorf("%d settled: a resume of an enabled one must not lose what is due", n)
	}
	d.checkOnce(t)
}

func second[T any](_ T, err error) error { return err }

// TestRunNow: one task and one entry for one key, of a paused schedule too; fire times stay.
func TestRunNow(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	ctx, s := context.Background(), d.Management
	id := d.Schedule(t, d.tenant, schedule.Spec{Every: 3600})
	if err := second(s.PauseSchedule(ctx, d.tenant.Write(), id, storetest.AtRevision(2))); err != nil {
		t.Fatal(err)
	}
	w := d.tenant.Write()
	var all sync.WaitGroup
	var mu sync.Mutex
	repeated := 0
	for range 10 {
		all.Go(func() {
			r, err := s.RunSchedule(ctx, w, id, storetest.AtRevision(3))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if r.Deduplicated {
				repeated++
			}
		})
	}
	all.Wait()
	if err := second(s.RunSchedule(ctx, d.tenant.Write(), id, storetest.AtRevision(3))); err != nil {
		t.Fatal(err)
	}
	fires := d.fires(t, id)
	if repeated != 9 || len(fires) != 2 || !fires[0].Manual || fires[0].State != schedule.Fired {
		t.Errorf("%d repeated, %d entries", repeated, len(fires))
	}
	d.checkOnce(t)
}

// TestNoRoomIsToldAndNothingIsStuck: the quota's refusal is an entry of the history.
func TestNoRoomIsToldAndNothingIsStuck(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	ctx := context.Background()
	if err := d.Owner.SetQuota(ctx, d.tenant.NamespaceID, d.tenant.ApplicationID, 3, 0); err != nil {
		t.Fatal(err)
	}
	first := d.Schedule(t, d.tenant, schedule.Spec{Every: 60, CatchUp: "all"})
	later := d.Schedule(t, d.tenant, schedule.Spec{Every: 60, CatchUp: "all"})
	d.back(t, first, 300)
	d.back(t, later, 120)
	d.drain(t, 10)
	var fired, skipped int
	for _, id := range []ids.ID{first, later} {
		for _, f := range d.fires(t, id) {
			switch {
			case f.State == schedule.Fired:
				fired++
			case f.Reason == schedule.ReasonCapacity:
				skipped += f.Skipped
			default:
				t.Errorf("%+v", f)
			}
		}
	}
	if fired != 3 || skipped < 4 || skipped > 6 {
		t.Errorf("%d fired, %d skipped", fired, skipped)
	}
	d.checkOnce(t)
	if err := second(d.Management.RunSchedule(ctx, d.tenant.Write(), first, storetest.AtRevision(2))); !errs.Is(err, errs.CapacityExceeded) {
		t.Errorf("run-now without room: %v", err)
	}
}

// TestARetiredQueueAndItsSchedules: R7.2.
func TestARetiredQueueAndItsSchedules(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	ctx, s := context.Background(), d.Management
	draft := d.DraftSchedule(t, d.tenant, schedule.Spec{Every: 60})
	paused := d.Schedule(t, d.tenant, schedule.Spec{Every: 60})
	if err := second(s.PauseSchedule(ctx, d.tenant.Write(), paused, storetest.AtRevision(2))); err != nil {
		t.Fatal(err)
	}
	enabled := d.Schedule(t, d.tenant, schedule.Spec{Every: 60}) // cannot be, and yet
	d.exec(t, "UPDATE queues SET paused = 1, retired_at = UTC_TIMESTAMP(6)")
	create := schedule.Create{Name: "late", QueueID: &d.tenant.QueueID, Spec: schedule.Spec{Every: 5, Task: &schedule.Template{Input: strictjson.Raw(`1`)}}}
	if err := create.Normalise(); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"create":  second(s.CreateSchedule(ctx, d.tenant.Write(), create)),
		"publish": second(s.PublishSchedule(ctx, d.tenant.Write(), draft, storetest.AtRevision(1))),
		"resume":  second(s.ResumeSchedule(ctx, d.tenant.Write(), paused, storetest.AtRevision(3))),
		"run":     second(s.RunSchedule(ctx, d.tenant.Write(), paused, storetest.AtRevision(3))),
	} {
		if !errs.Is(err, errs.ResourceRetired) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.back(t, enabled, 60)
	d.drain(t, 10)
	if fires := d.fires(t, enabled); len(fires) != 1 || fires[0].Reason != schedule.ReasonRetired || fires[0].TaskID != nil {
		t.Errorf("%+v", fires)
	}
	if err := second(s.PauseSchedule(ctx, d.tenant.Write(), enabled, storetest.AtRevision(2))); err != nil {
		t.Errorf("pause: %v", err)
	}
	d.checkOnce(t)
}

// TestAPausedQueueTakesFires.
func TestAPausedQueueTakesFires(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	id := d.Schedule(t, d.tenant, schedule.Spec{Every: 60})
	d.exec(t, "UPDATE queues SET paused = 1")
	d.back(t, id, 60)
	d.drain(t, 10)
	if fires := d.fires(t, id); len(fires) == 0 || fires[0].State != schedule.Fired {
		t.Errorf("%+v", fires)
	}
}

// TestABrokenVersionKeepsNobody: a schedule that cannot be computed here is told and stays, others fire.
func TestABrokenVersionKeepsNobody(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	broken := d.Schedule(t, d.tenant, schedule.Spec{Every: 60})
	good := d.Schedule(t, d.tenant, schedule.Spec{Every: 60})
	d.exec(t, "UPDATE schedule_versions SET time_zone = 'Europe/Newtown' WHERE schedule_id = ?", broken[:])
	d.exec(t, "UPDATE schedules SET next_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
	n, err := d.Management.FireDueSchedules(context.Background(), 10)
	if n != 1 || err == nil || len(d.fires(t, good)) != 1 || len(d.fires(t, broken)) != 0 {
		t.Errorf("%d settled, %v", n, err)
	}
	d.exec(t, "UPDATE schedule_versions SET time_zone = 'UTC'")
	if n := d.drain(t, 10); n != 1 {
		t.Errorf("%d settled after the repair", n)
	}
	d.checkOnce(t)
}

// TestListSchedules: newest first in the scope, whole lists in pages of any size.
func TestListSchedules(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	ctx := context.Background()
	var want [3][]ids.ID // of the namespace, and of two queues
	second, side := d.tenant, createQueue(t, d.DB, d.tenant, "second")
	second.QueueID = side
	for i := range 7 {
		tenant, k := d.tenant, 1
		if i%3 == 1 {
			tenant, k = second, 2
		}
		id := d.DraftSchedule(t, tenant, schedule.Spec{Every: 60})
		want[0], want[k] = append([]ids.ID{id}, want[0]...), append([]ids.ID{id}, want[k]...)
	}
	narrow := *d.tenant.Caller
	narrow.AllQueues, narrow.Queues = false, []ids.ID{side, d.tenant.QueueID}
	none := narrow
	none.Queues = nil
	for limit := 1; limit <= 8; limit++ {
		for i, c := range []struct {
			caller int
			queue  *ids.ID
			want   []ids.ID
		}{{0, nil, want[0]}, {0, &d.tenant.QueueID, want[1]}, {0, &side, want[2]}, {1, nil, want[0]}, {1, &side, want[2]}, {2, nil, nil}} {
			caller := []*access.Caller{d.tenant.Caller, &narrow, &none}[c.caller]
			var got []ids.ID
			page := store.Page{Limit: limit}
			for {
				items, next, err := d.Management.ListSchedules(ctx, caller, c.queue, page)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range items {
					got = append(got, s.ID)
					if s.Draft == nil || s.Draft.Spec.Task.Input != nil {
						t.Errorf("%+v", s.Draft)
					}
				}
				if next == nil {
					break
				}
				page.After = next
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("limit %d, case %d: %v, want %v", limit, i, got, c.want)
			}
		}
	}
	if _, _, err := d.Management.ListSchedules(ctx, &none, &side, store.Page{Limit: 1}); !errs.Is(err, errs.NotFound) {
		t.Errorf("a queue out of scope: %v", err)
	}
}

// TestOldFireTimesGo in batches, and never fire again.
func TestOldFireTimesGo(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	id := d.Schedule(t, d.tenant, schedule.Spec{Every: 1, CatchUp: "all"})
	d.back(t, id, 50)
	d.drain(t, 10)
	before := d.count(t, "SELECT COUNT(*) FROM tasks")
	d.exec(t, "UPDATE schedules SET state = 'PAUSED', next_at = NULL")
	d.exec(t, "UPDATE schedule_fires SET created_at = created_at - INTERVAL 31 DAY ORDER BY fire_at LIMIT 30")
	for _, want := range []int{20, 10, 0} {
		n, err := d.Management.SweepScheduleFires(context.Background(), 30*24*time.Hour, 20)
		if err != nil || n != want {
			t.Errorf("%d removed, want %d, %v", n, want, err)
		}
	}
	if n := d.count(t, "SELECT COUNT(*) FROM schedule_fires"); n != before-30 {
		t.Errorf("%d of %d are left", n, before)
	}
}

func createQueue(t *testing.T, db *storetest.DB, tenant storetest.Tenant, name string) ids.ID {
	t.Helper()
	create := queue.Create{Name: name}
	if err := create.Normalise(); err != nil {
		t.Fatal(err)
	}
	receipt, err := db.Management.CreateQueue(context.Background(), tenant.Write(), create)
	if err != nil {
		t.Fatal(err)
	}
	id, err := ids.ParseID(string(receipt.Snapshot[len(`{"id":"`):][:32]))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestEveryMoveFromEveryState is the state machine's table, against the store.
func TestEveryMoveFromEveryState(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	ctx, s := context.Background(), d.Management
	for _, from := range schedule.States {
		for _, move := range schedule.Moves {
			id, revision := d.DraftSchedule(t, d.tenant, yearly()), uint64(1)
			update := schedule.Update{Spec: yearly()}
			if from != schedule.Draft {
				if err := second(s.PublishSchedule(ctx, d.tenant.Write(), id, storetest.AtRevision(revision))); err != nil {
					t.Fatal(err)
				}
				revision++
			}
			if from == schedule.Paused {
				if err := second(s.PauseSchedule(ctx, d.tenant.Write(), id, storetest.AtRevision(revision))); err != nil {
					t.Fatal(err)
				}
				revision++
			}
			if move == schedule.MovePublish && from != schedule.Draft {
				update.Command = storetest.AtRevision(revision)
				if err := update.Normalise(); err != nil {
					t.Fatal(err)
				}
				if err := second(s.UpdateSchedule(ctx, d.tenant.Write(), id, update)); err != nil {
					t.Fatal(err)
				}
				revision++
			}
			at := storetest.AtRevision(revision)
			update.Command = at
			if err := update.Normalise(); err != nil {
				t.Fatal(err)
			}
			err := map[schedule.Move]func() error{
				schedule.MoveUpdate:  func() error { return second(s.UpdateSchedule(ctx, d.tenant.Write(), id, update)) },
				schedule.MovePublish: func() error { return second(s.PublishSchedule(ctx, d.tenant.Write(), id, at)) },
				schedule.MovePause:   func() error { return second(s.PauseSchedule(ctx, d.tenant.Write(), id, at)) },
				schedule.MoveResume:  func() error { return second(s.ResumeSchedule(ctx, d.tenant.Write(), id, at)) },
				schedule.MoveRun:     func() error { return second(s.RunSchedule(ctx, d.tenant.Write(), id, at)) },
			}[move]()
			to, ok := schedule.Next(from, move)
			got, readErr := s.GetSchedule(ctx, d.tenant.Caller, id)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if ok && (err != nil || got.State != to) || !ok && (!errs.Is(err, errs.StateConflict) || got.State != from || got.Revision != ids.Counter(revision)) {
				t.Errorf("%s of a %s: %v, now %s", move, from, err, got.State)
			}
			if (got.NextFireAt != nil) != (got.State == schedule.Enabled) {
				t.Errorf("%s of a %s: next fire time %v", move, from, got.NextFireAt)
			}
			if bumped := got.Revision != ids.Counter(revision); ok && bumped == (move == schedule.MoveRun) {
				t.Errorf("%s of a %s: revision %d after %d", move, from, got.Revision, revision)
			}
		}
	}
}

// TestPublishesLoseNoFireTime: schedules that fire every second are updated and published again and
// again while two replicas fire them. Every second has its one entry.
func TestPublishesLoseNoFireTime(t *testing.T) {
	t.Parallel()
	d := newScheduling(t)
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	s := d.Management
	var all sync.WaitGroup
	for range 6 {
		id := d.Schedule(t, d.tenant, schedule.Spec{Every: 1, CatchUp: "all"})
		all.Go(func() {
			for revision := uint64(2); ctx.Err() == nil; revision += 2 {
				update := schedule.Update{Command: storetest.AtRevision(revision), Spec: schedule.Spec{Every: 1, CatchUp: "all", Task: &schedule.Template{Input: strictjson.Raw(`2`)}}}
				if err := update.Normalise(); err != nil {
					t.Error(err)
				}
				if err := second(s.UpdateSchedule(context.Background(), d.tenant.Write(), id, update)); err != nil {
					t.Error(err)
					return
				}
				if err := second(s.PublishSchedule(context.Background(), d.tenant.Write(), id, storetest.AtRevision(revision+1))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := second(s.FireDueSchedules(context.Background(), 3)); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	all.Wait()
	if n := d.count(t, "SELECT COUNT(*) FROM (SELECT schedule_id FROM schedule_fires GROUP BY schedule_id HAVING COUNT(*) > 2 AND COUNT(*) = TIMESTAMPDIFF(SECOND, MIN(fire_at), MAX(fire_at)) + 1) x"); n != 6 {
		t.Errorf("only %d of 6 schedules fired in every second", n)
	}
	if n := d.count(t, "SELECT COUNT(DISTINCT version) FROM schedule_fires"); n < 2 {
		t.Errorf("%d versions fired", n)
	}
	d.checkOnce(t)
}
