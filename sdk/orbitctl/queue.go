package main

import (
	"strconv"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"github.com/spf13/cobra"
)

func queueCommand(a *app) *cobra.Command {
	return group("queue", "Queues: where tasks wait", queueCreate(a), queueList(a), queueShow(a), queueConfigure(a))
}

func (a *app) showQueue(v any, q orbit.Queue) error {
	return a.show(v, func() {
		a.fields("id", q.ID, "name", q.Name, "revision", q.Revision, "paused", yes(q.Paused), "max running", maxRunning(q),
			"lease", lease(q), "created", stamp(q.CreatedAt), "updated", stamp(q.UpdatedAt), "retired", stampOf(q.RetiredAt))
	})
}

func maxRunning(q orbit.Queue) string {
	if q.MaxRunning == 0 {
		return "no limit"
	}
	return strconv.Itoa(q.MaxRunning)
}

func lease(q orbit.Queue) string {
	return (time.Duration(q.LeaseDurationMS) * time.Millisecond).String()
}

func queueCreate(a *app) *cobra.Command {
	var max int
	var lease time.Duration
	var key string
	c := &cobra.Command{Use: "create NAME", Short: "Create a queue", Args: exactly(1)}
	c.Flags().IntVar(&max, "max-running", 0, "how many tasks may run at once; 0: no limit")
	c.Flags().DurationVar(&lease, "lease", 0, "a worker's lease, 5s to 1h (0: the server's default)")
	keyFlag(c, &key)
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		r, err := client.CreateQueue(c.Context(), keyOf(key), orbit.CreateQueueRequest{Name: args[0], MaxRunning: max, LeaseDurationMS: lease.Milliseconds()})
		if err != nil {
			return err
		}
		return a.showQueue(r, r.Queue)
	}
	return c
}

func queueList(a *app) *cobra.Command {
	var limit int
	c := &cobra.Command{Use: "list", Short: "List the queues in reach", Args: exactly(0)}
	limitFlag(c, &limit)
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		return list(a, client.AllQueues(c.Context()), limit, "ID NAME PAUSED MAX-RUNNING LEASE REVISION", func(q orbit.Queue) []string {
			return []string{q.ID, q.Name, yes(q.Paused), maxRunning(q), lease(q), q.Revision}
		})
	}
	return c
}

func queueShow(a *app) *cobra.Command {
	return &cobra.Command{Use: "show ID", Short: "Show a queue", Args: exactly(1), RunE: func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		q, err := client.GetQueue(c.Context(), args[0])
		if err != nil {
			return err
		}
		return a.showQueue(q, *q)
	}}
}

func queueConfigure(a *app) *cobra.Command {
	var pause, resume bool
	var max int
	var lease time.Duration
	var w write
	c := &cobra.Command{Use: "configure ID", Short: "Pause, resume, or change a queue's limits", Args: exactly(1)}
	f := c.Flags()
	f.BoolVar(&pause, "pause", false, "start no new attempts; submits go on")
	f.BoolVar(&resume, "resume", false, "start attempts again")
	f.IntVar(&max, "max-running", 0, "how many tasks may run at once; 0: no limit")
	f.DurationVar(&lease, "lease", 0, "a worker's lease, 5s to 1h")
	w.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		r := orbit.ConfigureQueueRequest{Reason: w.reason}
		if pause && resume {
			return usage("--pause and --resume exclude each other")
		}
		if pause || resume {
			r.Paused = &pause
		}
		if f.Changed("max-running") {
			r.MaxRunning = &max
		}
		if f.Changed("lease") {
			r.LeaseDurationMS = orbit.Ptr(lease.Milliseconds())
		}
		if r.Paused == nil && r.MaxRunning == nil && r.LeaseDurationMS == nil {
			return usage("nothing to change: give --pause, --resume, --max-running or --lease")
		}
		client, err := a.client()
		if err != nil {
			return err
		}
		if r.ExpectedRevision, err = w.expected(func() (string, error) {
			q, err := client.GetQueue(c.Context(), args[0])
			if err != nil {
				return "", err
			}
			return q.Revision, nil
		}); err != nil {
			return err
		}
		done, err := client.ConfigureQueue(c.Context(), args[0], keyOf(w.key), r)
		if err != nil {
			return err
		}
		return a.showQueue(done, done.Queue)
	}
	return c
}
