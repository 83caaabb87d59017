package main

import (
	"context"
	"fmt"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// shown bounds each list of a report.
const shown = 20

// report prints, with their ids, what is left of this run's resources, for whoever must decide.
func (l *lifecycle) report(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, state := range []orbit.TaskState{orbit.TaskStateQueued, orbit.TaskStateRunning, orbit.TaskStateNeedsReview} {
		page, err := l.client.ListTasks(ctx, orbit.ListTasksRequest{QueueID: l.state.QueueID, State: state, Limit: shown})
		if err != nil {
			return fmt.Errorf("list tasks: %w", err)
		}
		for _, t := range page.Items {
			fmt.Printf("blocked by task %s, %s, attempt %d of %d, in queue %s\n", t.ID, t.State, t.Attempts, t.MaxAttempts, t.QueueID)
		}
	}
	sub, err := l.client.GetSubscription(ctx, l.state.SubscriptionID)
	if err != nil {
		return fmt.Errorf("read subscription: %w", err)
	}
	if sub.RetiredAt == nil {
		fmt.Printf("blocked by subscription %s, enabled %v, with %d deliveries not acknowledged\n", sub.ID, sub.Enabled, sub.PendingCount)
	}
	for _, state := range []string{"PENDING", "LEASED", "EXPIRED"} {
		page, err := l.client.ListEventDeliveries(ctx, sub.ID, orbit.ListEventDeliveriesRequest{State: state, Limit: shown})
		if err != nil {
			return fmt.Errorf("list deliveries: %w", err)
		}
		for _, d := range page.Items {
			fmt.Printf("blocked by delivery %s, %s, sequence %s, attempt %d of %d\n", d.ID, d.State, d.Sequence, d.Attempts, d.AttemptBudget)
		}
	}
	return nil
}
