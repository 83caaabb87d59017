package httpapi

import (
	"fmt"
	"slices"
	"testing"
)

// TestEveryWriteIsInTheAudit with who, in which request and why; reads and refused writes are not.
func TestEveryWriteIsInTheAudit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	writes := r.writes(t)
	before := r.count(t, "SELECT COUNT(*) FROM audit")
	actions := map[string]string{
		"queue": "queue.create", "task": "task.submit", "task cancel": "task.cancel", "subscription": "subscription.create",
		"subscription configure": "subscription.configure", "delivery retry": "delivery.retry",
		"schedule": "schedule.create", "schedule update": "schedule.update", "schedule publish": "schedule.publish",
		"schedule pause": "schedule.pause", "schedule resume": "schedule.resume",
		"subscription retire": "subscription.retire", "queue retire": "queue.retire",
	}
	for name, q := range writes {
		res := r.do(t, q)
		text, _ := res.resource(t, resourceOf(name))
		entry := string(r.get(t, "/v1/audit?limit=1").ok(t, 200).list(t).Items[0])
		for member, want := range map[string]string{
			"action": actions[name], "resource_kind": resourceOf(name), "resource_id": field(t, text, "id"),
			"request_id": res.RequestID, "credential_id": r.tenant.CredentialID.String(),
		} {
			if got := field(t, entry, member); got != want {
				t.Errorf("%s: %s is %s, want %s", name, member, got, want)
			}
		}
		if reason := field(t, entry, "detail", "reason"); (reason == "r") != (name != resourceOf(name)) {
			t.Errorf("%s: reason %s", name, reason)
		}
		r.do(t, request{method: q.method, path: q.path, body: q.body}) // refused, or a task more
	}
	r.get(t, "/v1/queues").ok(t, 200)
	if n := r.count(t, "SELECT COUNT(*) FROM audit") - before; n != len(writes)+1 {
		t.Errorf("%d rows for %d writes and the second task", n, len(writes))
	}
}

func TestListAuditPagesNewestFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 4 {
		r.post(t, "/v1/queues", fmt.Sprintf(`{"name":"q%d"}`, i)).ok(t, 201)
	}
	r.do(t, request{method: "POST", path: "/v1/queues", token: r.Tenant(t).Token, body: `{"name":"elsewhere"}`}).ok(t, 201)
	all := r.walk(t, "/v1/audit?limit=100")
	sorted := slices.Clone(all)
	slices.Sort(sorted)
	slices.Reverse(sorted)
	if len(all) != 5 || !slices.Equal(all, sorted) { // bootstrap and four queues
		t.Errorf("listed %v", all)
	}
	for _, limit := range []int{1, 2, 4, 5, 6} {
		if got := r.walk(t, fmt.Sprintf("/v1/audit?limit=%d", limit)); !slices.Equal(got, all) {
			t.Errorf("limit %d: %v, want %v", limit, got, all)
		}
	}
}
