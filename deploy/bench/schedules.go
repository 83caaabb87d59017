package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// scheduleRate has 10 000 schedules fire at one minute, on two management replicas, and measures from
// the fire time to the last task.
func scheduleRate(ctx context.Context, s *stack, scale int) ([]metric, error) {
	q, _, err := s.queue(ctx, 0)
	if err != nil {
		return nil, err
	}
	n := scaled(10_000, scale)
	stop, err := s.secondManagement(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	at, err := s.dueTogether(ctx, q, n)
	if err != nil {
		return nil, err
	}
	fired := 0
	for fired < n {
		if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM schedule_fires WHERE task_id IS NOT NULL").Scan(&fired); err != nil {
			return nil, err
		}
		if time.Since(at) > 2*time.Minute {
			return nil, fmt.Errorf("%d of %d schedules fired in two minutes", fired, n)
		}
		time.Sleep(20 * time.Millisecond)
	}
	last := time.Since(at).Seconds() // the database is on this machine
	var tasks, mean float64
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks").Scan(&tasks); err != nil {
		return nil, err
	}
	if int(tasks) != n {
		return nil, fmt.Errorf("%d tasks of %d schedules", int(tasks), n)
	}
	err = s.db.QueryRowContext(ctx, "SELECT AVG(TIMESTAMPDIFF(MICROSECOND, fire_at, created_at)) / 1e6 FROM schedule_fires").Scan(&mean)
	if err != nil {
		return nil, err
	}
	return []metric{{"schedules due together", float64(n), ""}, {"last task visible after", last, "s"}, {"mean", mean, "s"}}, nil
}

// dueTogether makes n schedules for the next minute that leaves time to make them: a few over HTTP, the
// others as their copies.
func (s *stack) dueTogether(ctx context.Context, queue string, n int) (at time.Time, err error) {
	var now int64
	if err := s.db.QueryRowContext(ctx, "SELECT FLOOR(UNIX_TIMESTAMP())").Scan(&now); err != nil {
		return at, err
	}
	at = time.Unix(now, 0).UTC().Add(25 * time.Second).Truncate(time.Minute).Add(time.Minute)
	spec := orbit.ScheduleSpec{
		Cron: fmt.Sprintf("%d %d %d %d *", at.Minute(), at.Hour(), at.Day(), at.Month()),
		Task: orbit.ScheduleTask{Input: payload, RetrySafety: orbit.Safe},
	}
	have := min(n, 20)
	for i := range have {
		made, err := s.client.CreateSchedule(ctx, orbit.NewKey(), orbit.CreateScheduleRequest{Name: fmt.Sprintf("s%d", i), QueueID: queue, ScheduleSpec: spec})
		if err != nil {
			return at, err
		}
		if _, err := s.client.PublishSchedule(ctx, made.Schedule.ID, orbit.NewKey(), orbit.ScheduleCommandRequest{ExpectedRevision: "1", Reason: "bench"}); err != nil {
			return at, err
		}
	}
	for ; have < n; have += min(have, n-have) {
		_, err := s.db.ExecContext(ctx, `
INSERT INTO schedules (namespace_id, id, queue_id, application_id, credential_id, name, revision, state, version, draft_version, last_version, next_at, created_at, updated_at)
SELECT namespace_id, UNHEX(REPLACE(UUID(), '-', '')), queue_id, application_id, credential_id, UUID(), 1, state, version, draft_version, last_version, next_at, created_at, updated_at
FROM schedules LIMIT ?`, min(have, n-have))
		if err != nil {
			return at, err
		}
	}
	_, err = s.db.ExecContext(ctx, `
INSERT IGNORE INTO schedule_versions (namespace_id, schedule_id, version, credential_id, cron, time_zone, catch_up, priority, retry_safety, max_attempts, labels, input, created_at, published_at)
SELECT s.namespace_id, s.id, 1, v.credential_id, v.cron, v.time_zone, v.catch_up, v.priority, v.retry_safety, v.max_attempts, v.labels, v.input, v.created_at, v.published_at
FROM schedules s JOIN (SELECT * FROM schedule_versions LIMIT 1) v`)
	if err == nil && time.Until(at) < time.Second {
		err = fmt.Errorf("making %d schedules took until their fire time", n)
	}
	return at, err
}

// secondManagement starts another replica on the stack's database and returns once it is ready.
func (s *stack) secondManagement(ctx context.Context) (stop func(), err error) {
	text, err := os.ReadFile(filepath.Join(s.home, "env"))
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(text), "ORBIT_DSN='")
	dsn, _, _ := strings.Cut(rest, "'")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "orbit-management"), "serve")
	cmd.Env = append(os.Environ(), "ORBIT_DSN="+dsn, "ORBIT_MANAGEMENT_ADDR="+addr, "ORBIT_LOG_LEVEL=warn")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // nothing depends on how it ended
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
		if err != nil {
			break
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return stop, nil
			}
		}
	}
	stop()
	return nil, fmt.Errorf("the second management replica is never ready")
}
