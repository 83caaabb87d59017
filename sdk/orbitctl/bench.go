package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"github.com/spf13/cobra"
)

// benchQueue is the queue that every bench of a namespace uses.
const benchQueue = "orbitctl-bench"

// benchPlan is what a bench does.
type benchPlan struct {
	producers, workers, size int
	rate                     float64
	duration                 time.Duration
}

// benchSum is what it found; times are in milliseconds.
type benchSum struct {
	QueueID   string             `json:"queue_id"`
	Submitted int                `json:"submitted"`
	Failed    int                `json:"failed"`
	Executed  int                `json:"executed"`
	PerSecond float64            `json:"submitted_per_second"`
	SubmitMS  map[string]float64 `json:"submit_ms"`
}

func benchCommand(a *app) *cobra.Command {
	p := benchPlan{}
	var sure bool
	c := &cobra.Command{Use: "bench", Short: "Measure your installation with submits and executions", Args: exactly(0),
		Long: `Submit tasks and execute them for a while, and print rates and the percentiles of a submit's answer.

It uses the queue ` + benchQueue + `, made when missing and left for the next bench. Tasks that were not executed at the end stay in it,
and the next bench executes them. It writes real rows: against anything but loopback it needs --yes.`}
	f := c.Flags()
	f.IntVar(&p.producers, "producers", 4, "how many submit at the same time, 1 to 64")
	f.IntVar(&p.workers, "concurrency", 8, "how many tasks are executed at once, 1 to 256")
	f.IntVar(&p.size, "size", 100, "bytes of a task's input, 2 to 262144")
	f.Float64Var(&p.rate, "rate", 0, "submits a second in all; 0: as fast as answers come")
	f.DurationVar(&p.duration, "duration", 10*time.Second, "how long to submit, at most 1h")
	f.BoolVar(&sure, "yes", false, "also against another host than loopback")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if p.producers < 1 || p.producers > 64 || p.workers < 1 || p.workers > 256 || p.size < 2 || p.size > orbit.MaxResult ||
			p.rate < 0 || p.rate > 100000 || p.duration <= 0 || p.duration > time.Hour {
			return usage("--producers 1 to 64, --concurrency 1 to 256, --size 2 to 262144, --rate 0 to 100000, --duration up to 1h")
		}
		m, err := a.managementURL()
		if err != nil {
			return err
		}
		g, token, err := a.socket()
		if err != nil {
			return err
		}
		if !sure && (!loopback(m) || !loopback(g)) {
			return usage("%s and %s are not both loopback; --yes allows the load on them", m, g)
		}
		client, err := a.client()
		if err != nil {
			return err
		}
		queue, err := findBenchQueue(c.Context(), client)
		if err != nil {
			return err
		}
		sum, err := a.bench(c.Context(), client, g, token, queue, p)
		if err != nil {
			return err
		}
		return a.show(sum, func() {
			fmt.Fprintf(a.out, "queue %s: %d submitted (%.0f/s), %d failed, %d executed\nsubmit ms: p50 %.1f  p95 %.1f  p99 %.1f  max %.1f\n", sum.QueueID,
				sum.Submitted, sum.PerSecond, sum.Failed, sum.Executed, sum.SubmitMS["p50"], sum.SubmitMS["p95"], sum.SubmitMS["p99"], sum.SubmitMS["max"])
		})
	}
	return c
}

func loopback(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

func findBenchQueue(ctx context.Context, client *orbit.Client) (string, error) {
	for q, err := range client.AllQueues(ctx) {
		if err != nil {
			return "", err
		}
		if q.Name == benchQueue {
			return q.ID, nil
		}
	}
	done, err := client.CreateQueue(ctx, orbit.NewKey(), orbit.CreateQueueRequest{Name: benchQueue})
	if err != nil {
		return "", err
	}
	return done.Queue.ID, nil
}

func (a *app) bench(ctx context.Context, client *orbit.Client, gateway, token, queue string, p benchPlan) (*benchSum, error) {
	var mu sync.Mutex
	var took []time.Duration
	sum := &benchSum{QueueID: queue}
	workCtx, stopWork := context.WithCancel(ctx)
	defer stopWork()
	worked := make(chan error, 1)
	go func() {
		worked <- orbit.Worker{URL: gateway, Token: token, QueueID: queue, Name: "orbitctl-bench", Concurrency: p.workers, InsecureHTTP: a.insecure,
			Handler:   func(context.Context, *orbit.Assignment) (json.RawMessage, error) { return nil, nil },
			OnOutcome: func(orbit.OutcomeResult) { mu.Lock(); sum.Executed++; mu.Unlock() },
		}.Run(workCtx)
	}()
	submitCtx, stopSubmit := context.WithTimeout(ctx, p.duration)
	defer stopSubmit()
	input := json.RawMessage(`"` + strings.Repeat("x", p.size-2) + `"`)
	begin := time.Now()
	var producers sync.WaitGroup
	for range p.producers {
		producers.Add(1)
		go func() {
			defer producers.Done()
			for next := time.Now(); submitCtx.Err() == nil; {
				sent := time.Now()
				_, err := client.SubmitTask(submitCtx, orbit.NewKey(), orbit.SubmitTaskRequest{QueueID: queue, Input: input, RetrySafety: orbit.Safe})
				mu.Lock()
				if err == nil {
					took = append(took, time.Since(sent))
				} else if submitCtx.Err() == nil {
					sum.Failed++
				}
				mu.Unlock()
				if p.rate > 0 {
					next = next.Add(time.Duration(float64(p.producers) / p.rate * float64(time.Second)))
					select {
					case <-time.After(time.Until(next)):
					case <-submitCtx.Done():
					}
				}
			}
		}()
	}
	finished := make(chan struct{})
	go func() { producers.Wait(); close(finished) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-tick.C:
			mu.Lock()
			fmt.Fprintf(a.errs, "%s: %d submitted, %d executed, %d failed\n", time.Since(begin).Round(time.Second), len(took), sum.Executed, sum.Failed)
			mu.Unlock()
		case <-finished:
			running = false
		}
	}
	elapsed := time.Since(begin)
	stopWork()
	if err := <-worked; err != nil {
		return nil, err
	}
	if len(took) == 0 {
		return nil, errors.New("nothing was submitted; run orbitctl doctor")
	}
	slices.Sort(took)
	at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Microseconds()) / 1000 }
	sum.Submitted, sum.PerSecond = len(took), float64(len(took))/elapsed.Seconds()
	sum.SubmitMS = map[string]float64{"p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": at(1)}
	return sum, nil
}
