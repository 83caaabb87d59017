package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"github.com/spf13/cobra"
)

func taskCommand(a *app) *cobra.Command {
	return group("task", "Tasks: submit, look, cancel, resolve", taskSubmit(a), taskList(a), taskShow(a), taskCancel(a), taskResolve(a))
}

func (a *app) showTask(v any, t orbit.Task) error {
	return a.show(v, func() { a.taskFields(t) })
}

func (a *app) taskFields(t orbit.Task) {
	labels, failure := "", ""
	if len(t.Labels) > 0 {
		text, _ := json.Marshal(t.Labels) // a map of strings always marshals
		labels = string(text)
	}
	if t.Error != nil {
		failure = t.Error.Code + ": " + t.Error.Message
	}
	a.fields("id", t.ID, "queue", t.QueueID, "state", t.State, "revision", t.Revision, "retry safety", t.RetrySafety,
		"priority", strconv.Itoa(t.Priority), "attempts", fmt.Sprintf("%d of %d", t.Attempts, t.MaxAttempts),
		"effect uncertain", yes(t.EffectUncertain), "cancel requested", yes(t.CancelRequested), "labels", labels,
		"run at", stamp(t.RunAt), "created", stamp(t.CreatedAt), "finished", stampOf(t.FinishedAt),
		"input", string(t.Input), "result", string(t.Result), "error", failure)
}

func taskSubmit(a *app) *cobra.Command {
	var queue, file, batch, safety, runAt, key string
	var attempts, priority int
	var labels map[string]string
	c := &cobra.Command{Use: "submit [JSON]", Short: "Submit one task, or many from JSON lines", Args: argsCheck(cobra.MaximumNArgs(1)),
		Long: `Submit one task whose input is the argument, --file, or stdin (no argument, or -).

With --batch FILE (- is stdin) each line is one task's input, sent 500 at a time. The key of chunk n (from 1) is KEY-n, so that
repeating the whole command with the same --key submits nothing twice. Progress goes to stderr.`}
	f := c.Flags()
	f.StringVar(&queue, "queue", "", "queue id (required)")
	f.StringVar(&file, "file", "", "file that holds the input")
	f.StringVar(&batch, "batch", "", "file of JSON lines, an input each; - is stdin")
	f.StringVar(&safety, "retry-safety", "", "safe or unsafe (default unsafe): whether a lost attempt may be repeated")
	f.IntVar(&attempts, "max-attempts", 0, "1 to 100 (default 3)")
	f.IntVar(&priority, "priority", 0, "-100 to 100, higher first")
	f.StringVar(&runAt, "run-at", "", "not before this time (RFC 3339)")
	f.StringToStringVar(&labels, "label", nil, "NAME=VALUE, repeatable")
	keyFlag(c, &key)
	_ = c.MarkFlagRequired("queue") // it exists
	c.RunE = func(c *cobra.Command, args []string) error {
		r := orbit.SubmitTaskRequest{QueueID: queue, RetrySafety: safety, MaxAttempts: attempts, Priority: priority, Labels: labels}
		if runAt != "" {
			t, err := time.Parse(time.RFC3339, runAt)
			if err != nil {
				return usage("--run-at: must be a time like 2030-01-31T08:00:00Z")
			}
			r.RunAt = t
		}
		client, err := a.client()
		if err != nil {
			return err
		}
		if batch != "" {
			if len(args) > 0 || file != "" {
				return usage("--batch excludes an argument and --file")
			}
			return a.submitBatch(c.Context(), client, batch, keyOf(key), r)
		}
		if r.Input, err = a.input(args, file); err != nil {
			return err
		}
		done, err := client.SubmitTask(c.Context(), keyOf(key), r)
		if err != nil {
			return err
		}
		return a.showTask(done, done.Task)
	}
	return c
}

// input is the argument, the file, or stdin.
func (a *app) input(args []string, file string) (json.RawMessage, error) {
	switch {
	case len(args) > 0 && file != "":
		return nil, usage("the input comes from an argument or --file, not both")
	case file != "":
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, usage("--file: %v", err)
		}
		return text, nil
	case len(args) > 0 && args[0] != "-":
		return json.RawMessage(args[0]), nil
	}
	return io.ReadAll(io.LimitReader(a.in, orbit.MaxResult+1<<10)) // the server refuses what is over the limit
}

