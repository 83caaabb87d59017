package orbittest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/orbittest"
)

func subscriptions(t *testing.T, e orbittest.Endpoint) {
	queue, c, ctx := e.NewQueue(t), e.Client(t), t.Context()
	e.Results(t, queue, `1`)
	name := "s-" + orbit.NewID()
	s := must[*orbit.SubscriptionResult](t)(c.CreateSubscription(ctx, orbit.NewKey(), orbit.CreateSubscriptionRequest{Name: name, QueueID: queue})).Subscription
	if s.Name != name || s.Revision != "1" || !s.Enabled || s.MaxPending != 100 || s.MaxAttempts != 20 || s.PendingCount != 0 || s.QueueID != queue ||
		strings.Join(s.Types, " ") != "task.cancelled task.failed task.needs_review task.succeeded" {
		t.Errorf("defaults %+v", s)
	}
	create := func(change func(*orbit.CreateSubscriptionRequest)) error {
		r := orbit.CreateSubscriptionRequest{Name: "s-" + orbit.NewID(), QueueID: queue}
		change(&r)
		_, err := c.CreateSubscription(ctx, orbit.NewKey(), r)
		return err
	}
	want(t, "a name in use", create(func(r *orbit.CreateSubscriptionRequest) { r.Name = name }), orbit.ErrStateConflict)
	want(t, "above the head", create(func(r *orbit.CreateSubscriptionRequest) { r.FromSequence = "18446744073709551615" }), orbit.ErrInvalidArgument)
	want(t, "a leading zero", create(func(r *orbit.CreateSubscriptionRequest) { r.FromSequence = "00" }), orbit.ErrInvalidArgument)
	want(t, "a type twice", create(func(r *orbit.CreateSubscriptionRequest) { r.Types = []string{orbit.TaskFailed, orbit.TaskFailed} }), orbit.ErrInvalidArgument)
	want(t, "requeued", create(func(r *orbit.CreateSubscriptionRequest) { r.Types = []string{"task.requeued"} }), orbit.ErrInvalidArgument)
	want(t, "max_pending 1001", create(func(r *orbit.CreateSubscriptionRequest) { r.MaxPending = 1001 }), orbit.ErrInvalidArgument)
	want(t, "max_attempts 101", create(func(r *orbit.CreateSubscriptionRequest) { r.MaxAttempts = 101 }), orbit.ErrInvalidArgument)
	want(t, "no such queue", create(func(r *orbit.CreateSubscriptionRequest) { r.QueueID = orbit.NewID() }), orbit.ErrNotFound)
	second := e.NewSubscription(t, queue, func(r *orbit.CreateSubscriptionRequest) { r.Types = []string{orbit.TaskSucceeded, orbit.TaskFailed} })
	if got := must[*orbit.Subscription](t)(c.GetSubscription(ctx, second)); strings.Join(got.Types, " ") != "task.failed task.succeeded" {
		t.Errorf("types %v", got.Types)
	}
	var ids []string
	for s, err := range c.AllSubscriptions(ctx, orbit.ListSubscriptionsRequest{QueueID: queue, Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
	}
	if !slices.Equal(ids, []string{second, s.ID}) {
		t.Errorf("listed %v, want %v", ids, []string{second, s.ID})
	}
	_, err := c.GetSubscription(ctx, orbit.NewID())
	want(t, "a missing one", err, orbit.ErrNotFound)
	_, err = c.ListSubscriptions(ctx, orbit.ListSubscriptionsRequest{})
	want(t, "a list without a queue", err, orbit.ErrInvalidArgument)
}

func deliveries(t *testing.T, e orbittest.Endpoint) {
	queue, c, ctx := e.NewQueue(t), e.Client(t), soon(t)
	sub := e.NewSubscription(t, queue, nil)
	ids := e.Results(t, queue, exact, `2`, `3`)
	one := dial(t, e, sub, 2, "generation", "unknown")
	if w := one.Welcome; w.SubscriptionID != sub || w.Capacity != 2 || !w.Enabled || w.LeaseDuration != 30*time.Second || w.Generation == "" {
		t.Errorf("welcome %+v", w)
	}
	a, b := must[*orbit.Delivery](t)(one.Receive(ctx)), must[*orbit.Delivery](t)(one.Receive(ctx))
	if a.Revision != "2" || a.LeaseEpoch != "1" || a.Attempts != 1 || a.AttemptBudget != 20 || a.State != orbit.DeliveryLeased || a.LeaseUntil == nil || a.Event.Type != orbit.TaskSucceeded {
		t.Errorf("delivery %+v", a.EventDelivery)
	}
	if s := a.Event.Snapshot; !slices.Contains(ids, s.TaskID) || s.QueueID != queue || s.State != orbit.TaskStateSucceeded || s.Revision != "3" || s.CurrentAttemptID == "" {
		t.Errorf("snapshot %+v", s)
	}
	other := dial(t, e, sub, 1) // another connection competes: the first is full
	third := must[*orbit.Delivery](t)(other.Receive(ctx))
	if third.ID == a.ID || third.ID == b.ID {
		t.Error("one delivery was leased twice")
	}
	first := must[orbit.AckResult](t)(one.Ack(ctx, a.Proof()))
	if first.Deduplicated || first.EventID != a.EventID || first.Epoch != "1" {
		t.Errorf("acked %+v", first)
	}
	for _, conn := range []*orbit.EventConn{one, other} { // the answer was lost: report again, anywhere
		again := must[orbit.AckResult](t)(conn.Ack(ctx, a.Proof()))
		if !again.Deduplicated || !again.AcknowledgedAt.Equal(first.AcknowledgedAt) {
			t.Errorf("acked again %+v", again)
		}
	}
	forged := b.Proof()
	forged.LeaseSecret = third.LeaseSecret
	_, err := one.Ack(ctx, forged)
	want(t, "another's secret", err, orbit.ErrDeliveryLeaseLost)
	items := must[[]orbit.AckItem](t)(one.AckBatch(ctx, []orbit.Proof{b.Proof(), forged, a.Proof(), third.Proof()}))
	if items[0].Err != nil || items[0].Deduplicated || !errors.Is(items[1].Err, orbit.ErrDeliveryLeaseLost) || items[1].DeliveryID != b.ID || !items[2].Deduplicated || items[3].Err != nil {
		t.Errorf("batch %+v", items)
	}
	if s := must[*orbit.Subscription](t)(c.GetSubscription(ctx, sub)); s.PendingCount != 0 || s.Revision != "1" {
		t.Errorf("after all acks %+v", s)
	}
	unknown := a.Proof()
	unknown.DeliveryID = orbit.NewID()
	_, err = other.Ack(ctx, unknown)
	want(t, "an unknown delivery", err, orbit.ErrNotFound)
	_, err = other.Receive(ctx)
	var closed *orbit.CloseError
	if !errors.As(err, &closed) || closed.Code != orbit.CloseNotFound || closed.Reconnect() {
		t.Errorf("then it ended with %v", err)
	}
	if err := one.Drain(ctx); err != nil {
		t.Error(err)
	}
	if pong := must[orbit.EventPong](t)(one.Ping(ctx)); !pong.Enabled || pong.ServerTime.IsZero() {
		t.Errorf("pong %+v", pong)
	}
}

func leaseExtensions(t *testing.T, e orbittest.Endpoint) {
	queue, c, ctx := e.NewQueue(t), e.Client(t), soon(t)
	sub := e.NewSubscription(t, queue, nil)
	e.Results(t, queue, `1`)
	conn := dial(t, e, sub, 1)
	d := must[*orbit.Delivery](t)(conn.Receive(ctx))
	if until := must[time.Time](t)(conn.Extend(ctx, d.Proof())); !until.After(*d.LeaseUntil) {
		t.Errorf("extended to %s from %s", until, d.LeaseUntil)
	}
	if err := conn.Release(ctx, d.Proof(), 0, true); err != nil {
		t.Fatal(err)
	}
	again := must[*orbit.Delivery](t)(conn.Receive(ctx))
	if again.ID != d.ID || again.LeaseEpoch != "2" || again.Attempts != 1 {
		t.Errorf("after a refund %+v", again.EventDelivery)
	}
	_, err := conn.Extend(ctx, d.Proof())
	want(t, "extend with the old proof", err, orbit.ErrDeliveryLeaseLost)
	_, err = conn.Ack(ctx, d.Proof())
	want(t, "ack with the old proof", err, orbit.ErrDeliveryLeaseLost)
	if err := conn.Release(ctx, again.Proof(), time.Hour, false); err != nil { // cut to 15 min
		t.Fatal(err)
	}
	got := must[*orbit.EventDeliveryDetail](t)(c.GetEventDelivery(ctx, sub, d.ID)).Delivery
	if got.State != orbit.DeliveryPending || got.Attempts != 1 || time.Until(got.AvailableAt) < 14*time.Minute || got.LeaseUntil != nil {
		t.Errorf("put off %+v", got)
	}
	must[orbit.AckResult](t)(conn.Ack(ctx, again.Proof())) // nobody has a newer one
}

func pause(t *testing.T, e orbittest.Endpoint) {
	queue, c, ctx := e.NewQueue(t), e.Client(t), soon(t)
	sub := e.NewSubscription(t, queue, nil)
	e.Results(t, queue, `1`)
	conn := dial(t, e, sub, 8)
	d := must[*orbit.Delivery](t)(conn.Receive(ctx))
	configure := func(revision orbit.Counter, enabled bool) *orbit.SubscriptionResult {
		return must[*orbit.SubscriptionResult](t)(c.ConfigureSubscription(ctx, sub, orbit.NewKey(), orbit.ConfigureSubscriptionRequest{ExpectedRevision: revision, Enabled: enabled, Reason: "r"}))
	}
	if s := configure("1", false).Subscription; s.Enabled || s.Revision != "2" || s.PendingCount != 1 {
		t.Errorf("paused %+v", s)
	}
	orbittest.Await(t, "the pause has reached the gateway", func() bool { return !must[orbit.EventPong](t)(conn.Ping(ctx)).Enabled })
	e.Results(t, queue, `2`)
	must[orbit.AckResult](t)(conn.Ack(ctx, d.Proof()))
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if d, err := conn.Receive(short); err == nil {
		t.Errorf("delivered while paused: %+v", d.EventDelivery)
	}
	if s := configure("2", true).Subscription; !s.Enabled || s.Revision != "3" {
		t.Errorf("resumed %+v", s)
	}
	must[orbit.AckResult](t)(conn.Ack(ctx, must[*orbit.Delivery](t)(conn.Receive(ctx)).Proof()))
}

func history(t *testing.T, e orbittest.Endpoint) {
	queue, c, ctx := e.NewQueue(t), e.Client(t), soon(t)
	sub := e.NewSubscription(t, queue, func(r *orbit.CreateSubscriptionRequest) { r.MaxAttempts = 1 })
	e.Results(t, queue, exact, `2`)
	conn := dial(t, e, sub, 2)
	a, b := must[*orbit.Delivery](t)(conn.Receive(ctx)), must[*orbit.Delivery](t)(conn.Receive(ctx))
	must[orbit.AckResult](t)(conn.Ack(ctx, a.Proof()))
	retry := func(revision orbit.Counter, more int) error {
		_, err := c.RetryEventDelivery(ctx, sub, b.ID, orbit.NewKey(), orbit.RetryEventDeliveryRequest{ExpectedRevision: revision, Reason: "r", AdditionalAttempts: more})
		return err
	}
	want(t, "retry of a leased one", retry("2", 1), orbit.ErrStateConflict)
	if err := conn.Release(ctx, b.Proof(), 0, false); err != nil {
		t.Fatal(err)
	}
	list := func(state orbit.DeliveryState) (ids []string) {
		for d, err := range c.AllEventDeliveries(ctx, sub, orbit.ListEventDeliveriesRequest{State: state, Limit: 1}) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, d.ID)
		}
		return ids
	}
	if all, acked, expired := list(""), list(orbit.DeliveryAcked), list(orbit.DeliveryExpired); len(all) != 2 || !slices.Equal(acked, []string{a.ID}) || !slices.Equal(expired, []string{b.ID}) || len(list(orbit.DeliveryPending)) != 0 {
		t.Errorf("all %v, acked %v, expired %v", all, acked, expired)
	}
	detail := must[*orbit.EventDeliveryDetail](t)(c.GetEventDelivery(ctx, sub, b.ID))
	if string(detail.RawEvent) != string(b.RawEvent) || detail.Delivery.State != orbit.DeliveryExpired || detail.Delivery.Revision != "3" || detail.Delivery.Attempts != 1 {
		t.Errorf("detail %+v\n got %s\nwant %s", detail.Delivery, detail.RawEvent, b.RawEvent)
	}
	want(t, "an old revision", retry("2", 1), orbit.ErrStateConflict)
	want(t, "no more attempts", retry("3", 0), orbit.ErrInvalidArgument)
	want(t, "101 more", retry("3", 101), orbit.ErrInvalidArgument)
	want(t, "two more", retry("3", 2), nil)
	again := must[*orbit.Delivery](t)(conn.Receive(ctx))
	if again.ID != b.ID || again.Attempts != 2 || again.AttemptBudget != 3 || again.LeaseEpoch != "2" {
		t.Errorf("again %+v", again.EventDelivery)
	}
	must[orbit.AckResult](t)(conn.Ack(ctx, again.Proof()))
	_, err := c.GetEventDelivery(ctx, sub, orbit.NewID())
	want(t, "a missing delivery", err, orbit.ErrNotFound)
}

