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
	"runtime/debug"
	"strings"
	"syscall"
	"text/tabwriter"

	"git.yuntuo.hk/k2safe/orbit/deploy/bench/rivals"
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
	{"flow", "tasks, pre-submitted, worked and their events delivered and acknowledged at once", flowRate},
	{"taskflow", "tasks submitted and worked at once", taskFlowRate},
	{"schedules", "10 000 schedules due in one minute, 2 management replicas", scheduleRate},
	{"latency", "commit to handler at 100 events/s", latency},
	{"flows", "3-step lines one at a time, then 1 000 diamonds of 10 steps at once", flowLoad},
	{"sdk", "a full log through orbit.Consumer and through a hand-written client, in turn", sdkAgainstRaw},
	{"idle", "128 attached subscriptions and no events", idle},
	{"connections", "5000 idle connections, beside as many of a bare WebSocket server", connections},
	{"pings", "pings of 20 connections beside 10 000 acks/s on another", pings},
	{"fairness", "1 event/s of one application beside 100 000 ready events and 20 connections of another; a claim blocked for 5 s", fairness},
}

// measurement is a scenario or a rival's.
type measurement struct {
	name, about string
	run         func(ctx context.Context, o options) ([]metric, error)
}

func measurements() []measurement {
	out := []measurement{{"limits", "this machine's disk, and what SQL alone can do", limits}}
	for _, sc := range scenarios {
		out = append(out, measurement{sc.name, sc.about, func(ctx context.Context, o options) ([]metric, error) { return onFreshStack(ctx, o, sc) }})
	}
	for _, r := range rivals.All {
		out = append(out, measurement{r.Name, r.Settings, against(r)})
	}
	return append(out, measurement{"River", "PostgreSQL, default fetching, 1000 workers, inserts of 100 from one client", riverTasks})
}

func main() {
	if os.Getenv(envBare) != "" {
		serveBare()
		return
	}
	debug.SetGCPercent(400) // the client's collector is not what is measured
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
	for _, m := range measurements() {
		if o.only != "" && !strings.Contains(","+o.only+",", ","+m.name+",") {
			continue
		}
		r, err := measure(ctx, o, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return fmt.Errorf("no scenario is called %q", o.only)
	}
	show(out)
	showRatios(out)
	if o.json == "" {
		return nil
	}
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.json, append(b, '\n'), 0o600)
}

func measure(ctx context.Context, o options, m measurement) (result, error) {
	r := result{Scenario: m.name, About: m.about}
	for i := range o.runs {
		fmt.Fprintf(os.Stderr, "bench: %s, run %d of %d\n", m.name, i+1, o.runs)
		metrics, err := m.run(ctx, o)
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
	s, err := startStack(ctx, o.bin, environs[sc.name]...)
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
