// Bench measures a whole stack on this machine: real processes, a private database with full
// durability, the SDK as the client. Numbers are only what one run measured.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
)

// scenario is one measurement on a fresh stack.
type scenario struct {
	name  string
	about string
	run   func(ctx context.Context, s *stack, scale int) ([]metric, error)
}

// metric is one measured number.
type metric struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

var scenarios = []scenario{
	{"http", "GetSubscription and configure at 200 requests/s", httpRates},
	{"submit", "batch submits of 100 tasks, 4 clients", submitRate},
	{"tasks", "no-op tasks, pre-submitted, through 4 worker connections, events appended", taskRate},
	{"drain", "a full log through one subscription, 4 connections of capacity 32", drainRate},
	{"flow", "submit, work and consume at once", flowRate},
	{"schedules", "10 000 schedules due in one minute, 2 management replicas", scheduleRate},
	{"latency", "commit to handler at 100 events/s", latency},
	{"flows", "3-step lines one at a time, then 1 000 diamonds of 10 steps at once", flowLoad},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	bin   string
	only  string
	runs  int
	scale int
	json  string
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder of the built programs")
	flag.StringVar(&o.only, "scenario", "", "comma-separated scenarios; all by default")
	flag.IntVar(&o.runs, "runs", 3, "runs of each; the median counts")
	flag.IntVar(&o.scale, "scale", 100, "percent of the usual amount of work")
	flag.StringVar(&o.json, "json", "", "file for the results")
	flag.Parse()
	var out []result
	for _, sc := range scenarios {
		if o.only != "" && !strings.Contains(","+o.only+",", ","+sc.name+",") {
			continue
		}
		r, err := measure(ctx, o, sc)
		if err != nil {
			return fmt.Errorf("%s: %w", sc.name, err)
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return fmt.Errorf("no scenario is called %q", o.only)
	}
	show(out)
	if o.json == "" {
		return nil
	}
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.json, append(b, '\n'), 0o600)
}

func measure(ctx context.Context, o options, sc scenario) (result, error) {
	r := result{Scenario: sc.name, About: sc.about}
	for i := range o.runs {
		fmt.Fprintf(os.Stderr, "bench: %s, run %d of %d\n", sc.name, i+1, o.runs)
		metrics, err := onFreshStack(ctx, o, sc)
		if err != nil {
			return r, err
		}
		for n, m := range metrics {
			if i == 0 {
				r.Metrics = append(r.Metrics, series{Name: m.Name, Unit: m.Unit})
			}
			r.Metrics[n].Runs = append(r.Metrics[n].Runs, m.Value)
		}
	}
	return r, nil
}

func onFreshStack(ctx context.Context, o options, sc scenario) (metrics []metric, err error) {
	s, err := startStack(ctx, o.bin)
	if err != nil {
		return nil, err
	}
	defer func() {
		if stopErr := s.stop(); err == nil {
			err = stopErr
		}
	}()
	return sc.run(ctx, s, o.scale)
}

// result is a scenario's measurements over all runs.
type result struct {
	Scenario string   `json:"scenario"`
	About    string   `json:"about"`
	Metrics  []series `json:"metrics"`
}

type series struct {
	Name string    `json:"name"`
	Unit string    `json:"unit"`
	Runs []float64 `json:"runs"`
}

func show(results []result) {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "scenario\tmetric\tmedian\trange\tunit")
	for _, r := range results {
		for _, m := range r.Metrics {
			lo, mid, hi := spread(m.Runs)
			fmt.Fprintf(table, "%s\t%s\t%.4g\t%.4g – %.4g\t%s\n", r.Scenario, m.Name, mid, lo, hi, m.Unit)
		}
	}
	_ = table.Flush() // the terminal may be gone
}
