package background

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/schedule"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

// TestTwoReplicasFire: what is due fires once, by itself, and old history goes.
func TestTwoReplicasFire(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	const schedules = 40
	for range schedules {
		db.Schedule(t, tenant, schedule.Spec{Cron: "0 0 1 1 *", CatchUp: "one"})
	}
	count := func(query string) (n int) {
		if err := db.SQL.QueryRow(query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, query := range []string{
		"UPDATE schedules SET next_at = UTC_TIMESTAMP(6) - INTERVAL 10 SECOND",
		`INSERT INTO schedule_fires (namespace_id, schedule_id, fire_at, run, version, task_id, skipped, created_at)
SELECT namespace_id, id, '2020-01-01', REPEAT(CHAR(0), 16), 1, id, 0, '2020-01-01' FROM schedules`,
	} {
		if _, err := db.SQL.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	for range 2 {
		work := New(db.Management, zap.NewNop(), Config{Attempts: time.Second, ReceiptAge: 720 * time.Hour})
		go func() { done <- work.Run(ctx) }()
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if count("SELECT COUNT(*) FROM tasks") == schedules && count("SELECT COUNT(*) FROM schedule_fires WHERE created_at < '2021-01-01'") == 0 {
			break
		}
	}
	stop()
	for range 2 {
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	if tasks, fires := count("SELECT COUNT(*) FROM tasks"), count("SELECT COUNT(*) FROM schedule_fires"); tasks != schedules || fires != schedules {
		t.Errorf("%d tasks and %d entries of %d schedules", tasks, fires, schedules)
	}
}
