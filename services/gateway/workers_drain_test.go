package main

import (
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// untilDrained reads to the answer of a drain and returns what still came before it.
func (s *socket) untilDrained(id, pushed string) (before []frame) {
	s.t.Helper()
	for {
		f := s.next()
		if f.Type == pushed {
			before = append(before, f)
			continue
		}
		if f.ReplyTo != id || f.Error != nil || string(f.Body) != `{"draining":true}` {
			s.t.Fatalf("the drain was answered by %+v", f)
		}
		return before
	}
}

func (s *socket) drain(command, pushed string) (before []frame) {
	s.t.Helper()
	return s.untilDrained(s.send(command, map[string]any{}), pushed)
}

// silent reads for a while and fails on any frame. A deadline that has passed ends the connection for
// gorilla, so it is the last thing a test does with it.
func (s *socket) silent(d time.Duration) {
	s.t.Helper()
	if f, err := s.read(d); err == nil {
		s.t.Errorf("after its drain it got %s %s", f.Type, f.Body)
	}
}

// After the answer to worker.drain nothing is assigned on that connection, however the drain races with
// tasks that become ready; what it holds goes on to its outcome, and others take the rest.
func TestADrainedWorkerIsAssignedNothing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	n := startNode(t, db)
	const rounds, each = 20, 6
	total, left := 0, 0
	for round := range rounds {
		s := n.worker(tenant.Token, tenant.QueueID, 64)
		var id string
		for i := range each {
			db.QueueTasks(t, tenant, 1)
			if i == round%each {
				id = s.send("worker.drain", map[string]any{})
			}
		}
		given := s.untilDrained(id, "task.assign")
		held := len(given)
		for _, f := range given[:min(held, 1)] {
			first := decode[assigned](t, f.Body)
			if _, code := s.answer("attempts.renew", map[string]any{"attempts": []any{first.proof()}}); code != "" {
				t.Errorf("renew: %q", code)
			}
			if _, code := s.answer("attempt.complete", first.proof()); code != "" { // its place is free again
				t.Errorf("complete: %q", code)
			}
			held--
		}
		s.drain("worker.drain", "nothing")
		var live, ready int
		err := db.SQL.QueryRow("SELECT (SELECT COUNT(*) FROM permits WHERE session_id = UNHEX(?)), (SELECT COUNT(*) FROM ready_tasks)", s.session).Scan(&live, &ready)
		if err != nil || live != held {
			t.Errorf("the worker knows of %d attempts, the database of %d (%v)", held, live, err)
		}
		total, left = total+held, left+ready
		if ready > 0 {
			s.silent(50 * time.Millisecond)
		}
		_ = s.ws.Close()
	}
	if left == 0 || total == 0 {
		t.Errorf("%d tasks were held and %d left behind: nothing was shown", total, left)
	}
	db.QueueTasks(t, tenant, 1)
	n.worker(tenant.Token, tenant.QueueID, 1).assignment()
}

// A cancel still reaches a drained worker.
func TestADrainedWorkerHearsOfCancels(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	w := startNode(t, db).worker(tenant.Token, tenant.QueueID, 2)
	id := db.Submit(t, tenant, `1`)
	a := w.assignment()
	w.drain("worker.drain", "nothing")
	cancelTask(t, db, tenant, id, 2)
	w.expect("attempt.cancel")
	db.Submit(t, tenant, `2`)
	if f, code := w.answer("attempt.cancelled", a.proof()); code != "" {
		t.Errorf("cancelled: %q %s", code, f.Body)
	}
	w.silent(200 * time.Millisecond)
}

// The same for events.drain, which any session may say.
func TestADrainedConsumerIsDeliveredNothing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{MaxPending: 1000, FromSequence: new(ids.Counter)})
	n := startNode(t, db)
	const rounds, capacity = 20, 32
	db.AppendEvents(t, tenant, 2*rounds*capacity, `1`)
	for range rounds {
		s := n.events(tenant.Token, sub, capacity)
		first := s.delivery()
		held := 1 + len(s.drain("events.drain", "event.deliver"))
		if _, code := s.answer("event.ack", first.proof()); code != "" {
			t.Errorf("ack: %q", code)
		}
		if _, code := s.answer("events.ping", map[string]any{}); code != "" {
			t.Errorf("ping: %q", code)
		}
		s.drain("events.drain", "nothing")
		var live int
		if err := db.SQL.QueryRow("SELECT COUNT(*) FROM deliveries WHERE subscription_id = ? AND session_id = UNHEX(?) AND state = 'LEASED'", sub[:], s.session).Scan(&live); err != nil || live != held-1 {
			t.Errorf("the consumer knows of %d deliveries, the database of %d (%v)", held-1, live, err)
		}
		s.silent(20 * time.Millisecond)
		_ = s.ws.Close()
	}
	n.events(tenant.Token, sub, 1).delivery()
}
