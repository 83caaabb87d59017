package main

import (
	"strconv"
	"strings"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"github.com/spf13/cobra"
)

func flowCommand(a *app) *cobra.Command {
	return group("flow", "Flows: DAGs of tasks", flowCreate(a), flowPublish(a), flowList(a), flowShow(a), flowStart(a), flowRuns(a))
}

func (a *app) showFlow(v any, f orbit.Flow) error {
	return a.show(v, func() {
		a.fields("id", f.ID, "name", f.Name, "revision", f.Revision, "version", strconv.Itoa(f.Version), "created", stamp(f.CreatedAt), "updated", stamp(f.UpdatedAt))
	})
}

func flowCreate(a *app) *cobra.Command {
	var key string
	c := &cobra.Command{Use: "create FILE", Short: "Create a flow and its first version", Args: exactly(1), Long: `Create a flow and its first version from a JSON file (- is stdin):

  {"name": "import", "steps": [
    {"name": "fetch", "queue_id": "…", "input": {"url": {"$run": "/url"}}, "retry_safety": "safe"},
    {"name": "load", "queue_id": "…", "depends_on": ["fetch"], "input": {"rows": {"$step": "fetch", "path": "/rows"}}}]}`}
	keyFlag(c, &key)
	c.RunE = func(c *cobra.Command, args []string) error {
		var r orbit.CreateFlowRequest
		if err := a.document(args[0], &r); err != nil {
			return err
		}
		client, err := a.client()
		if err != nil {
			return err
		}
		done, err := client.CreateFlow(c.Context(), keyOf(key), r)
		if err != nil {
			return err
		}
		return a.showFlow(done, done.Flow)
	}
	return c
}

func flowPublish(a *app) *cobra.Command {
	var w write
	c := &cobra.Command{Use: "publish ID FILE", Short: `Publish a new version from a JSON file {"steps": […]}; runs keep theirs`, Args: exactly(2)}
	w.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		var content struct {
			Steps []orbit.FlowStep `json:"steps"`
		}
		if err := a.document(args[1], &content); err != nil {
			return err
		}
		client, err := a.client()
		if err != nil {
			return err
		}
		rev, err := w.expected(func() (string, error) {
			f, err := client.GetFlow(c.Context(), args[0])
			if err != nil {
				return "", err
			}
			return f.Revision, nil
		})
		if err != nil {
			return err
		}
		done, err := client.PublishFlow(c.Context(), args[0], keyOf(w.key), orbit.PublishFlowRequest{ExpectedRevision: rev, Reason: w.reason, Steps: content.Steps})
		if err != nil {
			return err
		}
		return a.showFlow(done, done.Flow)
	}
	return c
}

func flowList(a *app) *cobra.Command {
	var limit int
	c := &cobra.Command{Use: "list", Short: "List the flows in reach", Args: exactly(0)}
	limitFlag(c, &limit)
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		return list(a, client.AllFlows(c.Context()), limit, "ID NAME VERSION REVISION UPDATED", func(f orbit.Flow) []string {
			return []string{f.ID, f.Name, strconv.Itoa(f.Version), f.Revision, stamp(f.UpdatedAt)}
		})
	}
	return c
}

func flowShow(a *app) *cobra.Command {
	var version int
	c := &cobra.Command{Use: "show ID", Short: "Show a flow's version with its steps", Args: exactly(1)}
	c.Flags().IntVar(&version, "version", 0, "which (default: the newest)")
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		f, err := client.GetFlow(c.Context(), args[0])
		if err != nil {
			return err
		}
		if version == 0 {
			version = f.Version
		}
		v, err := client.GetFlowVersion(c.Context(), args[0], version)
		if err != nil {
			return err
		}
		return a.show(v, func() {
			a.fields("id", f.ID, "name", f.Name, "revision", f.Revision, "version", strconv.Itoa(v.Version), "published", stamp(v.CreatedAt))
			rows := make([][]string, len(v.Steps))
			for i, s := range v.Steps {
				rows[i] = []string{s.Name, s.QueueID, strings.Join(s.DependsOn, ","), string(s.Input)}
			}
			a.table("STEP QUEUE AFTER INPUT", rows)
		})
	}
	return c
}

func flowStart(a *app) *cobra.Command {
	var r orbit.StartFlowRequest
	var file, key string
	c := &cobra.Command{Use: "start ID [JSON]", Short: "Start a run; its input is the argument, --file, or stdin (-)", Args: argsCheck(cobra.RangeArgs(1, 2))}
	f := c.Flags()
	f.StringVar(&file, "file", "", "file that holds the input")
	f.IntVar(&r.Version, "version", 0, "which (default: the newest)")
	f.StringToStringVar(&r.Labels, "label", nil, "NAME=VALUE, repeatable")
	keyFlag(c, &key)
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 1 || file != "" {
			input, err := a.input(args[1:], file)
			if err != nil {
				return err
			}
			r.Input = input
		}
		client, err := a.client()
		if err != nil {
			return err
		}
		done, err := client.StartFlow(c.Context(), args[0], keyOf(key), r)
		if err != nil {
			return err
		}
		return a.showRun(done, done.Run)
	}
	return c
}

func flowRuns(a *app) *cobra.Command {
	var r orbit.ListRunsRequest
	var limit int
	c := &cobra.Command{Use: "runs ID", Short: "List a flow's runs, newest first", Args: exactly(1)}
	c.Flags().StringVar(&r.State, "state", "", "RUNNING, PAUSED, WAITING_REVIEW, SUCCEEDED, FAILED or CANCELLED")
	limitFlag(c, &limit)
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		r.FlowID, r.Limit, r.State = args[0], 100, strings.ToUpper(r.State)
		return list(a, client.AllRuns(c.Context(), r), limit, "ID STATE ENDING VERSION CREATED FINISHED", func(r orbit.Run) []string {
			return []string{r.ID, r.State, r.Ending, strconv.Itoa(r.Version), stamp(r.CreatedAt), stampOf(r.FinishedAt)}
		})
	}
	return c
}
