package orbit_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/inbox"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/orbittest"
)

// These stand for what an application keeps.
var (
	ctx    = context.Background()
	fake   *orbittest.Fake // the examples talk to it instead of a real Orbit
	client *orbit.Client
	db     *sql.DB

	queueID, subscriptionID, key, pauseKey      string
	stableOperationKey, stableQueueOperationKey string
)

// setUp gives an example an Orbit and returns what ends it.
func setUp() (tearDown func()) {
	var err error
	if fake, err = orbittest.OpenFake(orbittest.FakeOptions{}); err != nil {
		panic(err)
	}
	if client, err = orbit.NewClient(fake.ManagementURL, fake.Token); err != nil {
		panic(err)
	}
	queueID, key, pauseKey = fake.QueueID, orbit.NewKey(), orbit.NewKey()
	stableOperationKey, stableQueueOperationKey = orbit.NewKey(), orbit.NewKey()
	return func() {
		client.Close()
		fake.Close()
	}
}

// subscribed makes the example's subscription.
func subscribed() {
	made, err := client.CreateSubscription(ctx, orbit.NewKey(), orbit.CreateSubscriptionRequest{Name: "example", QueueID: queueID})
	if err != nil {
		panic(err)
	}
	subscriptionID = made.Subscription.ID
}

func ExampleClient_CreateSubscription() {
	defer setUp()()
	err := func() error {
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
	}()
	fmt.Println(err)
	// Output: <nil>
}

func ExampleClient_RetireSubscription() {
	defer setUp()()
	subscribed()
	err := func() error {
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
	}()
	fmt.Println(err)
	// Output: <nil>
}

