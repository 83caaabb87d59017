package main

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

// TestRaceOfRetiredQueueAndHello: a worker that says hello while its queue retires is refused, or
// welcomed and soon told; none stays connected. ORBIT_RACE_ROUNDS=1000 is the full size.
func TestRaceOfRetiredQueueAndHello(t *testing.T) {
	t.Parallel()
	rounds := 60
	if text := os.Getenv("ORBIT_RACE_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	db := storetest.New(t)
	home := db.Tenant(t)
	n := startNode(t, db)
	var refused, told atomic.Int64
	var next atomic.Int64
	var lanes sync.WaitGroup
	for range 20 {
		lanes.Go(func() {
			for round := next.Add(1); round <= int64(rounds) && !t.Failed(); round = next.Add(1) {
				if helloAndRetire(t, db, n, home) {
					refused.Add(1)
				} else {
					told.Add(1)
				}
			}
		})
	}
	lanes.Wait()
	t.Logf("%d workers were refused, %d welcomed and told", refused.Load(), told.Load())
	if left := n.g.workDoor.Open(); left > 0 {
		deadline := time.Now().Add(wait)
		for n.g.workDoor.Open() > 0 {
			if time.Now().After(deadline) {
				t.Fatalf("%d workers of retired queues are connected", n.g.workDoor.Open())
			}
			time.Sleep(time.Millisecond)
		}
	}
	if refused.Load() == 0 || told.Load() == 0 {
		t.Error("the race was none")
	}
}

// helloAndRetire reports whether the hello was refused.
func helloAndRetire(t *testing.T, db *storetest.DB, n *node, home storetest.Tenant) (refused bool) {
	tenant := home
	tenant.QueueID = ids.New()
	_, err := db.SQL.Exec(`INSERT INTO queues (namespace_id, id, name, revision, paused, max_running, lease_duration_ms, created_at, updated_at)
VALUES (?, ?, ?, 1, 0, 0, 30000, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))`, tenant.NamespaceID[:], tenant.QueueID[:], tenant.QueueID.String())
	if err != nil {
		t.Error(err)
		return
	}
	s := n.dial("/v1/workers/connect", "orbit.workers.v1", tenant.Token)
	defer s.ws.Close()
	done := make(chan error, 1)
	retired := make(chan struct{})
	go func() {
		done <- retireQueue(db, tenant, 1)
		close(retired)
	}()
	head := time.Duration(rand.Int64N(int64(20 * time.Millisecond))) // a retirement takes some
	if rand.IntN(4) == 0 {
		head = wait // surely after it
	}
	select {
	case <-retired:
	case <-time.After(head):
	}
	id := s.send("worker.hello", map[string]any{"queue_id": tenant.QueueID.String(), "name": "w", "capacity": 1})
	f := s.next()
	switch f.Type {
	case "error":
		refused = true
	case "worker.welcome":
		f, id = s.next(), ""
	}
	if f.Type != "error" || f.Error.Code != "RESOURCE_RETIRED" || f.ReplyTo != id {
		t.Errorf("got %+v %+v", f, f.Error)
	}
	s.expectClose(4410)
	if err := <-done; err != nil {
		t.Error(err)
	}
	return refused
}
