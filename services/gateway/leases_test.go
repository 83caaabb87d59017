package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// lapse ends every lease of a subscription, as 30 s without an ack would.
func lapse(t *testing.T, db *storetest.DB, sub ids.ID) {
	t.Helper()
	for try := 1; ; try++ { // without the subscription's lock, so in nobody's order
		_, err := db.SQL.Exec("UPDATE deliveries SET lease_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE subscription_id = ? AND state = 'LEASED'", sub[:])
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "1213") || try == 100 {
			t.Fatal(err)
		}
	}
}

// recover is what the next claim turn does with lapsed leases, without taking any.
func recoverLeases(t *testing.T, db *storetest.DB, tenant storetest.Tenant, sub ids.ID) {
	t.Helper()
	if _, err := db.Gateway.ClaimDeliveries(context.Background(), tenant.NamespaceID, sub, nil); err != nil {
		t.Fatal(err)
	}
}

func stateOf(t *testing.T, db *storetest.DB, tenant storetest.Tenant, sub ids.ID, id string) delivery.State {
	t.Helper()
	parsed, err := ids.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	d, _, err := db.Management.GetDelivery(context.Background(), tenant.Caller, sub, parsed)
	if err != nil {
		t.Fatal(err)
	}
	return d.State
}

// answer sends a command and returns the error code of its answer, "" for an ack.
func (s *socket) answer(frameType string, body any) (frame, string) {
	s.t.Helper()
	id := s.send(frameType, body)
	f := s.next()
	if f.ReplyTo != id {
		s.t.Fatalf("%s was answered by %+v", frameType, f)
	}
	if f.Error != nil {
		return f, f.Error.Code
	}
	return f, ""
}

// B2: an ack counts while its epoch is the newest, and for its own proof only.
func TestAckAfterTheLeaseMovedOn(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db)
	a := n.events(tenant.Token, sub, 1)
	db.Outcome(t, tenant, `1`)
	first := a.delivery()
	lapse(t, db, sub)
	b := n.events(tenant.Token, sub, 1)
	second := b.delivery()
	if second.Delivery.ID != first.Delivery.ID || second.Delivery.LeaseEpoch != "2" || second.Delivery.Attempts != 2 {
		t.Fatalf("second lease %+v of %+v", second, first)
	}
	if _, code := a.answer("event.ack", first.proof()); code != "DELIVERY_LEASE_LOST" {
		t.Errorf("old proof: %q", code)
	}
	mixed := first.proof()
	mixed["lease_secret"] = second.LeaseSecret
	if _, code := a.answer("event.ack", mixed); code != "DELIVERY_LEASE_LOST" {
		t.Errorf("old epoch with the new secret: %q", code)
	}
	for i, dedup := range []bool{false, true} {
		f, code := b.answer("event.ack", second.proof())
		if code != "" || decode[acked](t, f.Body).Deduplicated != dedup {
			t.Errorf("ack %d: %+v %q", i+1, f, code)
		}
	}
	if f, code := a.answer("event.ack", second.proof()); code != "" || !decode[acked](t, f.Body).Deduplicated {
		t.Errorf("the good proof on another connection: %q", code)
	}
}

// R6.5: late acks are taken in every state that the delivery can have gone back to.
func TestLateAcks(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	n := startNode(t, db)
	for name, c := range map[string]struct {
		budget  int
		recover bool
		state   delivery.State
	}{
		"lapsed, not recovered": {2, false, delivery.Leased},
		"back to PENDING":       {2, true, delivery.Pending},
		"EXPIRED":               {1, true, delivery.Expired},
	} {
		sub := db.Subscribe(t, tenant, subscription.Create{MaxAttempts: c.budget})
		s := n.events(tenant.Token, sub, 1)
		db.Outcome(t, tenant, `1`)
		d := s.delivery()
		lapse(t, db, sub)
		if c.recover {
			recoverLeases(t, db, tenant, sub)
		}
		if got := stateOf(t, db, tenant, sub, d.Delivery.ID); got != c.state {
			t.Errorf("%s: it is %s", name, got)
		}
		if f, code := s.answer("event.ack", d.proof()); code != "" || decode[acked](t, f.Body).Deduplicated {
			t.Errorf("%s: %q", name, code)
		}
		if got, err := db.Management.GetSubscription(context.Background(), tenant.Caller, sub); err != nil || got.PendingCount != 0 {
			t.Errorf("%s: pending_count %d, %v", name, got.PendingCount, err)
		}
	}
}

