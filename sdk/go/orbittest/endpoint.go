package orbittest

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// Endpoint is where an Orbit is and as whom to speak to it. The credential may do everything in its
// namespace, which holds one queue to begin with.
type Endpoint struct {
	ManagementURL string // for orbit.NewClient
	GatewayURL    string // for orbit.Consumer and orbit.Worker
	Token         string
	QueueID       string
}

// patience bounds what a helper waits for; a test that needs longer has failed.
const patience = 60 * time.Second

// Client returns a management client that is closed when the test ends.
func (e Endpoint) Client(tb testing.TB, options ...orbit.Option) *orbit.Client {
	tb.Helper()
	client, err := orbit.NewClient(e.ManagementURL, e.Token, options...)
	if err != nil {
		tb.Fatalf("orbittest: %v", err)
	}
	tb.Cleanup(client.Close)
	return client
}

// NewQueue makes a queue with a name of its own and returns its id. A task's lease is the shortest that
// Orbit allows, 5 s, so that lost attempts are found soon.
func (e Endpoint) NewQueue(tb testing.TB) string {
	tb.Helper()
	made, err := e.Client(tb).CreateQueue(tb.Context(), orbit.NewKey(), orbit.CreateQueueRequest{Name: "test-" + orbit.NewID(), LeaseDurationMS: 5000})
	if err != nil {
		tb.Fatalf("orbittest: create a queue: %v", err)
	}
	return made.Queue.ID
}

// NewSubscription makes a subscription to all results that a queue will have from now on, and returns its
// id. change, if not nil, may alter the request.
func (e Endpoint) NewSubscription(tb testing.TB, queueID string, change func(*orbit.CreateSubscriptionRequest)) string {
	tb.Helper()
	r := orbit.CreateSubscriptionRequest{Name: "test-" + orbit.NewID(), QueueID: queueID}
	if change != nil {
		change(&r)
	}
	made, err := e.Client(tb).CreateSubscription(tb.Context(), orbit.NewKey(), r)
	if err != nil {
		tb.Fatalf("orbittest: create a subscription: %v", err)
	}
	return made.Subscription.ID
}

// Submit submits one task per input, as safe to retry, and returns the ids in order.
func (e Endpoint) Submit(tb testing.TB, queueID string, inputs ...string) []string {
	tb.Helper()
	client := e.Client(tb)
	var ids []string
	for len(inputs) > 0 {
		n := min(len(inputs), 500)
		requests := make([]orbit.SubmitTaskRequest, n)
		for i, input := range inputs[:n] {
			requests[i] = orbit.SubmitTaskRequest{QueueID: queueID, Input: json.RawMessage(input), RetrySafety: orbit.Safe}
		}
		inputs = inputs[n:]
		made, err := client.SubmitTasks(tb.Context(), orbit.NewKey(), requests)
		if err != nil {
			tb.Fatalf("orbittest: submit %d tasks: %v", n, err)
		}
		for _, task := range made.Tasks {
			ids = append(ids, task.ID)
		}
	}
	return ids
}

// Work runs a worker on a queue until n outcomes are recorded. handler nil returns each task's input as its
// result.
func (e Endpoint) Work(tb testing.TB, queueID string, n int, handler orbit.TaskHandler) {
	tb.Helper()
	if handler == nil {
		handler = func(_ context.Context, a *orbit.Assignment) (json.RawMessage, error) { return a.Task.Input, nil }
	}
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	var done atomic.Int64
	err := orbit.Worker{URL: e.GatewayURL, Token: e.Token, QueueID: queueID, Name: "orbittest", Concurrency: 64, Handler: handler,
		OnOutcome: func(orbit.OutcomeResult) {
			if done.Add(1) == int64(n) {
				cancel()
			}
		}}.Run(ctx)
	if err != nil || done.Load() < int64(n) {
		tb.Fatalf("orbittest: %d of %d tasks were done: %v", done.Load(), n, err)
	}
}

// Results submits one task per input and has each succeed with its input as the result: n events of a queue.
func (e Endpoint) Results(tb testing.TB, queueID string, inputs ...string) []string {
	tb.Helper()
	ids := e.Submit(tb, queueID, inputs...)
	e.Work(tb, queueID, len(ids), nil)
	return ids
}

// Await calls reached until it returns true, and fails the test after a minute.
func Await(tb testing.TB, what string, reached func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !reached(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("orbittest: timed out: %s", what)
		}
	}
}
