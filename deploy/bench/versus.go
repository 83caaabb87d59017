package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"git.yuntuo.hk/k2safe/orbit/deploy/bench/rivals"
	"git.yuntuo.hk/k2safe/orbit/pkg/mysqld"
)

// onHost runs work with an empty folder and an empty database on a server with the stack's settings.
func onHost(ctx context.Context, work func(h rivals.Host) ([]metric, error)) (out []metric, err error) {
	dir, err := os.MkdirTemp("", "orbit-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // PostgreSQL runs as another user below it
		return nil, err
	}
	server, err := mysqld.Start(ctx, mysqld.Options{Dir: filepath.Join(dir, "mysql"), BufferPoolMB: bufferPoolMB})
	if err != nil {
		return nil, err
	}
	defer func() {
		if stopErr := server.Stop(context.WithoutCancel(ctx)); err == nil {
			err = stopErr
		}
	}()
	db, err := sql.Open("mysql", server.RootDSN(""))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE DATABASE rival"); err != nil {
		return nil, err
	}
	own := filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o755); err != nil { //nolint:gosec // as above
		return nil, err
	}
	return work(rivals.Host{Dir: own, DSN: server.RootDSN("rival") + "?interpolateParams=true"})
}

// bufferPoolMB is what orbit-local gives its database.
const bufferPoolMB = 256

// against measures one rival as Orbit's own scenarios measure Orbit.
func against(r rivals.Rival) func(context.Context, options) ([]metric, error) {
	return func(ctx context.Context, o options) ([]metric, error) {
		return onHost(ctx, func(h rivals.Host) (out []metric, err error) {
			b, err := r.Open(ctx, h)
			if err != nil {
				return nil, err
			}
			defer func() {
				if closeErr := b.Close(); err == nil {
					err = closeErr
				}
			}()
			ctx, cancel := context.WithTimeout(ctx, stallLimit)
			defer cancel()
			n := scaled(r.Messages, o.scale)
			ignore := func([]byte) {}
			took, err := timed(func() error { return b.Publish(ctx, n, payload) })
			if err != nil {
				return nil, fmt.Errorf("publish: %w", err)
			}
			out = append(out, perSecond("published", n, took))
			if took, err = timed(func() error { return b.Consume(ctx, n, ignore) }); err != nil {
				return nil, fmt.Errorf("drain: %w", err)
			}
			out = append(out, perSecond("drained", n, took))
			took, err = timed(func() error {
				return together(func() error { return b.Publish(ctx, n, payload) }, func() error { return b.Consume(ctx, n, ignore) })
			})
			if err != nil {
				return nil, fmt.Errorf("flow: %w", err)
			}
			out = append(out, perSecond("flow", n, took))
			late, err := brokerLatency(ctx, b, scaled(1500, o.scale))
			if err != nil {
				return nil, fmt.Errorf("latency: %w", err)
			}
			return append(out, percentiles("commit to handler", late)...), nil
		})
	}
}

// brokerLatency publishes n messages at 100/s; the time of the commit is taken when it has returned.
func brokerLatency(ctx context.Context, b rivals.Broker, n int) ([]time.Duration, error) {
	type stamped struct {
		N    int    `json:"n"`
		Fill string `json:"fill"`
	}
	var mu sync.Mutex
	committed, seen := make([]time.Time, n), make([]time.Time, n)
	err := together(func() error {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := range n {
			<-tick.C
			body, err := json.Marshal(stamped{N: i, Fill: string(payload)})
			if err != nil {
				return err
			}
			if err := b.PublishOne(ctx, body); err != nil {
				return err
			}
			mu.Lock()
			committed[i] = time.Now()
			mu.Unlock()
		}
		return nil
	}, func() error {
		return b.Consume(ctx, n, func(body []byte) {
			at := time.Now()
			var s stamped
			if json.Unmarshal(body, &s) == nil {
				mu.Lock()
				seen[s.N] = at
				mu.Unlock()
			}
		})
	})
	late := make([]time.Duration, n)
	for i := range late {
		late[i] = max(seen[i].Sub(committed[i]), 0) // it may arrive before the publisher hears of its commit
	}
	return late, err
}

// riverTasks measures River where PostgreSQL is installed.
func riverTasks(ctx context.Context, o options) ([]metric, error) {
	if rivals.PostgreSQL() == "" {
		fmt.Fprintln(os.Stderr, "bench: PostgreSQL is not installed; River is left out")
		return nil, nil
	}
	return onHost(ctx, func(h rivals.Host) (out []metric, err error) {
		r, err := rivals.OpenRiver(ctx, h.Dir)
		if err != nil {
			return nil, err
		}
		defer func() {
			if closeErr := r.Close(); err == nil {
				err = closeErr
			}
		}()
		ctx, cancel := context.WithTimeout(ctx, stallLimit)
		defer cancel()
		n := scaled(40_000, o.scale)
		took, err := timed(func() error { return r.Insert(ctx, n, payload) })
		if err != nil {
			return nil, err
		}
		out = append(out, perSecond("tasks submitted", n, took))
		if took, err = timed(func() error { return r.Work(ctx, n) }); err != nil {
			return nil, err
		}
		out = append(out, perSecond("tasks completed", n, took))
		took, err = timed(func() error {
			return together(func() error { return r.Insert(ctx, n, payload) }, func() error { return r.Work(ctx, n) })
		})
		return append(out, perSecond("flow", n, took)), err
	})
}

// limits measures what the machine and its database can do at best.
func limits(ctx context.Context, o options) ([]metric, error) {
	return onHost(ctx, func(h rivals.Host) ([]metric, error) {
		syncs, err := rivals.FsyncRate(h.Dir, 3*time.Second)
		if err != nil {
			return nil, err
		}
		n := scaled(100_000, o.scale)
		took, err := timed(func() error { return rivals.SQLLimit(ctx, h, n, payload) })
		return []metric{{"fsyncs one after another", syncs, "1/s"}, perSecond("append, lease and acknowledge by SQL alone", n, took)}, err
	})
}

func timed(work func() error) (time.Duration, error) {
	began := time.Now()
	err := work()
	return time.Since(began), err
}

func together(work ...func() error) error {
	failed := make(chan error, len(work))
	for _, w := range work {
		go func() { failed <- w() }()
	}
	var first error
	for range work {
		if err := <-failed; first == nil {
			first = err
		}
	}
	return first
}