// B1: a handler slower than the lease keeps it by extending, and nobody else gets the delivery.
func TestExtendKeepsTheLease(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db)
	slow := n.events(tenant.Token, sub, 1)
	db.Outcome(t, tenant, `1`)
	d := slow.delivery()
	lapse(t, db, sub)
	f, code := slow.answer("event.extend", d.proof())
	until := decode[struct {
		LeaseUntil time.Time `json:"lease_until"`
	}](t, f.Body).LeaseUntil
	if code != "" || time.Until(until) < 20*time.Second {
		t.Fatalf("extend: %q until %s", code, until)
	}
	other := n.events(tenant.Token, sub, 1)
	if _, code := other.answer("events.ping", map[string]any{}); code != "" { // a delivery would have come first
		t.Errorf("ping: %q", code)
	}
	if f, code := slow.answer("event.ack", d.proof()); code != "" || decode[acked](t, f.Body).Deduplicated {
		t.Errorf("ack: %q", code)
	}
	if _, code := slow.answer("event.extend", d.proof()); code != "DELIVERY_LEASE_LOST" {
		t.Errorf("extend of an acknowledged delivery: %q", code)
	}
}

// R6.10: a released delivery comes again at once or after its delay, and a refund restores the attempt.
func TestRelease(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{MaxAttempts: 2})
	n := startNode(t, db)
	s := n.events(tenant.Token, sub, 1)
	db.Outcome(t, tenant, `1`)
	d := s.delivery()
	release := func(d delivered, delay int, refund bool) string {
		body := d.proof()
		body["delay_ms"], body["refund"] = delay, refund
		_, code := s.answer("event.release", body)
		return code
	}
	if code := release(d, 0, true); code != "" {
		t.Fatal(code)
	}
	again := s.delivery()
	if again.Delivery.LeaseEpoch != "2" || again.Delivery.Attempts != 1 {
		t.Errorf("after a refund: %+v", again.Delivery)
	}
	if code := release(d, 0, true); code != "DELIVERY_LEASE_LOST" {
		t.Errorf("release with the old proof: %q", code)
	}
	before := time.Now()
	if code := release(again, 300, false); code != "" {
		t.Fatal(code)
	}
	third := s.delivery()
	if waited := time.Since(before); waited < 250*time.Millisecond || third.Delivery.Attempts != 2 {
		t.Errorf("after %s: %+v", waited, third.Delivery)
	}
	if code := release(third, 0, false); code != "" { // the budget is used up
		t.Fatal(code)
	}
	if got := stateOf(t, db, tenant, sub, d.Delivery.ID); got != delivery.Expired {
		t.Errorf("at the end of its budget it is %s", got)
	}
}

// A released delivery is taken by another node that has room.
func TestReleaseReachesAnotherNode(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	first, second := startNode(t, db), startNode(t, db)
	a := first.events(tenant.Token, sub, 1)
	db.Outcome(t, tenant, `1`)
	d := a.delivery()
	b := second.events(tenant.Token, sub, 1)
	if _, code := b.answer("events.ping", map[string]any{}); code != "" {
		t.Fatal(code)
	}
	first.g.hub.Drain() // this node claims no more, as before a shutdown
	body := d.proof()
	body["delay_ms"], body["refund"] = 0, true
	if _, code := a.answer("event.release", body); code != "" {
		t.Fatal(code)
	}
	if got := b.delivery(); got.Delivery.ID != d.Delivery.ID || got.Delivery.Attempts != 1 {
		t.Errorf("the other node got %+v", got.Delivery)
	}
}

