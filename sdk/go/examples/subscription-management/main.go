// Subscription-management creates, pauses and resumes a subscription with keys that are stored first.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// operations is what must be known again after a crash: every key, and every request that is not derived.
type operations struct {
	Create    orbit.CreateSubscriptionRequest `json:"create"`
	CreateKey string                          `json:"create_key"`
	PauseKey  string                          `json:"pause_key"`
	ResumeKey string                          `json:"resume_key"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: subscription-management FILE")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file string) error {
	client, err := orbit.NewClient(os.Getenv("ORBIT_MANAGEMENT_URL"), os.Getenv("ORBIT_TOKEN"))
	if err != nil {
		return err
	}
	defer client.Close()
	ops, err := load(file)
	if err != nil {
		return err
	}
	created, err := client.CreateSubscription(ctx, ops.CreateKey, ops.Create)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	sub := created.Subscription
	fmt.Println("created", sub.ID, "revision", sub.Revision, "deduplicated", created.Deduplicated)

	// Each command names the revision that the one before it answered, so a repetition is the same request.
	for _, step := range []struct {
		name, key string
		enabled   bool
	}{{"paused", ops.PauseKey, false}, {"resumed", ops.ResumeKey, true}} {
		done, err := client.ConfigureSubscription(ctx, sub.ID, step.key, orbit.ConfigureSubscriptionRequest{
			ExpectedRevision: sub.Revision, Enabled: step.enabled, Reason: "receiver maintenance"})
		if errors.Is(err, orbit.ErrStateConflict) {
			return fmt.Errorf("somebody else has changed subscription %s; look before you go on: %w", sub.ID, err)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		sub = done.Subscription
		fmt.Println(step.name, "revision", sub.Revision, "deduplicated", done.Deduplicated)
	}

	// A receipt shows the state of its time; this is the present one.
	current, err := client.GetSubscription(ctx, sub.ID)
	if err != nil {
		return err
	}
	fmt.Println("now enabled", current.Enabled, "pending", current.PendingCount)
	for d, err := range client.AllEventDeliveries(ctx, sub.ID, orbit.ListEventDeliveriesRequest{}) {
		if err != nil {
			return err
		}
		fmt.Println("delivery", d.ID, d.State, "attempts", d.Attempts)
	}
	return nil
}

// load returns the stored operations, or makes and stores them.
func load(file string) (operations, error) {
	var ops operations
	text, err := os.ReadFile(file)
	switch {
	case err == nil:
		return ops, json.Unmarshal(text, &ops)
	case !errors.Is(err, fs.ErrNotExist):
		return ops, err
	}
	ops = operations{
		Create:    orbit.CreateSubscriptionRequest{Name: "example-" + orbit.NewID(), QueueID: os.Getenv("ORBIT_QUEUE_ID"), MaxPending: 100, MaxAttempts: 20},
		CreateKey: orbit.NewKey(), PauseKey: orbit.NewKey(), ResumeKey: orbit.NewKey(),
	}
	if text, err = json.MarshalIndent(ops, "", "  "); err != nil {
		return ops, err
	}
	return ops, os.WriteFile(file, text, 0o600)
}
