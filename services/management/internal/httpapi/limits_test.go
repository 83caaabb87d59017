package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// TestSixtyFourSubscriptions, paused ones included, also when 40 creates race at 60: R5.3.
func TestSixtyFourSubscriptions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	body := func(i int) string { return fmt.Sprintf(`{"name":"s%d","queue_id":"%s"}`, i, r.tenant.QueueID) }
	for i := range 60 {
		r.post(t, "/v1/subscriptions", body(i)).ok(t, 201)
	}
	r.exec(t, "UPDATE subscriptions SET enabled = 0 WHERE name < 's3'")
	statuses := make([]int, 40)
	var all sync.WaitGroup
	for i := range statuses {
		all.Go(func() {
			res := r.post(t, "/v1/subscriptions", body(60+i))
			statuses[i] = res.status
			if res.status != 201 {
				res.want(t, 409, "SUBSCRIPTION_LIMIT", "the namespace has 64 subscriptions")
			}
		})
	}
	all.Wait()
	made := 0
	for _, s := range statuses {
		if s == 201 {
			made++
		}
	}
	if n := r.count(t, "SELECT COUNT(*) FROM subscriptions"); made != 4 || n != subscription.MaxActive {
		t.Errorf("%d of 40 were made, %d exist", made, n)
	}
	other := r.Tenant(t)
	r.do(t, request{method: "POST", path: "/v1/subscriptions", token: other.Token, body: fmt.Sprintf(`{"name":"s","queue_id":"%s"}`, other.QueueID)}).ok(t, 201)
}

// TestNoEventIsMissedOrDoubledAtTheStart: while outcomes are appended, 200 subscriptions start at
// "now". Each must deliver exactly the sequences after its cursor, and its cursor must be a head that
// was committed while it was made.
func TestNoEventIsMissedOrDoubledAtTheStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	var appended atomic.Int64
	for range 2 {
		writers.Go(func() {
			for ctx.Err() == nil {
				r.Submit(t, r.tenant, `1`)
				for _, a := range r.Claim(t, r.tenant, 4) {
					r.Complete(t, r.tenant, a, `1`)
					appended.Add(1)
				}
			}
		})
	}
	head := func() int { return r.count(t, "SELECT head FROM result_streams") }
	for i := range 200 {
		before := head()
		text, _ := r.post(t, "/v1/subscriptions", fmt.Sprintf(`{"name":"s%d","queue_id":"%s","max_pending":1000}`, i, r.tenant.QueueID)).ok(t, http.StatusCreated).resource(t, "subscription")
		after := head()
		var cursor int
		_, _ = fmt.Sscan(field(t, text, "cursor_sequence"), &cursor)
		if cursor < before || cursor > after {
			t.Errorf("round %d starts at %d, the head went from %d to %d", i, cursor, before, after)
		}
		r.follow(t, field(t, text, "id"), cursor)
		r.exec(t, "DELETE FROM deliveries") // the limit of 64 leaves no room for 200
		r.exec(t, "DELETE FROM subscriptions")
	}
	stop()
	writers.Wait()
	if appended.Load() < 200 {
		t.Errorf("only %d outcomes were appended meanwhile", appended.Load())
	}
}

// follow materialises what was committed since the start, at least one event, and compares it with
// the log.
func (r *rig) follow(t *testing.T, id string, cursor int) {
	t.Helper()
	subscription := mustID(t, id)
	reached := cursor
	for reached == cursor {
		r.claim(t, subscription, 0)
		reached = r.count(t, "SELECT cursor_sequence FROM subscriptions WHERE id = ?", subscription[:])
	}
	rows := r.count(t, "SELECT COUNT(*) FROM deliveries WHERE subscription_id = ?", subscription[:])
	matched := r.count(t, `
SELECT COUNT(*) FROM result_events e JOIN deliveries d ON d.subscription_id = ? AND d.sequence = e.sequence AND d.event_id = e.id
WHERE e.sequence > ? AND e.sequence <= ?`, subscription[:], cursor, reached)
	if want := reached - cursor; rows != want || matched != want {
		t.Errorf("from %d to %d: %d deliveries, %d of them of the events in between", cursor, reached, rows, matched)
	}
}

// TestARetentionGapIsNamed is A3 over HTTP: a start before the boundary is refused, "0" begins at the
// boundary, and a delivery whose event is gone says so.
func TestARetentionGapIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	early := mustID(t, r.subscribe(t, `{"name":"early","queue_id":"`+r.tenant.QueueID.String()+`","from_sequence":"0"}`))
	for range 5 {
		r.Outcome(t, r.tenant, `1`)
	}
	r.claim(t, early, 0)
	deliveries := r.walk(t, "/v1/subscriptions/"+early.String()+"/deliveries?limit=100")
	r.exec(t, "DELETE FROM result_events WHERE sequence <= 3")
	r.exec(t, "UPDATE result_streams SET boundary = 3")

	create := func(name, from string) *response {
		return r.post(t, "/v1/subscriptions", fmt.Sprintf(`{"name":%q,"queue_id":"%s","from_sequence":%q}`, name, r.tenant.QueueID, from))
	}
	create("one", "1").want(t, 410, "EVENT_HISTORY_EXPIRED", "from_sequence: events up to 3 were removed by retention, 1 is before that")
	create("two", "2").want(t, 410, "EVENT_HISTORY_EXPIRED", "from_sequence: ")
	for name, from := range map[string]string{"zero": "0", "three": "3"} {
		text, _ := create(name, from).ok(t, 201).resource(t, "subscription")
		if got := field(t, text, "cursor_sequence"); got != "3" {
			t.Errorf("from %s starts at %s", from, got)
		}
		id := mustID(t, field(t, text, "id"))
		r.claim(t, id, 0)
		if n := r.count(t, "SELECT COUNT(*) FROM deliveries WHERE subscription_id = ?", id[:]); n != 2 {
			t.Errorf("from %s: %d deliveries of the 2 events that are left", from, n)
		}
	}
	oldest := deliveries[len(deliveries)-1]
	r.get(t, "/v1/subscriptions/"+early.String()+"/deliveries/"+oldest).want(t, 410, "EVENT_HISTORY_EXPIRED", "event ")
	r.get(t, "/v1/subscriptions/"+early.String()+"/deliveries/"+deliveries[0]).ok(t, 200)
	if n := len(r.walk(t, "/v1/subscriptions/"+early.String()+"/deliveries?limit=2")); n != 5 {
		t.Errorf("%d of 5 deliveries are listed", n)
	}
}
