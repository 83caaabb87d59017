package orbit_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/inbox"
)

// These stand for what an application keeps.
var (
	client *orbit.Client
	db     *sql.DB

	queueID, subscriptionID, key, pauseKey      string
	stableOperationKey, stableQueueOperationKey string
)

func ExampleClient_CreateSubscription() {
	_ = func(ctx context.Context) error {
		created, err := client.CreateSubscription(ctx, key, orbit.CreateSubscriptionRequest{
			Name:        "object-results",
			QueueID:     queueID,
			MaxPending:  100,
			MaxAttempts: 20,
		})
		if err != nil {
			return err
		}
		current, err := client.GetSubscription(ctx, created.Subscription.ID)
		if err != nil {
			return err
		}
		_, err = client.ConfigureSubscription(ctx, current.ID, pauseKey, orbit.ConfigureSubscriptionRequest{
			ExpectedRevision: current.Revision,
			Enabled:          false,
			Reason:           "receiver maintenance",
		})
		return err
	}
}

func ExampleClient_RetireSubscription() {
	_ = func(ctx context.Context) error {
		sub, err := client.GetSubscription(ctx, subscriptionID)
		if err != nil {
			return err
		}
		// 实际服务应把 key 和请求持久保存，未知回执重放原内容。
		retire := orbit.RetireResourceRequest{
			ExpectedRevision: sub.Revision,
			Reason:           "临时资源已经结清",
		}
		_, err = client.RetireSubscription(ctx, subscriptionID, stableOperationKey, retire)
		if err != nil {
			return err
		} // RESOURCE_BUSY 时先排空/核查，不能跳过结果。

		queue, err := client.GetQueue(ctx, queueID)
		if err != nil {
			return err
		}
		_, err = client.RetireQueue(ctx, queueID, stableQueueOperationKey,
			orbit.RetireResourceRequest{ExpectedRevision: queue.Revision, Reason: "停止使用队列"})
		return err
	}
}

func ExampleClient_SubmitTask() {
	_ = func(ctx context.Context) error {
		done, err := client.SubmitTask(ctx, key, orbit.SubmitTaskRequest{
			QueueID: queueID, Input: json.RawMessage(`{"order": 9007199254740993}`), RetrySafety: orbit.Safe})
		if errors.Is(err, orbit.ErrCapacityExceeded) {
			return fmt.Errorf("try later: %w", err)
		}
		if err != nil {
			return err
		}
		_, err = client.CancelTask(ctx, done.Task.ID, orbit.NewKey(), orbit.CancelTaskRequest{ExpectedRevision: "3", Reason: "no longer needed"})
		return err
	}
}

func ExampleConsumer() {
	_ = func() error {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		box, err := inbox.New(db, inbox.Options{})
		if err != nil {
			return err
		}
		return orbit.Consumer{
			URL: "https://orbit.example.com", Token: os.Getenv("ORBIT_TOKEN"), SubscriptionID: subscriptionID, Concurrency: 8,
			Handler: box.Handler(func(ctx context.Context, tx *sql.Tx, d *orbit.Delivery) error {
				_, err := tx.ExecContext(ctx, "UPDATE orders SET state = ? WHERE task_id = ?", d.Event.Type, d.Event.AggregateID)
				return err
			}),
		}.Run(ctx)
	}
}

func ExampleWorker() {
	_ = func(ctx context.Context) error {
		return orbit.Worker{
			URL: "https://orbit.example.com", Token: os.Getenv("ORBIT_TOKEN"), QueueID: queueID, Concurrency: 4,
			Handler: func(_ context.Context, a *orbit.Assignment) (json.RawMessage, error) {
				var name string
				if err := json.Unmarshal(a.Task.Input, &name); err != nil {
					return nil, orbit.Permanent(err)
				}
				return json.Marshal(strings.ToUpper(name))
			},
			OnError: func(e orbit.AttemptError) { log.Print(e) },
		}.Run(ctx)
	}
}

func ExampleDialEvents() {
	_ = func(ctx context.Context) error {
		conn, err := orbit.DialEvents(ctx, orbit.EventOptions{
			URL: "https://orbit.example.com", Token: os.Getenv("ORBIT_TOKEN"), SubscriptionID: subscriptionID, Capacity: 1})
		if err != nil {
			return err
		}
		defer conn.Close()
		d, err := conn.Receive(ctx)
		if err != nil {
			return err
		}
		// … save d.RawEvent under d.Event.ID, commit, and only then:
		_, err = conn.Ack(ctx, d.Proof())
		return err
	}
}
