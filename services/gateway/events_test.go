package main

import (
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

type acked struct {
	DeliveryID     string `json:"delivery_id"`
	EventID        string `json:"event_id"`
	Epoch          string `json:"epoch"`
	AcknowledgedAt string `json:"acknowledged_at"`
	Deduplicated   bool   `json:"deduplicated"`
}

func TestEventIsDeliveredAndAcknowledged(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db)
	s := n.events(tenant.Token, sub, 2)

	db.Outcome(t, tenant, `{"a": 1.0,  "b":1e400}`)
	d := s.delivery()
	if d.Delivery.Revision != "2" || d.Delivery.State != "LEASED" || d.Delivery.LeaseEpoch != "1" || d.Event.Sequence != "1" {
		t.Fatalf("first delivery: %+v", d)
	}
	id := s.send("event.ack", d.proof())
	f := s.expect("ack")
	first := decode[acked](t, f.Body)
	if f.ReplyTo != id || first.EventID != d.Event.ID || first.Deduplicated {
		t.Fatalf("ack: %+v %+v", f, first)
	}

	s.send("event.ack", d.proof())
	again := decode[acked](t, s.expect("ack").Body)
	if !again.Deduplicated || again.AcknowledgedAt != first.AcknowledgedAt {
		t.Fatalf("repeated ack: %+v after %+v", again, first)
	}

	s.send("events.ping", map[string]any{})
	pong := decode[struct {
		ServerTime time.Time `json:"server_time"`
		Enabled    bool      `json:"enabled"`
	}](t, s.expect("ack").Body)
	if !pong.Enabled || time.Since(pong.ServerTime).Abs() > 10*time.Second {
		t.Fatalf("pong: %+v", pong)
	}
}

func TestCapacityBoundsUnacknowledged(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db)
	for range 5 {
		db.Outcome(t, tenant, `1`)
	}
	s := n.events(tenant.Token, sub, 2)
	held := []delivered{s.delivery(), s.delivery()}
	s.send("events.ping", map[string]any{})
	s.expect("ack") // a third delivery would have come first
	for i := range 5 {
		s.send("event.ack", held[i].proof())
		s.expect("ack")
		if i < 3 {
			held = append(held, s.delivery())
		}
	}
	for i, d := range held {
		if want := string(rune('1' + i)); d.Event.Sequence != want {
			t.Errorf("delivery %d has sequence %s, want %s", i, d.Event.Sequence, want)
		}
	}
}

func TestWorkerRunsTaskAndEventFollows(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db)
	consumer := n.events(tenant.Token, sub, 1)
	worker := n.worker(tenant.Token, tenant.QueueID, 4)
	taskID := db.Submit(t, tenant, `{"n": 9007199254740993}`)
	a := decode[struct {
		Task struct {
			ID    string `json:"id"`
			Input jsonText
		} `json:"task"`
		Attempt struct {
			ID    string `json:"id"`
			Epoch string `json:"epoch"`
		} `json:"attempt"`
		LeaseSecret string `json:"lease_secret"`
	}](t, worker.expect("task.assign").Body)
	if a.Task.ID != taskID.String() || string(a.Task.Input) != `{"n": 9007199254740993}` {
		t.Fatalf("assigned %+v", a)
	}
	proof := map[string]any{"attempt_id": a.Attempt.ID, "epoch": a.Attempt.Epoch, "lease_secret": a.LeaseSecret, "result": 7}
	for _, dedup := range []bool{false, true} {
		worker.send("attempt.complete", proof)
		done := decode[struct {
			State        string `json:"state"`
			Deduplicated bool   `json:"deduplicated"`
		}](t, worker.expect("ack").Body)
		if done.State != "SUCCEEDED" || done.Deduplicated != dedup {
			t.Fatalf("complete: %+v", done)
		}
	}
	if d := consumer.delivery(); d.Event.Type != "task.succeeded" {
		t.Fatalf("event %+v", d)
	}
	worker.send("attempt.complete", map[string]any{"attempt_id": a.Attempt.ID, "epoch": "2", "lease_secret": a.LeaseSecret})
	if f := worker.expect("error"); f.Error.Code != "ATTEMPT_LEASE_LOST" {
		t.Fatalf("stale proof: %+v", f)
	}
}

type jsonText []byte

func (j *jsonText) UnmarshalJSON(b []byte) error { *j = append((*j)[:0], b...); return nil }

func TestStopClosesWithRestart(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db)
	s := n.events(tenant.Token, sub, 1)
	w := n.worker(tenant.Token, tenant.QueueID, 1)
	go func() { _ = n.stop() }()
	s.expectClose(1012)
	w.expectClose(1012)
}
