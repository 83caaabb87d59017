package main

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

// serialTasks is how many tasks the serial queue runs; ORBIT_SERIAL_TASKS makes it 5000 for a run by hand.
func serialTasks(t *testing.T) int {
	text := os.Getenv("ORBIT_SERIAL_TASKS")
	if text == "" {
		return 200
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// patience is far more than a pause between two tasks takes on a busy machine.
const patience = 2 * time.Minute

// Two queues on two gateways: the one with max_running 1 never has two attempts at once, whatever the
// other, unlimited one does beside it; each task runs once.
func TestMaxRunningOneOverTwoGateways(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	one := db.TenantWith(t, queue.Create{Name: "one", MaxRunning: 1}, access.Actions)
	many := one
	many.QueueID = createQueue(t, db, one, queue.Create{Name: "many"})
	n := serialTasks(t)
	db.QueueTasks(t, one, n)
	db.QueueTasks(t, many, n)
	arrived, done := make(chan arrival), make(chan struct{})
	defer close(done)
	for range 2 {
		node := startNode(t, db, func(c *config) { c.IdleTimeout = patience }) // one gateway may have the serial queue to itself for long
		for _, tenant := range []storetest.Tenant{one, many} {
			node.worker(tenant.Token, tenant.QueueID, 4).forward(arrived, done)
		}
	}
	seen, left, most := map[string]bool{}, map[ids.ID]int{one.QueueID: n, many.QueueID: n}, 0
	for left[one.QueueID]+left[many.QueueID] > 0 {
		var a arrival
		select {
		case a = <-arrived:
		case <-time.After(patience):
			t.Fatalf("nothing came for %s; left %v", patience, left)
		}
		if seen[a.Task.ID] {
			t.Errorf("task %s was given twice", a.Task.ID)
		}
		seen[a.Task.ID] = true
		id, err := ids.ParseID(a.Task.QueueID)
		if err != nil {
			t.Fatal(err)
		}
		left[id]--
		var running int
		if err := db.SQL.QueryRow("SELECT COUNT(*) FROM permits WHERE namespace_id = ? AND queue_id = ?", one.NamespaceID[:], id[:]).Scan(&running); err != nil {
			t.Fatal(err)
		}
		if id == many.QueueID {
			most = max(most, running)
		} else if running != 1 {
			t.Errorf("%d are running", running)
		}
		a.s.send("attempt.complete", a.proof())
	}
	if most < 2 {
		t.Error("the unlimited queue never ran two at once")
	}
	waitForNoPermits(t, db)
	var ran, overlaps int
	if err := db.SQL.QueryRow(`SELECT COUNT(*), COALESCE(SUM(began < prior), 0) FROM (
  SELECT a.started_at AS began, LAG(a.ended_at) OVER (ORDER BY a.started_at, a.ended_at) AS prior
  FROM attempts a JOIN tasks t ON t.namespace_id = a.namespace_id AND t.id = a.task_id WHERE t.queue_id = ?) AS history`, one.QueueID[:]).Scan(&ran, &overlaps); err != nil {
		t.Fatal(err)
	}
	if ran != n || overlaps != 0 {
		t.Errorf("%d attempts of the serial queue, %d began before the one before had ended", ran, overlaps)
	}
}

type arrival struct {
	assigned
	s *socket
}

// forward hands on the connection's assignments until done or its end.
func (s *socket) forward(arrived chan<- arrival, done <-chan struct{}) {
	go func() {
		for {
			f, err := s.read(patience)
			if err != nil {
				return
			}
			if f.Type != "task.assign" {
				continue
			}
			select {
			case arrived <- arrival{decode[assigned](s.t, f.Body), s}:
			case <-done:
				return
			}
		}
	}()
}

func createQueue(t *testing.T, db *storetest.DB, tenant storetest.Tenant, c queue.Create) ids.ID {
	t.Helper()
	if err := c.Normalise(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Management.CreateQueue(context.Background(), tenant.Write(), c); err != nil {
		t.Fatal(err)
	}
	var id ids.ID
	if err := db.SQL.QueryRow("SELECT id FROM queues WHERE namespace_id = ? AND name = ?", tenant.NamespaceID[:], []byte(c.Name)).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// waitForNoPermits returns when every outcome that was sent is committed.
func waitForNoPermits(t *testing.T, db *storetest.DB) {
	t.Helper()
	deadline := time.Now().Add(wait)
	for n := 1; n > 0; time.Sleep(time.Millisecond) {
		if err := db.SQL.QueryRow("SELECT COUNT(*) FROM permits").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d attempts are still running", n)
		}
	}
}
