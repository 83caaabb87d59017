package store_test

import (
	"context"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// BenchmarkClaimAck drains a log of events: four sessions of capacity 32, one turn and one settlement
// a round. An op is one delivery.
func BenchmarkClaimAck(b *testing.B) {
	db := storetest.New(b)
	tenant := db.Tenant(b)
	sub := db.Subscribe(b, tenant, subscription.Create{MaxPending: 1000})
	db.AppendEvents(b, tenant, b.N, `{"ok":true}`)
	wants := make([]store.SessionWant, 4)
	for i := range wants {
		wants[i] = store.SessionWant{SessionID: ids.New(), Capacity: delivery.MaxCapacity}
	}
	ctx := context.Background()
	b.ResetTimer()
	for done := 0; done < b.N; {
		turn, err := db.Gateway.ClaimDeliveries(ctx, tenant.NamespaceID, sub, wants)
		if err != nil {
			b.Fatal(err)
		}
		commands := make([]delivery.Command, len(turn.Claimed))
		for i, c := range turn.Claimed {
			commands[i] = delivery.Command{Kind: delivery.Ack, Proof: delivery.Proof{DeliveryID: c.Delivery.ID, Epoch: c.Delivery.LeaseEpoch, Digest: c.Secret.Digest()}}
		}
		if _, _, err := db.Gateway.SettleDeliveries(ctx, tenant.NamespaceID, sub, tenant.CredentialID, commands, nil); err != nil {
			b.Fatal(err)
		}
		done += len(commands)
	}
}

// BenchmarkTask claims and completes ready tasks in batches of 128. An op is one task with its event.
func BenchmarkTask(b *testing.B) {
	db := storetest.New(b)
	tenant := db.Tenant(b)
	db.QueueTasks(b, tenant, b.N)
	ctx := context.Background()
	wants := []store.WorkerWant{{SessionID: ids.New(), Worker: "w", Free: 128}}
	b.ResetTimer()
	for done := 0; done < b.N; {
		claimed, err := db.Gateway.ClaimTasks(ctx, tenant.NamespaceID, tenant.QueueID, wants)
		if err != nil {
			b.Fatal(err)
		}
		outcomes := make([]task.Outcome, len(claimed))
		for i, a := range claimed {
			outcomes[i] = task.Outcome{Kind: task.OutcomeComplete, Proof: storetest.ProofOf(a), Result: strictjson.Raw(`{"ok":true}`)}
		}
		if _, err := db.Gateway.FinishAttempts(ctx, tenant.NamespaceID, tenant.QueueID, outcomes); err != nil {
			b.Fatal(err)
		}
		done += len(claimed)
	}
}
