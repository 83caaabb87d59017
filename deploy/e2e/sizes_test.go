package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/inbox"
)

// exactly is a JSON value of so many bytes, with what a re-encoding would change in it.
func exactly(n int) json.RawMessage {
	head, tail := `{"b":1.0,"a":9007199254740993,"é":"`, `"}`
	fill := n - len(head) - len(tail)
	return json.RawMessage(head + strings.Repeat("é", fill/2) + strings.Repeat("x", fill%2) + tail)
}

// E3, R8.2: an input and a result of the largest size pass whole through worker, log, event, consumer and
// inbox, byte for byte; one byte more is refused at the door with the limit named, and as a result it fails
// the task for good, though attempts are left.
func TestTheLargestValuesPassWhole(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q, err := f.client.CreateQueue(ctx, orbit.NewKey(), orbit.CreateQueueRequest{Name: "sizes"})
	if err != nil {
		t.Fatal(err)
	}
	sub, err := f.client.CreateSubscription(ctx, orbit.NewKey(), orbit.CreateSubscriptionRequest{Name: "sizes", QueueID: q.Queue.ID})
	if err != nil {
		t.Fatal(err)
	}
	box, err := inbox.New(f.db, inbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := box.EnsureTable(ctx); err != nil {
		t.Fatal(err)
	}
	submit := func(input json.RawMessage) (string, error) {
		out, err := f.client.SubmitTask(ctx, orbit.NewKey(), orbit.SubmitTaskRequest{QueueID: q.Queue.ID, Input: input, RetrySafety: orbit.Safe})
		if err != nil {
			return "", err
		}
		return out.Task.ID, nil
	}
	var refused *orbit.Error
	if _, err := submit(exactly(262_145)); !errors.As(err, &refused) || refused.Code != orbit.ErrInvalidArgument || !strings.Contains(refused.Message, "input") || !strings.Contains(refused.Message, "262144") {
		t.Errorf("262 145 bytes of input: %v", err)
	}
	want := map[string]json.RawMessage{} // by task
	for _, n := range []int{65_535, 65_536, 262_143, 262_144} {
		id, err := submit(exactly(n))
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		want[id] = exactly(n)
	}
	tooLarge, err := submit(json.RawMessage(`"too large a result"`))
	if err != nil {
		t.Fatal(err)
	}

	var parts sync.WaitGroup
	defer parts.Wait()
	run, stop := context.WithCancel(ctx)
	defer stop()
	w := orbit.Worker{
		URL: f.vars["ORBIT_GATEWAY_URL"], Token: f.vars["ORBIT_TOKEN"], QueueID: q.Queue.ID, Name: "echo", Concurrency: 4,
		Handler: func(_ context.Context, a *orbit.Assignment) (json.RawMessage, error) {
			if a.Task.ID == tooLarge {
				return exactly(262_145), nil
			}
			if in, ok := want[a.Task.ID]; !ok || string(a.Task.Input) != string(in) {
				return nil, orbit.Permanent(fmt.Errorf("the input has %d bytes and is not what was submitted", len(a.Task.Input)))
			}
			return a.Task.Input, nil
		},
	}
	parts.Go(func() {
		if err := w.Run(run); err != nil {
			t.Error(err)
		}
	})
	acked := make(chan string, 10)
	c := orbit.Consumer{
		URL: f.vars["ORBIT_GATEWAY_URL"], Token: f.vars["ORBIT_TOKEN"], SubscriptionID: sub.Subscription.ID, Concurrency: 4,
		Handler: func(ctx context.Context, d *orbit.Delivery) error {
			_, err := box.Process(ctx, d, func(context.Context, *sql.Tx) error { return nil })
			return err
		},
		OnAck: func(a orbit.AckResult) { acked <- a.EventID },
	}
	parts.Go(func() {
		if err := c.Run(run); err != nil {
			t.Error(err)
		}
	})
	for range len(want) + 1 {
		select {
		case <-acked:
		case <-ctx.Done():
			t.Fatal("not every event was acknowledged")
		}
	}
	for id, value := range want {
		task, err := f.client.GetTask(ctx, id)
		if err != nil || task.State != "SUCCEEDED" || string(task.Result) != string(value) || string(task.Input) != string(value) {
			t.Errorf("%d bytes: task %s, input %d, result %d, %v", len(value), task.State, len(task.Input), len(task.Result), err)
		}
		for _, table := range []struct{ name, query string }{
			{"log", "SELECT snapshot FROM result_events WHERE aggregate_id = UNHEX(?)"},
			{"inbox", "SELECT event FROM orbit_inbox WHERE task_id = UNHEX(?)"},
		} {
			var text string
			if err := f.db.QueryRowContext(ctx, table.query, id).Scan(&text); err != nil || !strings.Contains(text, `"result":`+string(value)) {
				t.Errorf("%d bytes are not whole in the %s (%d bytes, %v)", len(value), table.name, len(text), err)
			}
		}
	}
	task, err := f.client.GetTask(ctx, tooLarge)
	if err != nil || task.State != "FAILED" || task.Attempts != 1 || task.Error == nil || task.Error.Code != "RESULT_TOO_LARGE" || !strings.Contains(task.Error.Message, "262144") {
		t.Errorf("262 145 bytes of result: %+v, %v", task, err)
	}
}
