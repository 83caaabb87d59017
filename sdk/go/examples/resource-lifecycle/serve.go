package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// startServing runs a worker and a consumer until stop is called, which waits for both.
func (l *lifecycle) startServing(ctx context.Context) (stop func(), err error) {
	url, token := os.Getenv("ORBIT_GATEWAY_URL"), os.Getenv("ORBIT_TOKEN")
	saved, err := openInbox(l.state.file + ".events")
	if err != nil {
		return nil, err
	}
	worker := orbit.Worker{
		URL: url, Token: token, QueueID: l.state.QueueID, Name: "resource-lifecycle", Concurrency: 2,
		Handler: func(_ context.Context, a *orbit.Assignment) (json.RawMessage, error) { return a.Task.Input, nil },
	}
	consumer := orbit.Consumer{
		URL: url, Token: token, SubscriptionID: l.state.SubscriptionID, Concurrency: 2,
		Handler: func(_ context.Context, d *orbit.Delivery) error { return saved.save(d) },
	}
	ctx, cancel := context.WithCancel(ctx)
	var both sync.WaitGroup
	for name, serve := range map[string]func(context.Context) error{"worker": worker.Run, "consumer": consumer.Run} {
		both.Add(1)
		go func() {
			defer both.Done()
			if err := serve(ctx); err != nil && !errors.Is(err, orbit.ErrResourceRetired) { // that is how they learn of the end
				fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			}
		}()
	}
	return func() {
		cancel()
		both.Wait()
		_ = saved.file.Close() // every line was synced
	}, nil
}

// inbox saves each event once, on disk before it is acknowledged. A service does this in its own database: see package
// inbox of the SDK.
type inbox struct {
	mu   sync.Mutex
	file *os.File
	seen map[string]bool
}

func openInbox(path string) (*inbox, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	b := &inbox{file: f, seen: map[string]bool{}}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		id, _, _ := strings.Cut(lines.Text(), " ")
		b.seen[id] = true
	}
	return b, lines.Err()
}

func (b *inbox) save(d *orbit.Delivery) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen[d.Event.ID] {
		return nil // delivered again; it is saved
	}
	if _, err := fmt.Fprintln(b.file, d.Event.ID, d.Event.Sequence, d.Event.Type, d.Event.AggregateID); err != nil {
		return err
	}
	if err := b.file.Sync(); err != nil {
		return err
	}
	b.seen[d.Event.ID] = true
	return nil
}
