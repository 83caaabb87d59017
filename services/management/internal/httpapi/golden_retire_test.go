package httpapi

import (
	"context"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

// documentRetire is the body in the user's document on retirement.
const documentRetire = `{"expected_revision":"3","reason":"临时资源已结清，结束使用"}`

// retirement plays the user's document on retirement on a queue and a subscription of its own, which
// the files show under the same ids as those before.
func (g *golden) retirement(t *testing.T) {
	t.Helper()
	text, _ := g.rig.post(t, "/v1/queues", `{"name": "temporary"}`).ok(t, 201).resource(t, "queue")
	queue := g.knows(field(t, text, "id"), goldQueue)
	sub := g.knows(g.subscribe(t, `{"name": "temporary-results", "queue_id": "`+queue+`"}`), goldSubscription)
	for _, revision := range []string{"1", "2"} { // to the revision in the document
		g.rig.post(t, "/v1/queues/"+queue+":configure", `{"expected_revision": "`+revision+`", "reason": "r", "paused": false}`).ok(t, 200)
		g.rig.post(t, "/v1/subscriptions/"+sub+":configure", `{"expected_revision": "`+revision+`", "reason": "r", "enabled": true}`).ok(t, 200)
	}
	tenant := g.tenant
	tenant.QueueID = mustID(t, queue)
	g.Submit(t, tenant, `1`)
	retireQueue := request{method: "POST", path: "/v1/queues/" + queue + ":retire", body: documentRetire}
	g.do(t, "error_resource_busy", retireQueue).want(t, 409, "RESOURCE_BUSY", "queue "+queue+" still has 1 QUEUED task, 1 subscription that is not retired;")
	for _, a := range g.Claim(t, tenant, 1) {
		g.Complete(t, tenant, a, `1`)
	}
	retireSub := request{method: "POST", path: "/v1/subscriptions/" + sub + ":retire", body: documentRetire}
	g.rig.do(t, retireSub).want(t, 409, "RESOURCE_BUSY", "subscription "+sub+" still has 1 event of its queue and types up to sequence ")
	g.consume(t, tenant, mustID(t, sub))
	g.do(t, "retire_subscription", retireSub).ok(t, 200)
	g.do(t, "get_retired_subscription", request{method: "GET", path: "/v1/subscriptions/" + sub}).ok(t, 200)
	g.do(t, "retire_queue", retireQueue).ok(t, 200)
	g.do(t, "get_retired_queue", request{method: "GET", path: "/v1/queues/" + queue}).ok(t, 200)
	g.do(t, "error_resource_retired", retireQueue).want(t, 409, "RESOURCE_RETIRED", "queue "+queue+" was retired at ")
}

// consume takes and acknowledges all that a subscription has.
func (r *rig) consume(t *testing.T, tenant storetest.Tenant, sub ids.ID) {
	t.Helper()
	for {
		claimed := r.claim(t, sub, 32)
		if len(claimed) == 0 {
			return
		}
		commands := make([]delivery.Command, len(claimed))
		for i, c := range claimed {
			commands[i] = delivery.Command{Kind: delivery.Ack, Proof: delivery.Proof{DeliveryID: c.Delivery.ID, Epoch: c.Delivery.LeaseEpoch, Digest: c.Secret.Digest()}}
		}
		if _, _, err := r.Gateway.SettleDeliveries(context.Background(), tenant.NamespaceID, sub, tenant.CredentialID, commands, nil); err != nil {
			t.Fatal(err)
		}
	}
}