func taskList(a *app) *cobra.Command {
	var r orbit.ListTasksRequest
	var limit int
	c := &cobra.Command{Use: "list", Short: "List a queue's tasks", Args: exactly(0)}
	c.Flags().StringVar(&r.QueueID, "queue", "", "queue id (required)")
	c.Flags().StringVar(&r.State, "state", "", "QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED or NEEDS_REVIEW")
	c.Flags().StringVar(&r.Label, "label", "", "name:value")
	limitFlag(c, &limit)
	_ = c.MarkFlagRequired("queue") // it exists
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		r.Limit, r.State = 100, strings.ToUpper(r.State)
		return list(a, client.AllTasks(c.Context(), r), limit, "ID STATE ATTEMPTS PRIORITY CREATED FINISHED", func(t orbit.Task) []string {
			return []string{t.ID, t.State, fmt.Sprintf("%d/%d", t.Attempts, t.MaxAttempts), strconv.Itoa(t.Priority), stamp(t.CreatedAt), stampOf(t.FinishedAt)}
		})
	}
	return c
}

func taskShow(a *app) *cobra.Command {
	return &cobra.Command{Use: "show ID", Short: "Show a task and its attempts", Args: exactly(1),
		Long: "Show a task and its attempts. As JSON: {\"task\", \"attempts\"}, both the API's objects.",
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			t, err := client.GetTask(c.Context(), args[0])
			if err != nil {
				return err
			}
			attempts := []orbit.TaskAttempt{}
			for at, err := range client.AllTaskAttempts(c.Context(), args[0]) {
				if err != nil {
					return err
				}
				attempts = append(attempts, at)
			}
			return a.show(map[string]any{"task": t, "attempts": attempts}, func() {
				a.taskFields(*t)
				var rows [][]string
				for _, at := range attempts {
					failure := ""
					if at.Error != nil {
						failure = at.Error.Code + ": " + at.Error.Message
					}
					rows = append(rows, []string{strconv.Itoa(at.Number), at.State, at.Worker, stamp(at.StartedAt), stampOf(at.EndedAt), failure})
				}
				fmt.Fprintln(a.out)
				a.table("ATTEMPT STATE WORKER STARTED ENDED ERROR", rows)
			})
		}}
}

func taskCancel(a *app) *cobra.Command {
	var w write
	c := &cobra.Command{Use: "cancel ID", Short: "Cancel a task; a running one's worker is asked", Args: exactly(1)}
	w.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		rev, err := w.expected(taskRevision(c, client, args[0]))
		if err != nil {
			return err
		}
		done, err := client.CancelTask(c.Context(), args[0], keyOf(w.key), orbit.CancelTaskRequest{ExpectedRevision: rev, Reason: w.reason})
		if err != nil {
			return err
		}
		return a.showTask(done, done.Task)
	}
	return c
}

func taskResolve(a *app) *cobra.Command {
	var w write
	var outcome, result string
	c := &cobra.Command{Use: "resolve ID", Short: "Decide a task that needs review", Args: exactly(1)}
	c.Flags().StringVar(&outcome, "outcome", "", "succeeded, failed or requeue (required)")
	c.Flags().StringVar(&result, "result", "", "the result's JSON, with succeeded")
	w.flags(c)
	_ = c.MarkFlagRequired("outcome") // it exists
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		r := orbit.ResolveTaskRequest{Outcome: outcome, Reason: w.reason}
		if c.Flags().Changed("result") {
			r.Result = json.RawMessage(result)
		}
		if r.ExpectedRevision, err = w.expected(taskRevision(c, client, args[0])); err != nil {
			return err
		}
		done, err := client.ResolveTask(c.Context(), args[0], keyOf(w.key), r)
		if err != nil {
			return err
		}
		return a.showTask(done, done.Task)
	}
	return c
}

func taskRevision(c *cobra.Command, client *orbit.Client, id string) func() (string, error) {
	return func() (string, error) {
		t, err := client.GetTask(c.Context(), id)
		if err != nil {
			return "", err
		}
		return t.Revision, nil
	}
}