func doors(t *testing.T, e orbittest.Endpoint) {
	ctx := soon(t)
	sub := e.NewSubscription(t, e.NewQueue(t), nil)
	forged := "orbit_" + orbit.NewID() + "_" + strings.Repeat("A", 43)
	_, err := orbit.DialEvents(ctx, orbit.EventOptions{URL: e.GatewayURL, Token: forged, SubscriptionID: sub})
	var refused *orbit.Error
	if !errors.As(err, &refused) || refused.Code != orbit.ErrUnauthenticated || refused.HTTPStatus != 401 || refused.RequestID == "" {
		t.Errorf("a forged token: %v", err)
	}
	_, err = orbit.DialWorker(ctx, orbit.WorkerOptions{URL: e.GatewayURL, Token: e.Token, QueueID: orbit.NewID(), Name: "w"})
	want(t, "no such queue", err, orbit.ErrNotFound)
	_, err = orbit.DialEvents(ctx, orbit.EventOptions{URL: e.GatewayURL, Token: e.Token, SubscriptionID: orbit.NewID()})
	want(t, "no such subscription", err, orbit.ErrNotFound)
	_, err = orbit.DialWorker(ctx, orbit.WorkerOptions{URL: e.GatewayURL, Token: e.Token, QueueID: e.QueueID, Name: "a b"})
	want(t, "a bad name", err, orbit.ErrInvalidArgument)
	client := must[*orbit.Client](t)(orbit.NewClient(e.ManagementURL, forged))
	defer client.Close()
	_, err = client.GetQueue(ctx, e.QueueID)
	want(t, "a forged token over HTTP", err, orbit.ErrUnauthenticated)
	err = orbit.Consumer{URL: e.GatewayURL, Token: forged, SubscriptionID: sub, Handler: func(context.Context, *orbit.Delivery) error { return nil }}.Run(ctx)
	var stopped *orbit.StopError
	if !errors.As(err, &stopped) || !errors.Is(err, orbit.ErrUnauthenticated) {
		t.Errorf("a consumer's Run ended with %v", err)
	}
}

