package main

import (
	"context"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

func retireSubscription(db *storetest.DB, tenant storetest.Tenant, sub ids.ID, revision uint64) error {
	expected := ids.Counter(revision)
	_, err := db.Management.RetireSubscription(context.Background(), tenant.Write(), sub, subscription.Retire{ExpectedRevision: &expected, Reason: "test"})
	return err
}

func retireQueue(db *storetest.DB, tenant storetest.Tenant, revision uint64) error {
	expected := ids.Counter(revision)
	_, err := db.Management.RetireQueue(context.Background(), tenant.Write(), tenant.QueueID, queue.Retire{ExpectedRevision: &expected, Reason: "test"})
	return err
}

// expectRetired reads the error frame and the close of a retired resource.
func (s *socket) expectRetired(replyTo string) {
	s.t.Helper()
	f := s.expect("error")
	if f.Error == nil || f.Error.Code != "RESOURCE_RETIRED" || f.ReplyTo != replyTo {
		s.t.Fatalf("got %+v %+v", f, f.Error)
	}
	if closed := s.expectClose(4410); closed.Text != "RESOURCE_RETIRED" {
		s.t.Errorf("closed with %q", closed.Text)
	}
}

// TestRetiredSubscriptionClosesItsConnections on every node, paused or not, and no one else's.
func TestRetiredSubscriptionClosesItsConnections(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	nodes := []*node{startNode(t, db), startNode(t, db)}
	live := nodes[0].events(tenant.Token, db.Subscribe(t, tenant, subscription.Create{}), 2)
	for _, pause := range []bool{false, true} {
		sub, revision := db.Subscribe(t, tenant, subscription.Create{}), uint64(1)
		consumer := nodes[0].events(tenant.Token, sub, 2)
		db.AppendEvents(t, tenant, 1, `1`)
		d, other := consumer.delivery(), live.delivery()
		if pause {
			configure(t, db, tenant, sub, revision, false)
			revision++
		}
		watcher := nodes[1].events(tenant.Token, sub, 2)
		if err := retireSubscription(db, tenant, sub, revision); !errs.Is(err, errs.ResourceBusy) {
			t.Fatalf("retired with a lease out: %v", err)
		}
		id := consumer.send("event.ack", d.proof())
		if ack := consumer.expect("ack"); ack.ReplyTo != id {
			t.Fatalf("%+v", ack)
		}
		if err := retireSubscription(db, tenant, sub, revision); err != nil {
			t.Fatal(err)
		}
		consumer.expectRetired("")
		watcher.expectRetired("")
		live.send("event.ack", other.proof())
		live.expect("ack")
	}
}

// TestHelloOnRetired is answered RESOURCE_RETIRED and closed, on both sockets.
func TestHelloOnRetired(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	if err := retireSubscription(db, tenant, sub, 1); err != nil {
		t.Fatal(err)
	}
	if err := retireQueue(db, tenant, 1); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, db)
	s := n.dial("/v1/events/connect", "orbit.events.v1", tenant.Token)
	s.expectRetired(s.send("events.hello", map[string]any{"subscription_id": sub.String(), "capacity": 1}))
	w := n.dial("/v1/workers/connect", "orbit.workers.v1", tenant.Token)
	w.expectRetired(w.send("worker.hello", map[string]any{"queue_id": tenant.QueueID.String(), "name": "w", "capacity": 1}))
}

// TestRetiredQueueClosesItsWorkers, idle as they are, and no one else's.
func TestRetiredQueueClosesItsWorkers(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant, other := db.Tenant(t), db.Tenant(t)
	nodes := []*node{startNode(t, db), startNode(t, db)}
	workers := []*socket{nodes[0].worker(tenant.Token, tenant.QueueID, 4), nodes[1].worker(tenant.Token, tenant.QueueID, 4)}
	elsewhere := nodes[0].worker(other.Token, other.QueueID, 4)
	if err := retireQueue(db, tenant, 1); err != nil {
		t.Fatal(err)
	}
	for _, w := range workers {
		w.expectRetired("")
	}
	db.Submit(t, other, `1`)
	elsewhere.expect("task.assign")
}

// TestGatewayRefusesAnotherSchema and says which it needs (R7.4).
func TestGatewayRefusesAnotherSchema(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"UPDATE schema_migrations SET version = version + 1": "deploy a newer binary",
		"UPDATE schema_migrations SET version = 17":          "at schema version 17, this binary needs ",
	} {
		db := storetest.New(t)
		if _, err := db.SQL.Exec(query); err != nil {
			t.Fatal(err)
		}
		cfg, err := parseConfig(map[string]string{"ORBIT_DSN": db.GatewayDSN, "ORBIT_GATEWAY_ADDR": "127.0.0.1:0", "ORBIT_LOG_LEVEL": "error"})
		if err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("run: %v, want %q", err, want)
		}
	}
}