func ExampleClient_SubmitTask() {
	defer setUp()()
	done, err := client.SubmitTask(ctx, key, orbit.SubmitTaskRequest{
		QueueID: queueID, Input: json.RawMessage(`{"order": 9007199254740993}`), RetrySafety: orbit.Safe})
	if errors.Is(err, orbit.ErrCapacityExceeded) {
		fmt.Println("try later with the same key:", err)
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	again, err := client.GetTask(ctx, done.Task.ID)
	fmt.Println(again.State, string(again.Input), err)
	// Output: QUEUED {"order": 9007199254740993} <nil>
}

func ExampleClient_AllTasks() {
	defer setUp()()
	for n := range 3 {
		_, err := client.SubmitTask(ctx, orbit.NewKey(), orbit.SubmitTaskRequest{QueueID: queueID, Input: fmt.Append(nil, n)})
		if err != nil {
			fmt.Println(err)
		}
	}
	n := 0
	for task, err := range client.AllTasks(ctx, orbit.ListTasksRequest{QueueID: queueID, State: orbit.TaskStateQueued}) {
		if err != nil {
			fmt.Println(err)
			break
		}
		n += task.MaxAttempts
	}
	fmt.Println(n)
	// Output: 9
}

// The consumer of the README, with the receiver's own database.
func ExampleConsumer() {
	defer setUp()()
	subscribed()
	defer ordersDatabase()()
	ctx, stop := context.WithCancel(ctx)
	run := func() error {
		box, err := inbox.New(db, inbox.Options{}) // box.Schema() is the CREATE TABLE for your migrations
		if err != nil {
			return err
		}
		return orbit.Consumer{
			URL: os.Getenv("ORBIT_GATEWAY_URL"), Token: os.Getenv("ORBIT_TOKEN"), SubscriptionID: subscriptionID, Concurrency: 8,
			Handler: box.Handler(func(ctx context.Context, tx *sql.Tx, d *orbit.Delivery) error {
				_, err := tx.ExecContext(ctx, "UPDATE orders SET state = ? WHERE task_id = ?", d.Event.Type, d.Event.AggregateID)
				return err
			}),
		}.Run(ctx) // nil after a clean stop; *orbit.StopError when coming back is pointless
	}
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	fmt.Println(ordered())
	stop()
	fmt.Println(<-ended)
	// Output:
	// task.succeeded
	// <nil>
}

// ordersDatabase is the receiver's: its table of orders, and the inbox, both made by its migrations.
func ordersDatabase() (drop func()) {
	_ = os.Setenv("ORBIT_GATEWAY_URL", fake.GatewayURL)
	_ = os.Setenv("ORBIT_TOKEN", fake.Token)
	config, err := mysql.ParseDSN(os.Getenv("ORBIT_TEST_DSN"))
	if err != nil {
		panic(fmt.Errorf("ORBIT_TEST_DSN must name a MariaDB or MySQL server: %w", err))
	}
	name := "orbit_example_" + orbit.NewKey()
	server := must(sql.Open("mysql", config.FormatDSN()))
	server.exec("CREATE DATABASE " + name)
	_ = server.Close()
	config.DBName = name
	orders := must(sql.Open("mysql", config.FormatDSN()))
	orders.exec("CREATE TABLE orders (task_id CHAR(32) PRIMARY KEY, state VARCHAR(64) NOT NULL)")
	db = orders.DB
	box, err := inbox.New(db, inbox.Options{})
	if err != nil {
		panic(err)
	}
	orders.exec(box.Schema())
	return func() {
		orders.exec("DROP DATABASE " + name)
		_ = db.Close()
	}
}

type execer struct{ *sql.DB }

func must(db *sql.DB, err error) execer {
	if err != nil {
		panic(err)
	}
	return execer{db}
}

func (e execer) exec(statement string) {
	if _, err := e.ExecContext(ctx, statement); err != nil {
		panic(err)
	}
}

// ordered makes an order whose task succeeds and waits for the receiver to know.
func ordered() (state string) {
	task, err := client.SubmitTask(ctx, orbit.NewKey(), orbit.SubmitTaskRequest{QueueID: queueID, Input: json.RawMessage(`1`)})
	if err != nil {
		return err.Error()
	}
	execer{db}.exec("INSERT INTO orders VALUES ('" + task.Task.ID + "', 'ordered')")
	working, stop := context.WithCancel(ctx)
	go func() {
		_ = orbit.Worker{URL: fake.GatewayURL, Token: fake.Token, QueueID: queueID,
			Handler: func(context.Context, *orbit.Assignment) (json.RawMessage, error) { return nil, nil }}.Run(working)
	}()
	defer stop()
	for state = "ordered"; state == "ordered"; {
		if err := db.QueryRowContext(ctx, "SELECT state FROM orders").Scan(&state); err != nil {
			return err.Error()
		}
	}
	return state
}

func ExampleWorker() {
	defer setUp()()
	made, err := client.SubmitTask(ctx, key, orbit.SubmitTaskRequest{QueueID: queueID, Input: json.RawMessage(`"orbit"`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	err = orbit.Worker{
		URL: fake.GatewayURL, Token: fake.Token, QueueID: queueID, Concurrency: 4,
		Handler: func(_ context.Context, a *orbit.Assignment) (json.RawMessage, error) {
			var name string
			if err := json.Unmarshal(a.Task.Input, &name); err != nil {
				return nil, orbit.Permanent(err)
			}
			return json.Marshal(strings.ToUpper(name))
		},
		OnOutcome: func(orbit.OutcomeResult) { stop() },
	}.Run(ctx)
	fmt.Println(err)
	task, err := client.GetTask(context.Background(), made.Task.ID)
	fmt.Println(task.State, string(task.Result), err)
	// Output:
	// <nil>
	// SUCCEEDED "ORBIT" <nil>
}

// An answer is lost, so the same proof is reported on another connection.
func ExampleDialEvents() {
	defer setUp()()
	subscribed()
	if _, err := client.SubmitTask(ctx, key, orbit.SubmitTaskRequest{QueueID: queueID, Input: json.RawMessage(`1`)}); err != nil {
		fmt.Println(err)
	}
	task, err := client.ListTasks(ctx, orbit.ListTasksRequest{QueueID: queueID})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := client.CancelTask(ctx, task.Items[0].ID, pauseKey, orbit.CancelTaskRequest{ExpectedRevision: "1", Reason: "example"}); err != nil {
		fmt.Println(err)
	}
	o := orbit.EventOptions{URL: fake.GatewayURL, Token: fake.Token, SubscriptionID: subscriptionID, Capacity: 1}
	conn, err := orbit.DialEvents(ctx, o)
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := conn.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	// … save d.RawEvent under d.Event.ID, and the proof with it; commit, and only then:
	saved, err := json.Marshal(d.Proof())
	fmt.Println(d.Event.Type, err)
	fake.LoseAcks(1)
	_, err = conn.Ack(ctx, d.Proof())
	fmt.Println("answered:", err == nil)
	conn.Close()

	var proof orbit.Proof // another process, perhaps
	if err := json.Unmarshal(saved, &proof); err != nil {
		fmt.Println(err)
	}
	conn, err = orbit.DialEvents(ctx, o)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	ack, err := conn.Ack(ctx, proof)
	fmt.Println("recorded before:", ack.Deduplicated, err)
	// Output:
	// task.cancelled <nil>
	// answered: false
	// recorded before: true <nil>
}
