package main

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

type assigned struct {
	Task struct {
		ID       string            `json:"id"`
		QueueID  string            `json:"queue_id"`
		Attempts int               `json:"attempts"`
		Labels   map[string]string `json:"labels"`
		Input    json.RawMessage   `json:"input"`
	} `json:"task"`
	Attempt struct {
		ID     string `json:"id"`
		Number int    `json:"number"`
		Epoch  string `json:"epoch"`
	} `json:"attempt"`
	LeaseSecret string `json:"lease_secret"`
}

func (a assigned) proof() map[string]any {
	return map[string]any{"attempt_id": a.Attempt.ID, "epoch": a.Attempt.Epoch, "lease_secret": a.LeaseSecret}
}

func (s *socket) assignment() assigned {
	s.t.Helper()
	return decode[assigned](s.t, s.expect("task.assign").Body)
}

func cancelTask(t *testing.T, db *storetest.DB, tenant storetest.Tenant, id ids.ID, revision ids.Counter) {
	t.Helper()
	if _, err := db.Management.CancelTask(context.Background(), tenant.Write(), id, task.Cancel{ExpectedRevision: &revision, Reason: "r"}); err != nil {
		t.Fatal(err)
	}
}

// R8.5: a worker is told of a requested cancel, once; its answer decides.
func TestAWorkerIsToldOfACancel(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	w := startNode(t, db).worker(tenant.Token, tenant.QueueID, 2)
	for i, answer := range []string{"attempt.cancelled", "attempt.complete"} {
		id := db.Submit(t, tenant, `1`)
		a := w.assignment()
		cancelTask(t, db, tenant, id, 2)
		told := decode[struct {
			AttemptID string `json:"attempt_id"`
			TaskID    string `json:"task_id"`
			Reason    string `json:"reason"`
		}](t, w.expect("attempt.cancel").Body)
		if told.AttemptID != a.Attempt.ID || told.TaskID != id.String() || told.Reason != "CANCEL_REQUESTED" {
			t.Errorf("told %+v", told)
		}
		f, code := w.answer("attempts.renew", map[string]any{"attempts": []any{a.proof()}})
		if renewed := decode[struct {
			Attempts []struct {
				CancelRequested bool `json:"cancel_requested"`
			} `json:"attempts"`
		}](t, f.Body); code != "" || !renewed.Attempts[0].CancelRequested {
			t.Errorf("renew: %q %s", code, f.Body)
		}
		f, code = w.answer(answer, a.proof())
		if want := []string{"CANCELLED", "SUCCEEDED"}[i]; code != "" || decode[struct {
			State string `json:"state"`
		}](t, f.Body).State != want {
			t.Errorf("%s: %q %s, want %s", answer, code, f.Body, want)
		}
	}
}

// A task that was given back unstarted is not counted and comes again; a renewal of what is lost says so.
func TestReleaseAndRenew(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	w := startNode(t, db).worker(tenant.Token, tenant.QueueID, 1)
	db.Submit(t, tenant, `1`, func(s *task.Submit) { s.Labels = map[string]string{"customer": "ünö", "b": "\"2\""} })
	first := w.assignment()
	if l := first.Task.Labels; len(l) != 2 || l["customer"] != "ünö" || l["b"] != `"2"` {
		t.Errorf("labels %v", l)
	}
	if _, code := w.answer("attempt.release", first.proof()); code != "" {
		t.Fatal(code)
	}
	second := w.assignment()
	if second.Task.ID != first.Task.ID || second.Attempt.Number != 1 || second.Attempt.Epoch != "2" || second.Task.Attempts != 1 {
		t.Errorf("then %+v", second)
	}
	f, code := w.answer("attempts.renew", map[string]any{"attempts": []any{first.proof(), second.proof()}})
	items := decode[struct {
		Attempts []struct {
			AttemptID  string `json:"attempt_id"`
			LeaseUntil string `json:"lease_until"`
			Error      *struct {
				Code string `json:"code"`
			} `json:"error"`
		} `json:"attempts"`
	}](t, f.Body).Attempts
	if code != "" || len(items) != 2 || items[0].Error == nil || items[0].Error.Code != "ATTEMPT_LEASE_LOST" || items[1].Error != nil || items[1].LeaseUntil == "" {
		t.Errorf("renew: %q %s", code, f.Body)
	}
	if _, code := w.answer("attempt.complete", first.proof()); code != "ATTEMPT_LEASE_LOST" {
		t.Errorf("outcome with the old proof: %q", code)
	}
}

