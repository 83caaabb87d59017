package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/inbox"
)

const (
	demoWorkers    = 2
	workerTasks    = 4 // at once, each
	consumerEvents = 8 // at once
	demoLease      = 5 * time.Second
	settleLimit    = 5 * time.Minute // without progress
)

// job is the demo's applications: one submitter, two workers, one consumer with its inbox.
type job struct {
	stack   *stack
	options demoSettings
	work    []work
	client  *orbit.Client
	queue   string
	sub     string
	db      *sql.DB
	inbox   *inbox.Inbox

	mu         sync.Mutex
	latencies  []time.Duration // commit of the event → handler
	saved      int
	seen       int
	suppressed int

	acked   atomic.Int64
	elapsed time.Duration
}

func newJob(ctx context.Context, s *stack, o demoSettings, pieces []work) (*job, error) {
	j := &job{stack: s, options: o, work: pieces}
	var err error
	if j.client, err = orbit.NewClient(s.env.ManagementURL, s.env.Token); err != nil {
		return nil, err
	}
	q, err := j.client.CreateQueue(ctx, orbit.NewKey(), orbit.CreateQueueRequest{Name: "files-" + orbit.NewID(), LeaseDurationMS: demoLease.Milliseconds()})
	if err != nil {
		return nil, fmt.Errorf("create queue: %w", err)
	}
	j.queue = q.Queue.ID
	sub, err := j.client.CreateSubscription(ctx, orbit.NewKey(), orbit.CreateSubscriptionRequest{Name: "inbox-" + orbit.NewID(), QueueID: j.queue})
	if err != nil {
		return nil, fmt.Errorf("create subscription: %w", err)
	}
	j.sub = sub.Subscription.ID
	return j, j.openInbox(ctx)
}

// openInbox makes the receiver's own table, in a database of its own where the server is private.
func (j *job) openInbox(ctx context.Context) error {
	dsn := j.stack.dsns.owner
	if j.stack.server != nil {
		root, err := sql.Open("mysql", j.stack.server.RootDSN(""))
		if err != nil {
			return err
		}
		defer root.Close()
		if _, err := root.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS receiver"); err != nil {
			return err
		}
		dsn = j.stack.server.RootDSN("receiver")
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	j.db = db
	if j.inbox, err = inbox.New(db, inbox.Options{}); err != nil {
		return err
	}
	return j.inbox.EnsureTable(ctx)
}

func (j *job) close() { _ = j.db.Close() } // everything that counts was committed

// run drives the applications until every result is in the inbox and acknowledged.
func (j *job) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	failed := make(chan error, demoWorkers+2)
	background := func(run func(context.Context) error) {
		running.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	for i := range demoWorkers {
		background(j.worker(fmt.Sprintf("demo-%d", i+1)).Run)
	}
	background(j.consumer().Run)
	began := time.Now()
	background(j.submit)
	err := j.watch(ctx, failed)
	j.elapsed = time.Since(began)
	cancel()
	running.Wait()
	return err
}

func (j *job) worker(name string) *orbit.Worker {
	return &orbit.Worker{
		URL: j.stack.env.GatewayURL, Token: j.stack.env.Token, QueueID: j.queue, Name: name, Concurrency: workerTasks,
		Handler: func(_ context.Context, a *orbit.Assignment) (json.RawMessage, error) {
			var input work
			if err := json.Unmarshal(a.Task.Input, &input); err != nil {
				return nil, orbit.Permanent(err)
			}
			result, err := summarise(input)
			if err != nil {
				return nil, err
			}
			return json.Marshal(result)
		},
	}
}

func (j *job) consumer() *orbit.Consumer {
	return &orbit.Consumer{
		URL: j.stack.env.GatewayURL, Token: j.stack.env.Token, SubscriptionID: j.sub, Concurrency: consumerEvents,
		Handler: j.save,
		OnAck:   func(orbit.AckResult) { j.acked.Add(1) },
	}
}

// save is the receiver: the inbox row and nothing else, in one transaction; acknowledged after it.
func (j *job) save(ctx context.Context, d *orbit.Delivery) error {
	late := time.Since(d.Event.OccurredAt)
	fresh, err := j.inbox.Process(ctx, d, func(context.Context, *sql.Tx) error { return nil })
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen++
	if !fresh {
		j.suppressed++
		return nil
	}
	j.saved++
	j.latencies = append(j.latencies, late)
	return nil
}

// submit makes one task a file, at the demo's pace.
func (j *job) submit(ctx context.Context) error {
	var pace <-chan time.Time
	if j.options.rate > 0 {
		ticker := time.NewTicker(time.Second / time.Duration(j.options.rate))
		defer ticker.Stop()
		pace = ticker.C
	}
	for _, piece := range j.work {
		if pace != nil {
			select {
			case <-ctx.Done():
				return nil
			case <-pace:
			}
		}
		input, err := json.Marshal(piece)
		if err != nil {
			return err
		}
		_, err = j.client.SubmitTask(ctx, orbit.NewKey(), orbit.SubmitTaskRequest{QueueID: j.queue, Input: input, RetrySafety: orbit.Safe})
		if err != nil {
			return fmt.Errorf("submit %s: %w", piece.Path, err)
		}
	}
	return nil
}

// watch shows progress until everything is saved and acknowledged, and does the killing.
func (j *job) watch(ctx context.Context, failed <-chan error) error {
	bar := newProgress(len(j.work))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	moved, last := time.Now(), 0
	for {
		select {
		case err := <-failed:
			return err
		case err := <-j.stack.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		j.mu.Lock()
		saved := j.saved
		j.mu.Unlock()
		bar.show(saved)
		if saved != last {
			moved, last = time.Now(), saved
		}
		if err := j.options.killer.visit(j.stack, saved, len(j.work)); err != nil {
			return err
		}
		done, err := j.settled(ctx, saved)
		if err != nil || done {
			bar.finish()
			return err
		}
		if time.Since(moved) > settleLimit {
			return fmt.Errorf("no progress for %s at %d of %d; the logs are in %s", settleLimit, saved, len(j.work), j.stack.home.dir)
		}
	}
}

// settled reports that all results are saved and the subscription has nothing un-acknowledged.
func (j *job) settled(ctx context.Context, saved int) (bool, error) {
	if saved < len(j.work) || j.acked.Load() < int64(len(j.work)) {
		return false, nil
	}
	sub, err := j.client.GetSubscription(ctx, j.sub)
	if err != nil {
		return false, err
	}
	return sub.PendingCount == 0, nil
}
