package main

import (
	"fmt"
	"os"
	"text/tabwriter"
)

// ratio is a claim: one measurement at least, or at most, so many times another of the same run.
type ratio struct {
	what     string
	of, to   [2]string // scenario, metric
	want     float64
	atMost   bool
	absolute bool // want is a value of of's own unit
}

var ratios = []ratio{
	{what: "drain ÷ watermill-sql best", of: [2]string{"drain", "delivered and acknowledged"}, to: [2]string{"watermill-sql best", "drained"}, want: 1.5},
	{what: "drain ÷ hand-written table", of: [2]string{"drain", "delivered and acknowledged"}, to: [2]string{"hand-written table", "drained"}, want: 8},
	{what: "drain ÷ SQL-only limit", of: [2]string{"drain", "delivered and acknowledged"}, to: [2]string{"limits", "append, lease and acknowledge by SQL alone"}, want: 0.3},
	{what: "flow ÷ JetStream SyncAlways", of: [2]string{"flow", "worked, delivered and acknowledged"}, to: [2]string{"JetStream", "flow"}, want: 1.4},
	{what: "flow ÷ watermill-sql best", of: [2]string{"flow", "worked, delivered and acknowledged"}, to: [2]string{"watermill-sql best", "flow"}, want: 3},
	{what: "latency p50 ÷ watermill-sql at 10 ms", of: [2]string{"latency", "commit to handler p50"}, to: [2]string{"watermill-sql best", "commit to handler p50"}, want: 1, atMost: true},
	{what: "latency p99 ÷ watermill-sql at 10 ms", of: [2]string{"latency", "commit to handler p99"}, to: [2]string{"watermill-sql best", "commit to handler p99"}, want: 1.5, atMost: true},
	{what: "tasks completed ÷ River, default fetching", of: [2]string{"tasks", "tasks completed"}, to: [2]string{"River", "tasks completed"}, want: 0.7},
	{what: "tasks submitted and worked at once ÷ River", of: [2]string{"taskflow", "submitted and worked"}, to: [2]string{"River", "flow"}, want: 1.5},
	{what: "file syncs per acknowledged delivery", of: [2]string{"drain", "file syncs each"}, want: 0.05, atMost: true, absolute: true},
}

// showRatios prints the ratios whose measurements this run has.
func showRatios(results []result) {
	median := map[[2]string]float64{}
	for _, r := range results {
		for _, m := range r.Metrics {
			_, mid, _ := spread(m.Runs)
			median[[2]string{r.Scenario, m.Name}] = mid
		}
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nratio\tmeasured\twanted\t")
	for _, r := range ratios {
		value, ok := median[r.of]
		base, has := median[r.to]
		if !ok || !has && !r.absolute || !r.absolute && base == 0 {
			continue
		}
		if !r.absolute {
			value /= base
		}
		sign, reached := "≥", value >= r.want
		if r.atMost {
			sign, reached = "≤", value <= r.want
		}
		verdict := "missed"
		if reached {
			verdict = "reached"
		}
		fmt.Fprintf(table, "%s\t%.3g\t%s %g\t%s\n", r.what, value, sign, r.want, verdict)
	}
	_ = table.Flush() // the terminal may be gone
}