// consumer is E2: byte for byte from the task's input to the receiver's handler, over everything between.
func consumer(t *testing.T, e orbittest.Endpoint) {
	queue := e.NewQueue(t)
	sub := e.NewSubscription(t, queue, func(r *orbit.CreateSubscriptionRequest) { r.FromSequence = "0" })
	inputs := []string{exact}
	for range 99 {
		inputs = append(inputs, `1.0`)
	}
	e.Results(t, queue, inputs...)
	ctx, stop := context.WithCancel(soon(t))
	var mu sync.Mutex
	results, acks := map[string]string{}, 0
	err := orbit.Consumer{URL: e.GatewayURL, Token: e.Token, SubscriptionID: sub, Concurrency: 16,
		Handler: func(_ context.Context, d *orbit.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			results[d.Event.ID] = string(d.Event.Snapshot.Result)
			return nil
		},
		OnAck: func(orbit.AckResult) {
			mu.Lock()
			defer mu.Unlock()
			if acks++; acks == len(inputs) {
				stop()
			}
		}}.Run(ctx)
	want(t, "Run", err, nil)
	whole := 0
	for _, result := range results {
		if result == exact {
			whole++
		} else if result != `1.0` {
			t.Errorf("a result arrived as %s", result)
		}
	}
	if len(results) != len(inputs) || whole != 1 {
		t.Errorf("%d results, %d of them %s", len(results), whole, exact)
	}
	if s := must[*orbit.Subscription](t)(e.Client(t).GetSubscription(t.Context(), sub)); s.PendingCount != 0 {
		t.Errorf("%d are not acknowledged", s.PendingCount)
	}
}
