package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

type lifecycle struct {
	client *orbit.Client
	state  *state
	tasks  int
}

// create makes the queue and the subscription, or finds those of this run: the same key answers the same.
func (l *lifecycle) create(ctx context.Context) error {
	q, err := l.client.CreateQueue(ctx, l.state.key("create-queue"), orbit.CreateQueueRequest{Name: "lifecycle-" + l.state.Run})
	if err != nil {
		return fmt.Errorf("create queue: %w", err)
	}
	l.state.QueueID = q.Queue.ID
	fmt.Println("queue", l.state.QueueID)
	sub, err := l.client.CreateSubscription(ctx, l.state.key("create-subscription"), orbit.CreateSubscriptionRequest{
		Name: "lifecycle-" + l.state.Run, QueueID: l.state.QueueID,
	})
	if err != nil {
		return fmt.Errorf("create subscription: %w", err)
	}
	l.state.SubscriptionID = sub.Subscription.ID
	fmt.Println("subscription", l.state.SubscriptionID)
	return l.state.save()
}

// produce submits the run's tasks, each under a key of its own, and then no more.
func (l *lifecycle) produce(ctx context.Context) error {
	for i := range l.tasks {
		t, err := l.client.SubmitTask(ctx, l.state.key(fmt.Sprintf("task-%d", i)), orbit.SubmitTaskRequest{
			QueueID: l.state.QueueID, Input: json.RawMessage(fmt.Sprint(i)), RetrySafety: orbit.Safe,
		})
		if err != nil {
			return fmt.Errorf("submit task %d: %w", i, err)
		}
		if !t.Deduplicated {
			fmt.Println("task", t.Task.ID)
		}
	}
	return nil
}

var errUnsettled = errors.New("not settled in time")

// settle waits until every task of the queue has ended. NEEDS_REVIEW waits for a person, so it is given up at once.
func (l *lifecycle) settle(ctx context.Context) error {
	for {
		left := 0
		for t, err := range l.client.AllTasks(ctx, orbit.ListTasksRequest{QueueID: l.state.QueueID, Limit: 100}) {
			switch {
			case err != nil && ctx.Err() != nil:
				return fmt.Errorf("tasks: %w", errUnsettled)
			case err != nil:
				return err
			case t.State == orbit.TaskStateNeedsReview:
				return fmt.Errorf("task %s needs review: somebody must look and resolve it", t.ID)
			case t.FinishedAt == nil:
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if !pause(ctx) {
			return fmt.Errorf("%d tasks: %w", left, errUnsettled)
		}
	}
}

// consumed waits until nothing delivered is un-acknowledged.
func (l *lifecycle) consumed(ctx context.Context) error {
	for {
		sub, err := l.client.GetSubscription(ctx, l.state.SubscriptionID)
		if err != nil {
			return err
		}
		if sub.PendingCount == 0 {
			return nil
		}
		if !pause(ctx) {
			return fmt.Errorf("%d deliveries of subscription %s: %w", sub.PendingCount, sub.ID, errUnsettled)
		}
	}
}

// retire ends the subscription, then the queue. RESOURCE_BUSY while results are still on their way is waited out; what
// is left at the deadline is an error, never skipped.
func (l *lifecycle) retire(ctx context.Context) error {
	err := l.command(ctx, &l.state.RetireSubscription, func() (orbit.Counter, error) {
		sub, err := l.client.GetSubscription(ctx, l.state.SubscriptionID)
		if err != nil {
			return "", err
		}
		return sub.Revision, nil
	}, func(r orbit.RetireResourceRequest) error {
		done, err := l.client.RetireSubscription(ctx, l.state.SubscriptionID, l.state.key("retire-subscription"), r)
		if err == nil {
			fmt.Println("retired subscription", done.Subscription.ID, "at sequence", done.Subscription.RetiredSequence)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("retire subscription %s: %w", l.state.SubscriptionID, err)
	}
	err = l.command(ctx, &l.state.RetireQueue, func() (orbit.Counter, error) {
		q, err := l.client.GetQueue(ctx, l.state.QueueID)
		if err != nil {
			return "", err
		}
		return q.Revision, nil
	}, func(r orbit.RetireResourceRequest) error {
		done, err := l.client.RetireQueue(ctx, l.state.QueueID, l.state.key("retire-queue"), r)
		if err == nil {
			fmt.Println("retired queue", done.Queue.ID)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("retire queue %s: %w", l.state.QueueID, err)
	}
	return nil
}

// command saves a request before its first try and repeats it unchanged while it is answered RESOURCE_BUSY. After
// STATE_CONFLICT it is known that it never took effect, so that the next run may decide anew.
func (l *lifecycle) command(ctx context.Context, kept **orbit.RetireResourceRequest, revision func() (orbit.Counter, error), send func(orbit.RetireResourceRequest) error) error {
	if *kept == nil {
		now, err := revision()
		if err != nil {
			return err
		}
		*kept = &orbit.RetireResourceRequest{ExpectedRevision: now, Reason: "temporary resource, settled and no longer used"}
		if err := l.state.save(); err != nil {
			return err
		}
	}
	for {
		err := send(**kept)
		if errors.Is(err, orbit.ErrStateConflict) {
			*kept = nil
			return errors.Join(err, l.state.save())
		}
		if !errors.Is(err, orbit.ErrResourceBusy) || !pause(ctx) {
			return err
		}
	}
}

// pause is false once ctx has ended.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(200 * time.Millisecond):
		return true
	}
}
