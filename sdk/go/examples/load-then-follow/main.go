// Load-then-follow keeps a copy of all tasks' states: a list first, then every result.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"sync"
	"syscall"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// view is the copy; the file is its durable form.
type view struct {
	mu    sync.Mutex
	file  string
	Key   string               `json:"key"`  // of the subscription's creation
	Name  string               `json:"name"` // of the subscription
	Tasks map[string]taskState `json:"tasks"`
}

type taskState struct {
	Revision orbit.Counter   `json:"revision"`
	State    orbit.TaskState `json:"state"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: load-then-follow FILE")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file string) error {
	queue := os.Getenv("ORBIT_QUEUE_ID")
	client, err := orbit.NewClient(os.Getenv("ORBIT_MANAGEMENT_URL"), os.Getenv("ORBIT_TOKEN"))
	if err != nil {
		return err
	}
	defer client.Close()
	v, err := open(file)
	if err != nil {
		return err
	}
	// Results from here on are delivered, whether or not the list below already shows them.
	made, err := client.CreateSubscription(ctx, v.Key, orbit.CreateSubscriptionRequest{Name: v.Name, QueueID: queue})
	if err != nil {
		return err
	}
	for task, err := range client.AllTasks(ctx, orbit.ListTasksRequest{QueueID: queue, Limit: 100}) {
		if err != nil {
			return err
		}
		if err := v.take(task.ID, task.Revision, task.State); err != nil {
			return err
		}
	}
	if err := v.save(); err != nil {
		return err
	}
	fmt.Println("loaded", len(v.Tasks))
	return orbit.Consumer{
		URL: os.Getenv("ORBIT_GATEWAY_URL"), Token: os.Getenv("ORBIT_TOKEN"), SubscriptionID: made.Subscription.ID, Concurrency: 8,
		Handler: func(_ context.Context, d *orbit.Delivery) error {
			s := d.Event.Snapshot
			if err := v.take(s.TaskID, s.Revision, s.State); err != nil {
				return err
			}
			return v.save() // before it is acknowledged
		},
		OnAck: func(a orbit.AckResult) { fmt.Println("followed", a.EventID) },
	}.Run(ctx)
}

// take keeps whichever is newer: lists and results may come in any order, and results twice.
func (v *view) take(id string, revision orbit.Counter, state orbit.TaskState) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	got, err := orbit.ParseCounter(revision)
	if err != nil {
		return err
	}
	if known, ok := v.Tasks[id]; ok {
		if have, err := orbit.ParseCounter(known.Revision); err != nil || have >= got {
			return err
		}
	}
	v.Tasks[id] = taskState{revision, state}
	return nil
}

func open(file string) (*view, error) {
	v := &view{file: file, Key: orbit.NewKey(), Name: "follow-" + orbit.NewID(), Tasks: map[string]taskState{}}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return v, v.save()
	}
	if err != nil {
		return nil, err
	}
	return v, json.Unmarshal(text, v)
}

// save replaces the file in one step.
func (v *view) save() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(".", ".view-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), v.file)
}
