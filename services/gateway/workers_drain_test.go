package main

import (
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// untilDrained sends the command, counts what still comes before its answer, and then listens: while work
// is there and the connection has room, nothing may come.
func (s *socket) untilDrained(command, pushed string) (before int) {
	s.t.Helper()
	id := s.send(command, map[string]any{})
	for {
		f := s.next()
		if f.Type == pushed {
			before++
			continue
		}
		if f.ReplyTo != id || f.Error != nil || string(f.Body) != `{"draining":true}` {
			s.t.Fatalf("%s was answered by %+v", command, f)
		}
		return before
	}
}

// silent reads for a while and fails on any frame. A deadline that has passed ends the connection for
// gorilla, so it is the last thing a test does with it.
func (s *socket) silent(d time.Duration) {
	s.t.Helper()
	if f, err := s.read(d); err == nil {
		s.t.Errorf("after its drain it got %s %s", f.Type, f.Body)
	}
}

// After the answer to worker.drain nothing is assigned on that connection, however much is ready and
// however the two race; what it holds goes on to its outcome, and others take the rest.
func TestADrainedWorkerIsAssignedNothing(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	n := startNode(t, db)
	const rounds, each = 20, 64
	db.QueueTasks(t, tenant, rounds*each)
	raced := 0
	for range rounds {
		s := n.worker(tenant.Token, tenant.QueueID, each)
		first := s.assignment() // a claim turn has begun: most of its assignments race with the drain
		held := 1 + s.untilDrained("worker.drain", "task.assign")
		if held < each {
			raced++
		}
		if _, code := s.answer("attempts.renew", map[string]any{"attempts": []any{first.proof()}}); code != "" {
			t.Errorf("renew: %q", code)
		}
		if _, code := s.answer("attempt.complete", first.proof()); code != "" { // its place is free again
			t.Errorf("complete: %q", code)
		}
		s.untilDrained("worker.drain", "nothing")
		var live int
		if err := db.SQL.QueryRow("SELECT COUNT(*) FROM permits WHERE session_id = UNHEX(?)", s.session).Scan(&live); err != nil || live != held-1 {
			t.Errorf("the worker knows of %d attempts, the database of %d (%v)", held-1, live, err)
		}
		if live > 0 {
			s.silent(20 * time.Millisecond)
		}
		_ = s.ws.Close()
	}
	db.QueueTasks(t, tenant, 1)
	n.worker(tenant.Token, tenant.QueueID, 1).assignment()
	t.Logf("%d of %d drains ended with room", raced, rounds)
}

// A cancel still reaches a drained worker.
func TestADrainedWorkerHearsOfCancels(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	w := startNode(t, db).worker(tenant.Token, tenant.QueueID, 2)
	id := db.Submit(t, tenant, `1`)
	a := w.assignment()
	w.untilDrained("worker.drain", "nothing")
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
		held := 1 + s.untilDrained("events.drain", "event.deliver")
		if _, code := s.answer("event.ack", first.proof()); code != "" {
			t.Errorf("ack: %q", code)
		}
		if _, code := s.answer("events.ping", map[string]any{}); code != "" {
			t.Errorf("ping: %q", code)
		}
		s.untilDrained("events.drain", "nothing")
		var live int
		if err := db.SQL.QueryRow("SELECT COUNT(*) FROM deliveries WHERE subscription_id = ? AND session_id = UNHEX(?) AND state = 'LEASED'", sub[:], s.session).Scan(&live); err != nil || live != held-1 {
			t.Errorf("the consumer knows of %d deliveries, the database of %d (%v)", held-1, live, err)
		}
		s.silent(20 * time.Millisecond)
		_ = s.ws.Close()
	}
	n.events(tenant.Token, sub, 1).delivery()
}
