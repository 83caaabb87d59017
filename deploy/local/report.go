package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// report compares the inbox with a direct computation over the same files and prints the totals;
// a mismatch is an error.
func (j *job) report(ctx context.Context, began time.Time) error {
	rows, changed, faults, err := j.compare(ctx, began)
	if err != nil {
		return err
	}
	sub, err := j.client.GetSubscription(ctx, j.sub)
	if err != nil {
		return err
	}
	p50, p99 := percentile(j.latencies, 50), percentile(j.latencies, 99)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, line := range [][2]string{
		{"tasks submitted", fmt.Sprint(len(j.work))},
		{"inbox rows", fmt.Sprint(rows)},
		{"rows equal to a direct computation", fmt.Sprint(rows - changed - len(faults))},
		{"rows of files that changed meanwhile, not compared", fmt.Sprint(changed)},
		{"deliveries received", fmt.Sprint(j.seen)},
		{"duplicates seen, suppressed by the inbox", fmt.Sprintf("%d, %d", j.seen-j.saved, j.suppressed)},
		{"un-acknowledged at the end", fmt.Sprint(sub.PendingCount)},
		{"rate from first submit to last save", fmt.Sprintf("%.0f tasks/s", float64(len(j.work))/j.elapsed.Seconds())},
		{"commit to delivery p50 / p99", fmt.Sprintf("%.1f / %.1f ms", ms(p50), ms(p99))},
		{"whole demo", fmt.Sprintf("%.1f s", time.Since(began).Seconds())},
	} {
		fmt.Fprintf(table, "  %s\t%s\n", line[0], line[1])
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, fault := range faults {
		fmt.Fprintln(os.Stderr, "demo: mismatch:", fault)
	}
	lost := len(j.work) - rows
	fmt.Printf("demo: %d tasks = %d inbox rows, %d lost\n", len(j.work), rows, lost)
	if lost != 0 || len(faults) > 0 || sub.PendingCount != 0 {
		return fmt.Errorf("%d lost, %d wrong, %d un-acknowledged", lost, len(faults), sub.PendingCount)
	}
	return nil
}

// compare reads every inbox row and computes its file again, unless the file changed since the start.
func (j *job) compare(ctx context.Context, began time.Time) (rows, changed int, faults []string, err error) {
	found, err := j.db.QueryContext(ctx, "SELECT event FROM orbit_inbox WHERE subscription_id = UNHEX(?)", j.sub)
	if err != nil {
		return 0, 0, nil, fmt.Errorf("read inbox: %w", err)
	}
	defer found.Close()
	done := map[work]bool{}
	for found.Next() {
		var text []byte
		if err := found.Scan(&text); err != nil {
			return 0, 0, nil, fmt.Errorf("read inbox: %w", err)
		}
		rows++
		fault, piece := check(text)
		if fault == "" && done[piece] {
			fault = piece.Path + " is there twice"
		}
		done[piece] = true
		if info, err := os.Stat(piece.Path); err == nil && info.ModTime().After(began) {
			changed++
		} else if fault != "" {
			faults = append(faults, fault)
		}
	}
	return rows, changed, faults, found.Err()
}

func check(text []byte) (fault string, piece work) {
	var event struct {
		Type     string `json:"type"`
		Snapshot struct {
			TaskID string  `json:"task_id"`
			Result summary `json:"result"`
		} `json:"snapshot"`
	}
	if err := json.Unmarshal(text, &event); err != nil {
		return fmt.Sprintf("unreadable row: %v", err), work{}
	}
	got := event.Snapshot.Result
	want, err := summarise(got.work)
	switch {
	case event.Type != "task.succeeded":
		return fmt.Sprintf("task %s ended as %s", event.Snapshot.TaskID, event.Type), got.work
	case err != nil:
		return fmt.Sprintf("%s: %v", got.Path, err), got.work
	case got.SHA256 != want.SHA256 || got.Bytes != want.Bytes || got.Lines != want.Lines || !slices.Equal(got.Words, want.Words):
		return got.Path + " differs from a direct computation", got.work
	}
	return "", got.work
}

func percentile(d []time.Duration, p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Clone(d)
	slices.Sort(sorted)
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