// Every fault of a worker's command is answered, and the connection goes on.
func TestWorkerCommandFaults(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	w := startNode(t, db).worker(tenant.Token, tenant.QueueID, 1)
	proof := map[string]any{"attempt_id": anID, "epoch": "1", "lease_secret": zeroSecret}
	with := func(more map[string]any) map[string]any {
		body := map[string]any{}
		for _, m := range []map[string]any{proof, more} {
			for k, v := range m {
				body[k] = v
			}
		}
		return body
	}
	failure := map[string]any{"code": "E", "message": "m"}
	for i, c := range []struct {
		frameType string
		body      any
		code      string
	}{
		{"attempt.complete", map[string]any{}, "INVALID_ARGUMENT"},
		{"attempt.complete", proof, "ATTEMPT_LEASE_LOST"},
		{"attempt.complete", with(map[string]any{"extra": 1}), "INVALID_ARGUMENT"},
		{"attempt.fail", proof, "INVALID_ARGUMENT"},
		{"attempt.fail", with(map[string]any{"error": failure}), "INVALID_ARGUMENT"},
		{"attempt.fail", with(map[string]any{"error": map[string]any{"code": "", "message": "m"}, "retryable": true}), "INVALID_ARGUMENT"},
		{"attempt.fail", with(map[string]any{"error": failure, "retryable": true, "retry_after_ms": -1}), "INVALID_ARGUMENT"},
		{"attempt.fail", with(map[string]any{"error": failure, "retryable": true, "retry_after_ms": 86_400_001}), "INVALID_ARGUMENT"},
		{"attempt.fail", with(map[string]any{"error": failure, "retryable": true, "retry_after_ms": 86_400_000}), "ATTEMPT_LEASE_LOST"},
		{"attempts.renew", map[string]any{"attempts": []any{}}, "INVALID_ARGUMENT"},
		{"task.take", map[string]any{}, "INVALID_ARGUMENT"},
		{"worker.ping", map[string]any{"a": 1}, "INVALID_ARGUMENT"},
		{"worker.ping", map[string]any{}, ""},
	} {
		if _, code := w.answer(c.frameType, c.body); code != c.code {
			t.Errorf("%d %s %v: %q, want %q", i, c.frameType, c.body, code, c.code)
		}
	}
	n := startNode(t, db)
	for _, capacity := range []int{0, 257} {
		s := n.dial("/v1/workers/connect", "orbit.workers.v1", tenant.Token)
		s.send("worker.hello", map[string]any{"queue_id": tenant.QueueID.String(), "name": "w", "capacity": capacity})
		if f := s.expect("error"); f.Error.Code != "INVALID_ARGUMENT" {
			t.Errorf("capacity %d: %+v", capacity, f)
		}
		s.expectClose(1008)
	}
	for _, capacity := range []int{1, 256} {
		n.worker(tenant.Token, tenant.QueueID, capacity)
	}
	s := n.dial("/v1/workers/connect", "orbit.workers.v1", tenant.Token)
	s.send("worker.hello", map[string]any{"queue_id": fmt.Sprint(ids.New()), "name": "w", "capacity": 1})
	if f := s.expect("error"); f.Error.Code != "NOT_FOUND" {
		t.Errorf("another queue: %+v", f)
	}
	s.expectClose(4404)
}
