package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"github.com/spf13/cobra"
)

func runCommand(a *app) *cobra.Command {
	command := func(verb, short string, do func(*orbit.Client, context.Context, string, string, orbit.RunCommandRequest) (*orbit.RunResult, error)) *cobra.Command {
		return runWrite(a, verb+" ID", short, 1, func(ctx context.Context, c *orbit.Client, args []string, key string, r orbit.RunCommandRequest) (*orbit.RunResult, error) {
			return do(c, ctx, args[0], key, r)
		})
	}
	return group("run", "Runs of flows", runShow(a),
		command("pause", "Submit no more steps; outcomes go on to be recorded", (*orbit.Client).PauseRun),
		command("resume", "Go on", (*orbit.Client).ResumeRun),
		command("cancel", "End the run: cancel what has not started and ask workers to stop", (*orbit.Client).CancelRun),
		runWrite(a, "retry-step ID STEP", "Give a failed or cancelled step of an ended run another try", 2,
			func(ctx context.Context, c *orbit.Client, args []string, key string, r orbit.RunCommandRequest) (*orbit.RunResult, error) {
				return c.RetryRunStep(ctx, args[0], args[1], key, r)
			}))
}

func runShow(a *app) *cobra.Command {
	return &cobra.Command{Use: "show ID", Short: "Show a run with its steps, what each waits for, and how long it took", Args: exactly(1), RunE: func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		r, err := client.GetRun(c.Context(), args[0])
		if err != nil {
			return err
		}
		return a.showRun(r, *r)
	}}
}

func runWrite(a *app, use, short string, n int, do func(ctx context.Context, c *orbit.Client, args []string, key string, r orbit.RunCommandRequest) (*orbit.RunResult, error)) *cobra.Command {
	var w write
	c := &cobra.Command{Use: use, Short: short, Args: exactly(n)}
	w.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		r := orbit.RunCommandRequest{Reason: w.reason}
		if w.revision != "" { // a run moves by itself, so the present revision would say nothing
			r.ExpectedRevision = &w.revision
		}
		client, err := a.client()
		if err != nil {
			return err
		}
		done, err := do(c.Context(), client, args, keyOf(w.key), r)
		if err != nil {
			return err
		}
		return a.showRun(done, done.Run)
	}
	return c
}

func (a *app) showRun(v any, r orbit.Run) error {
	return a.show(v, func() {
		a.fields("id", r.ID, "flow", r.FlowID, "version", strconv.Itoa(r.Version), "state", r.State, "ending", r.Ending, "revision", r.Revision,
			"created", stamp(r.CreatedAt), "finished", stampOf(r.FinishedAt), "input", string(r.Input))
		if len(r.Steps) > 0 {
			fmt.Fprintln(a.out)
			a.drawSteps(r.Steps)
		}
	})
}

var stepMarks = map[string]string{
	"WAITING": "○", "SUBMITTED": "◔", "RUNNING": "◐", "SUCCEEDED": "●", "FAILED": "✗", "CANCELLED": "✗", "NEEDS_REVIEW": "?", "SKIPPED": "–",
}

// drawSteps prints the DAG from top to bottom, each step as deep as its longest way from a first one.
func (a *app) drawSteps(steps []orbit.RunStep) {
	byName, depth := make(map[string]orbit.RunStep, len(steps)), make(map[string]int, len(steps))
	for _, s := range steps {
		byName[s.Name] = s
	}
	var measure func(name string) int
	measure = func(name string) int {
		if d, ok := depth[name]; ok {
			return d
		}
		d := 0
		for _, before := range byName[name].DependsOn {
			d = max(d, measure(before)+1)
		}
		depth[name] = d
		return d
	}
	deepest := 0
	for _, s := range steps {
		deepest = max(deepest, measure(s.Name))
	}
	var rows [][]string
	for d := 0; d <= deepest; d++ {
		for _, s := range steps {
			if depth[s.Name] == d {
				rows = append(rows, stepRow(s, d))
			}
		}
	}
	a.table("STEP STATE TRY TOOK AFTER TASK ERROR", rows)
}

func stepRow(s orbit.RunStep, depth int) []string {
	indent := ""
	if depth > 0 {
		indent = strings.Repeat("   ", depth-1) + "└─ "
	}
	state, took, failure := s.State, "", ""
	if s.WaitingFor != "" {
		state += " (" + s.WaitingFor + ")"
	}
	if s.SubmittedAt != nil && s.FinishedAt != nil {
		took = s.FinishedAt.Sub(*s.SubmittedAt).Round(time.Millisecond).String()
	}
	if s.Error != nil {
		failure = s.Error.Code + ": " + s.Error.Message
	}
	return []string{indent + stepMarks[s.State] + " " + s.Name, state, strconv.Itoa(s.Try), took, strings.Join(s.DependsOn, ","), s.TaskID, failure}
}
