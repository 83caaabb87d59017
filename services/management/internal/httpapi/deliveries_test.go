package httpapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// history has one subscription with deliveries in every state; each slice is in order of sequence.
type history struct {
	id      ids.ID
	byState map[string][]string
	all     []string
}

// claim runs a claim turn for one session of this capacity, 0 for a turn that only materialises.
func (r *rig) claim(t *testing.T, subscription ids.ID, capacity int) []store.Claimed {
	t.Helper()
	var wants []store.SessionWant
	if capacity > 0 {
		wants = []store.SessionWant{{SessionID: ids.New(), Capacity: capacity}}
	}
	turn, err := r.Gateway.ClaimDeliveries(context.Background(), r.tenant.NamespaceID, subscription, wants)
	if err != nil {
		t.Fatal(err)
	}
	return turn.Claimed
}

func (r *rig) ack(t *testing.T, subscription ids.ID, claimed ...store.Claimed) {
	t.Helper()
	for _, c := range claimed {
		proof := delivery.Proof{DeliveryID: c.Delivery.ID, Epoch: c.Delivery.LeaseEpoch, Digest: c.Secret.Digest()}
		out, _, err := r.Gateway.SettleDeliveries(context.Background(), r.tenant.NamespaceID, subscription, r.tenant.CredentialID,
			[]delivery.Command{{Kind: delivery.Ack, Proof: proof}}, nil)
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
}

// history makes n deliveries in each of the four states, with budgets of one attempt.
func (r *rig) history(t *testing.T, n int) history {
	t.Helper()
	id := mustID(t, r.subscribe(t, fmt.Sprintf(`{"name":"h-%s","queue_id":"%s","max_attempts":1}`, ids.New(), r.tenant.QueueID)))
	for range 4 * n {
		r.Outcome(t, r.tenant, `{"n":1}`)
	}
	acked, expired := r.claim(t, id, n), r.claim(t, id, n)
	r.ack(t, id, acked...)
	r.exec(t, "UPDATE deliveries SET lease_until = '2020-01-01' WHERE subscription_id = ? AND state = 'LEASED'", id[:])
	r.claim(t, id, n) // expires the second batch and leases the third
	rows, err := r.SQL.QueryContext(context.Background(), "SELECT state, HEX(id) FROM deliveries WHERE subscription_id = ? ORDER BY sequence", id[:])
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	h := history{id: id, byState: map[string][]string{}}
	for rows.Next() {
		var state, delivery string
		if err := rows.Scan(&state, &delivery); err != nil {
			t.Fatal(err)
		}
		delivery = strings.ToLower(delivery)
		h.byState[state], h.all = append(h.byState[state], delivery), append(h.all, delivery)
	}
	for _, state := range []string{"PENDING", "LEASED", "ACKED", "EXPIRED"} {
		if len(h.byState[state]) != n {
			t.Fatalf("history of %d has %v", n, h.byState)
		}
	}
	if len(expired) != n || rows.Err() != nil {
		t.Fatal(len(expired), rows.Err())
	}
	return h
}

func (h history) path(delivery string) string {
	return "/v1/subscriptions/" + h.id.String() + "/deliveries/" + delivery
}

func TestListDeliveries(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := r.history(t, 3)
	list := "/v1/subscriptions/" + h.id.String() + "/deliveries"
	newest := func(in []string) []string {
		out := slices.Clone(in)
		slices.Reverse(out)
		return out
	}
	for _, limit := range []int{1, 5, 11, 12, 13} {
		if got := r.walk(t, fmt.Sprintf("%s?limit=%d", list, limit)); !slices.Equal(got, newest(h.all)) {
			t.Errorf("limit %d: %v, want %v", limit, got, newest(h.all))
		}
	}
	for state, want := range h.byState {
		for _, limit := range []int{1, 2, 3, 4} {
			if got := r.walk(t, fmt.Sprintf("%s?state=%s&limit=%d", list, state, limit)); !slices.Equal(got, newest(want)) {
				t.Errorf("%s, limit %d: %v, want %v", state, limit, got, newest(want))
			}
		}
	}
	for _, query := range []string{"?state=", "?state=pending", "?state=ALL", "?state=PENDING&state=LEASED"} {
		r.get(t, list+query).want(t, 400, "INVALID_ARGUMENT", "state: ")
	}
	r.get(t, list+"?queue_id="+r.tenant.QueueID.String()).want(t, 400, "INVALID_ARGUMENT", "query: ")
	r.get(t, "/v1/subscriptions/"+ids.New().String()+"/deliveries").want(t, 404, "NOT_FOUND", "subscription ")
}

func TestGetDeliveryShowsWhatItsStateHas(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := r.history(t, 1)
	secrets := r.count(t, "SELECT COUNT(*) FROM deliveries WHERE lease_digest <> x'0000000000000000000000000000000000000000000000000000000000000000'")
	if secrets == 0 {
		t.Fatal("no lease was ever issued")
	}
	for state, deliveries := range h.byState {
		res := r.get(t, h.path(deliveries[0])).ok(t, 200)
		data := string(res.Data)
		if got := field(t, data, "delivery", "state"); got != state {
			t.Errorf("%s is %s", deliveries[0], got)
		}
		if has := field(t, data, "delivery", "lease_until") != "<nil>"; has != (state == "LEASED") {
			t.Errorf("%s: lease_until %v", state, has)
		}
		if has := field(t, data, "delivery", "acknowledged_at") != "<nil>"; has != (state == "ACKED") {
			t.Errorf("%s: acknowledged_at %v", state, has)
		}
		if epoch := field(t, data, "delivery", "lease_epoch"); (epoch == "0") != (state == "PENDING") {
			t.Errorf("%s: lease_epoch %s", state, epoch)
		}
		for _, hidden := range []string{"digest", "secret", "session"} {
			if strings.Contains(string(res.raw), hidden) {
				t.Errorf("%s shows a %s: %s", state, hidden, res.raw)
			}
		}
		again := r.get(t, h.path(deliveries[0])).ok(t, 200)
		if string(again.Data) != data {
			t.Errorf("reading changed %s to %s", data, again.Data)
		}
	}
	other := r.subscribe(t, `{"name":"other","queue_id":"`+r.tenant.QueueID.String()+`"}`)
	r.get(t, "/v1/subscriptions/"+other+"/deliveries/"+h.all[0]).want(t, 404, "NOT_FOUND", "delivery ")
	r.get(t, h.path(ids.New().String())).want(t, 404, "NOT_FOUND", "delivery ")
	r.get(t, h.path("x")).want(t, 400, "INVALID_ARGUMENT", "delivery_id: ")
	r.get(t, "/v1/subscriptions/x/deliveries/x").want(t, 400, "INVALID_ARGUMENT", "id: ")
}

func TestRetryDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := r.history(t, 2)
	retry := func(delivery, body string) *response { return r.post(t, h.path(delivery)+":retry", body) }
	body := func(revision string, n int) string {
		return fmt.Sprintf(`{"expected_revision":%q,"reason":"repaired","additional_attempts":%d}`, revision, n)
	}
	expired := h.byState["EXPIRED"]
	revision := func(id string) string {
		return field(t, string(r.get(t, h.path(id)).ok(t, 200).Data), "delivery", "revision")
	}
	for _, state := range []string{"PENDING", "LEASED", "ACKED"} {
		id := h.byState[state][0]
		retry(id, body(revision(id), 1)).want(t, 409, "STATE_CONFLICT", "delivery "+id+" is "+state)
	}
	for _, c := range []struct{ body, message string }{
		{`{"reason":"r","additional_attempts":1}`, "expected_revision: is required"},
		{`{"expected_revision":"3","additional_attempts":1}`, "reason: is required"},
		{`{"expected_revision":"3","reason":"r"}`, "additional_attempts: "},
		{body("3", -1), "additional_attempts: "},
		{body("3", 0), "additional_attempts: "},
		{body("3", 101), "additional_attempts: "},
		{`{"expected_revision":"3","reason":"` + strings.Repeat("r", 1025) + `","additional_attempts":1}`, "reason: "},
	} {
		retry(expired[0], c.body).want(t, 400, "INVALID_ARGUMENT", c.message)
	}
	retry(expired[0], body("2", 1)).want(t, 409, "STATE_CONFLICT", "delivery "+expired[0]+" is at revision 3")
	retry(expired[0], body("4", 1)).want(t, 409, "STATE_CONFLICT", "delivery ")

	before := field(t, string(r.get(t, "/v1/subscriptions/"+h.id.String()).Data), "pending_count")
	wakes := r.count(t, "SELECT wake_version FROM result_streams")
	text, _ := retry(expired[0], body("3", 100)).ok(t, 200).resource(t, "delivery")
	for member, want := range map[string]string{
		"state": "PENDING", "revision": "4", "attempts": "1", "attempt_budget": "101", "lease_epoch": "1", "id": expired[0],
	} {
		if got := field(t, text, member); got != want {
			t.Errorf("%s is %s, want %s", member, got, want)
		}
	}
	if after := field(t, string(r.get(t, "/v1/subscriptions/"+h.id.String()).Data), "pending_count"); after != before {
		t.Errorf("pending_count went from %s to %s", before, after)
	}
	if n := r.count(t, "SELECT wake_version FROM result_streams"); n != wakes+1 {
		t.Errorf("wake_version went from %d to %d", wakes, n)
	}
	retry(expired[0], body("4", 1)).want(t, 409, "STATE_CONFLICT", "delivery "+expired[0]+" is PENDING")

	r.exec(t, "UPDATE deliveries SET attempt_budget = 999999 WHERE LOWER(HEX(id)) = ?", expired[1])
	retry(expired[1], body("3", 2)).want(t, 409, "STATE_CONFLICT", "additional_attempts: ")
	retry(expired[1], body("3", 1)).ok(t, 200)
	retry(ids.New().String(), body("3", 1)).want(t, 404, "NOT_FOUND", "delivery ")

	if got := r.claim(t, h.id, 32); !slices.ContainsFunc(got, func(c store.Claimed) bool { return c.Delivery.ID.String() == expired[0] }) {
		t.Error("the retried delivery is not claimed at once")
	}
}
