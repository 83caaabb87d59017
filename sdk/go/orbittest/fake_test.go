package orbittest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/orbittest"
)

var quick = orbit.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond}

// Answers are lost, connections cut and leases lapsed at random moments; every event has one effect.
func TestFakeMisbehaves(t *testing.T) {
	t.Parallel()
	fake := orbittest.NewFake(t, orbittest.FakeOptions{DeliveryLease: 2 * time.Second}) // what a cut connection had not read comes again then
	queue := fake.NewQueue(t)
	sub := fake.NewSubscription(t, queue, nil)
	inputs := make([]string, 300)
	for i := range inputs {
		inputs[i] = fmt.Sprint(i)
	}
	var mu sync.Mutex
	inbox, repeated, acks, again := map[string]bool{}, 0, map[string]bool{}, 0
	stop := background(t, orbit.Consumer{URL: fake.GatewayURL, Token: fake.Token, SubscriptionID: sub, Concurrency: 8, Backoff: quick,
		Handler: func(_ context.Context, d *orbit.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if inbox[d.Event.ID] {
				repeated++
			}
			inbox[d.Event.ID] = true
			return nil
		},
		OnAck: func(a orbit.AckResult) {
			mu.Lock()
			defer mu.Unlock()
			acks[a.EventID] = true
			if a.Deduplicated {
				again++
			}
		}}.Run)
	fake.LoseAcks(5)
	fake.Results(t, queue, inputs...)
	for i, code := range []int{orbit.CloseServiceRestart, orbit.CloseAbnormal, orbit.CloseTryAgainLater, orbit.CloseAbnormal} {
		fake.LapseLeases()
		fake.Disconnect(code)
		fake.LoseAcks(2)
		fake.Results(t, queue, inputs[:10*(i+1)]...)
	}
	orbittest.Await(t, "everything is acknowledged", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(acks) == len(inputs)+100
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	if len(inbox) != len(inputs)+100 || again == 0 {
		t.Errorf("%d events, %d acknowledged again", len(inbox), again)
	}
	if s := must[*orbit.Subscription](t)(fake.Client(t).GetSubscription(t.Context(), sub)); s.PendingCount != 0 {
		t.Errorf("%d are open", s.PendingCount)
	}
	t.Logf("%d received again, %d acknowledged again", repeated, again)
}

func TestFakeLevers(t *testing.T) {
	t.Parallel()
	fake := orbittest.NewFake(t, orbittest.FakeOptions{})
	fake.Unavailable(2)
	client := fake.Client(t, orbit.WithRetry(3, quick))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := client.GetQueue(ctx, fake.QueueID); err != nil { // waits twice for Retry-After: 1
		t.Error(err)
	}
	sub := fake.NewSubscription(t, fake.QueueID, nil)
	fake.Results(t, fake.QueueID, `1`)
	conn := dial(t, fake.Endpoint, sub, 1)
	first := must[*orbit.Delivery](t)(conn.Receive(ctx))
	fake.LapseLeases()
	second := must[*orbit.Delivery](t)(conn.Receive(ctx))
	if second.ID != first.ID || second.LeaseEpoch != "2" || second.Attempts != 2 {
		t.Errorf("after a lapse %+v", second.EventDelivery)
	}
	if n := fake.Connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
	run := make(chan error, 1)
	go func() {
		run <- orbit.Consumer{URL: fake.GatewayURL, Token: fake.Token, SubscriptionID: sub, Handler: func(context.Context, *orbit.Delivery) error { return nil }}.Run(ctx)
	}()
	orbittest.Await(t, "both are connected", func() bool { return fake.Connections() == 2 })
	fake.Revoke()
	var stopped *orbit.StopError
	if err := <-run; !errors.As(err, &stopped) || !errors.Is(err, orbit.ErrUnauthenticated) {
		t.Errorf("after the revocation Run ended with %v", err)
	}
	_, err := client.GetQueue(ctx, fake.QueueID)
	want(t, "HTTP after the revocation", err, orbit.ErrUnauthenticated)
	fake.Close()
	fake.Close() // the test's end closes it once more
}

// retirement is as in §7 and the user's document.
func retirement(t *testing.T, e orbittest.Endpoint) {
	c, ctx, queue := e.Client(t), soon(t), e.NewQueue(t)
	sub := e.NewSubscription(t, queue, nil)
	e.Results(t, queue, `1`)
	retire := orbit.RetireResourceRequest{ExpectedRevision: "1", Reason: "临时资源已结清，结束使用"}
	_, err := c.RetireSubscription(ctx, sub, orbit.NewKey(), retire)
	want(t, "an event is left", err, orbit.ErrResourceBusy)
	conn := dial(t, e, sub, 1)
	must[orbit.AckResult](t)(conn.Ack(ctx, must[*orbit.Delivery](t)(conn.Receive(ctx)).Proof()))
	_, err = c.RetireQueue(ctx, queue, orbit.NewKey(), retire)
	want(t, "a subscription is left", err, orbit.ErrResourceBusy)
	key := orbit.NewKey()
	s := must[*orbit.SubscriptionResult](t)(c.RetireSubscription(ctx, sub, key, retire)).Subscription
	if s.Enabled || s.RetiredAt == nil || s.RetiredSequence == "" || s.RetiredSequence != s.CursorSequence || s.Revision != "2" {
		t.Errorf("retired %+v", s)
	}
	if again := must[*orbit.SubscriptionResult](t)(c.RetireSubscription(ctx, sub, key, retire)); !again.Deduplicated {
		t.Errorf("the same key: %+v", again)
	}
	_, err = c.ConfigureSubscription(ctx, sub, orbit.NewKey(), orbit.ConfigureSubscriptionRequest{ExpectedRevision: "2", Enabled: true, Reason: "r"})
	want(t, "configure of a retired one", err, orbit.ErrResourceRetired)
	_, err = orbit.DialEvents(ctx, orbit.EventOptions{URL: e.GatewayURL, Token: e.Token, SubscriptionID: sub})
	want(t, "connect to a retired one", err, orbit.ErrResourceRetired)
	q := must[*orbit.QueueResult](t)(c.RetireQueue(ctx, queue, orbit.NewKey(), retire)).Queue
	if !q.Paused || q.RetiredAt == nil || q.Revision != "2" {
		t.Errorf("retired %+v", q)
	}
	_, err = c.SubmitTask(ctx, orbit.NewKey(), orbit.SubmitTaskRequest{QueueID: queue, Input: []byte(`1`)})
	want(t, "submit to a retired queue", err, orbit.ErrResourceRetired)
	_, err = orbit.DialWorker(ctx, orbit.WorkerOptions{URL: e.GatewayURL, Token: e.Token, QueueID: queue, Name: "w"})
	want(t, "work for a retired queue", err, orbit.ErrResourceRetired)
}
