package main

import (
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// numberFromEnv is a test's size: small where all tests run, the full one by the environment.
func numberFromEnv(t *testing.T, name string, small int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return small
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s: want a number above 0, is %q", name, text)
	}
	return n
}

// R6.3: never more un-acked live leases than a connection's capacity, over two gateways; the database
// is asked at every receipt and every few milliseconds in between. Full size: ORBIT_CAPACITY_EVENTS=10000.
func TestCapacityHoldsOverTwoGateways(t *testing.T) {
	t.Parallel()
	events := numberFromEnv(t, "ORBIT_CAPACITY_EVENTS", 2000)
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{})
	db.AppendEvents(t, tenant, events, `1`)
	type got struct {
		s *socket
		d delivered
	}
	arrived := make(chan got)
	done := make(chan struct{})
	for range 2 {
		s := startNode(t, db).events(tenant.Token, sub, 1)
		go func() {
			for {
				f, err := s.read(6 * wait)
				if err != nil {
					return
				}
				if f.Type != "event.deliver" {
					continue
				}
				select {
				case arrived <- got{s, decode[delivered](t, f.Body)}:
				case <-done:
					return
				}
			}
		}()
	}
	var samples atomic.Int64
	sampler := make(chan struct{})
	go func() {
		defer close(sampler)
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
				heldAtMost(t, db, sub, 1)
				samples.Add(1)
			}
		}
	}()
	seen, bySocket := map[string]bool{}, map[*socket]int{}
	for range events {
		one := <-arrived
		if seen[one.d.Event.ID] {
			t.Errorf("event %s came twice", one.d.Event.Sequence)
		}
		seen[one.d.Event.ID] = true
		bySocket[one.s]++
		heldAtMost(t, db, sub, 1)
		one.s.send("event.ack", one.d.proof())
	}
	close(done)
	<-sampler
	if len(bySocket) != 2 {
		t.Error("one of the two gateways got nothing")
	}
	t.Logf("%d events, %d samples in between", events, samples.Load())
}

// heldAtMost fails if any connection holds more un-acked live leases than its capacity.
func heldAtMost(t *testing.T, db *storetest.DB, sub ids.ID, capacity int) {
	t.Helper()
	rows, err := db.SQL.Query("SELECT COUNT(*) FROM deliveries WHERE subscription_id = ? AND state = 'LEASED' AND lease_until > UTC_TIMESTAMP(6) GROUP BY session_id", sub[:])
	if err != nil {
		t.Error(err)
		return
	}
	defer rows.Close()
	for rows.Next() {
		var held int
		if err := rows.Scan(&held); err != nil || held > capacity {
			t.Errorf("a connection of capacity %d holds %d (%v)", capacity, held, err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
}