func TestAckBatch(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	n := startNode(t, db)
	db.AppendEvents(t, tenant, 32, `1`)
	s := n.events(tenant.Token, sub, 32)
	var acks []any
	for range 32 {
		acks = append(acks, s.delivery().proof())
	}
	wrong := acks[7].(map[string]any)
	wrong["epoch"] = "9"
	f, code := s.answer("event.ack_batch", map[string]any{"acks": acks})
	if code != "" {
		t.Fatal(code)
	}
	results := decode[struct {
		Results []struct {
			DeliveryID   string `json:"delivery_id"`
			Deduplicated *bool  `json:"deduplicated"`
			Error        *struct {
				Code string `json:"code"`
			} `json:"error"`
		} `json:"results"`
	}](t, f.Body).Results
	if len(results) != 32 {
		t.Fatalf("%d results", len(results))
	}
	for i, r := range results {
		if r.DeliveryID != acks[i].(map[string]any)["delivery_id"] {
			t.Errorf("result %d is of another delivery", i)
		}
		if i == 7 && (r.Error == nil || r.Error.Code != "DELIVERY_LEASE_LOST") || i != 7 && (r.Error != nil || *r.Deduplicated) {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	if got, err := db.Management.GetSubscription(context.Background(), tenant.Caller, sub); err != nil || got.PendingCount != 1 {
		t.Errorf("pending_count %d, %v", got.PendingCount, err)
	}
}

// B6: attempts are counted when the lease is given, so a consumer that dies on receipt ends at the budget.
func TestCrashOnReceiptEndsAtTheBudget(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{MaxAttempts: 3})
	n := startNode(t, db)
	db.Outcome(t, tenant, `1`)
	var id string
	for i := range 3 {
		s := n.events(tenant.Token, sub, 1)
		d := s.delivery()
		if id = d.Delivery.ID; d.Delivery.Attempts != i+1 {
			t.Errorf("attempt %d is counted as %d", i+1, d.Delivery.Attempts)
		}
		_ = s.ws.Close()
		lapse(t, db, sub)
	}
	s := n.events(tenant.Token, sub, 1)
	recoverLeases(t, db, tenant, sub)
	if _, code := s.answer("events.ping", map[string]any{}); code != "" {
		t.Error(code)
	}
	if got := stateOf(t, db, tenant, sub, id); got != delivery.Expired {
		t.Errorf("after its budget it is %s", got)
	}
}

// B7: with room, others flow past an event that is never acknowledged. Without room the backlog says so,
// since an EXPIRED delivery keeps its place until it is retried or acknowledged late.
func TestABadEventLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	roomy := db.Subscribe(t, tenant, subscription.Create{MaxPending: 2, MaxAttempts: 1})
	narrow := db.Subscribe(t, tenant, subscription.Create{MaxPending: 1, MaxAttempts: 1})
	n := startNode(t, db)
	a, b := n.events(tenant.Token, roomy, 2), n.events(tenant.Token, narrow, 1)
	db.Outcome(t, tenant, `"bad"`)
	a.delivery()
	bad := b.delivery()
	for range 3 {
		db.Outcome(t, tenant, `"good"`)
		good := a.delivery()
		if _, code := a.answer("event.ack", good.proof()); code != "" {
			t.Fatal(code)
		}
	}
	lapse(t, db, narrow)
	recoverLeases(t, db, tenant, narrow)
	if got := stateOf(t, db, tenant, narrow, bad.Delivery.ID); got != delivery.Expired {
		t.Fatalf("it is %s", got)
	}
	if _, code := b.answer("event.ack", bad.proof()); code != "" { // a late ack makes room
		t.Fatal(code)
	}
	if next := b.delivery(); next.Event.Sequence != "2" {
		t.Errorf("then comes %s", next.Event.Sequence)
	}
}
