package examples_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the receiver's database

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// exact is what no database column and no JSON library may rewrite (E2).
const exact = `{"a":9007199254740993, "b":18446744073709551615,"c":1.0,"d":1e400}`

// The consumer is killed with SIGKILL at five points in turn; every event ends with one inbox row and one
// business row. ORBIT_KILL_EVENTS=1000 ORBIT_KILLS=100 is the full size.
func TestFivePointKill(t *testing.T) {
	t.Parallel()
	events, kills := size(t, "ORBIT_KILL_EVENTS", 80), size(t, "ORBIT_KILLS", 10)
	e := stack.Namespace(t)
	db, dsn := receiver(t)
	sub := e.NewSubscription(t, e.QueueID, func(r *orbit.CreateSubscriptionRequest) { r.MaxPending, r.MaxAttempts = 1000, 100 })
	inputs := make([]string, events)
	for i := range inputs {
		inputs[i] = exact
	}
	e.Results(t, e.QueueID, inputs...)
	points := []string{"received", "inbox row", "business row", "committed", "acknowledged"}
	killed := map[string]int{}
	for i := range kills {
		point := points[i%len(points)]
		cmd := program(t, e, t.TempDir(), "mysql-inbox", sub)
		cmd.Env = append(cmd.Env, "DSN="+dsn, "EXAMPLE_STOP_AT="+point, fmt.Sprintf("EXAMPLE_STOP_AFTER=%d", rand.IntN(max(1, events/(2*kills)))))
		p := start(t, cmd)
		p.await(t, "at "+point, 1)
		p.kill(t)
		killed[point]++
	}
	cmd := program(t, e, t.TempDir(), "mysql-inbox", sub)
	cmd.Env = append(cmd.Env, "DSN="+dsn)
	p := start(t, cmd)
	client := e.Client(t)
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		s, err := client.GetSubscription(t.Context(), sub)
		if err != nil {
			t.Fatal(err)
		}
		head, err := client.ListEventDeliveries(t.Context(), sub, orbit.ListEventDeliveriesRequest{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if s.PendingCount == 0 && len(head.Items) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d are still not acknowledged", s.PendingCount)
		}
	}
	p.stop(t)
	var inboxRows, businessRows, distinct, whole, repeated int
	err := db.QueryRow(`SELECT (SELECT COUNT(*) FROM orbit_inbox), (SELECT COUNT(*) FROM results_seen), (SELECT COUNT(DISTINCT event_id) FROM results_seen),
  (SELECT COUNT(*) FROM orbit_inbox WHERE LOCATE(?, event) > 0), (SELECT COALESCE(SUM(duplicates), 0) FROM orbit_inbox)`, []byte(`"result":`+exact)).
		Scan(&inboxRows, &businessRows, &distinct, &whole, &repeated)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d events, kills %v: %d inbox rows, %d business rows, %d repetitions", events, killed, inboxRows, businessRows, repeated)
	if inboxRows != events || businessRows != events || distinct != events || whole != events {
		t.Errorf("%d events: %d inbox rows (%d byte-exact), %d business rows of %d events", events, inboxRows, whole, businessRows, distinct)
	}
}

func size(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s: want a number above 0, is %q", name, text)
	}
	return n
}

// receiver is a database of the receiver's own, on the stack's server.
func receiver(t *testing.T) (db *sql.DB, dsn string) {
	t.Helper()
	before, after, _ := strings.Cut(stack.DSN, ")/")
	_, params, _ := strings.Cut(after, "?")
	name := "receiver_" + orbit.NewKey()
	server, err := sql.Open("mysql", before+")/?"+params)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	if _, err := server.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	dsn = before + ")/" + name + "?" + params
	if db, err = sql.Open("mysql", dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, dsn
}
