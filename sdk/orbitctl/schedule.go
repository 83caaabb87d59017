package main

import (
	"context"
	"fmt"
	"strconv"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"github.com/spf13/cobra"
)

func scheduleCommand(a *app) *cobra.Command {
	command := func(verb, short string, do func(*orbit.Client, context.Context, string, string, orbit.ScheduleCommandRequest) (*orbit.ScheduleResult, error)) *cobra.Command {
		return scheduleWrite(a, verb, short, func(ctx context.Context, c *orbit.Client, id, key string, r orbit.ScheduleCommandRequest) error {
			done, err := do(c, ctx, id, key, r)
			if err != nil {
				return err
			}
			return a.showSchedule(done, done.Schedule)
		})
	}
	return group("schedule", "Schedules: tasks that recur", scheduleCreate(a), scheduleUpdate(a), scheduleList(a), scheduleShow(a),
		command("publish", "Let the draft fire from now on", (*orbit.Client).PublishSchedule),
		command("pause", "Fire nothing more", (*orbit.Client).PauseSchedule),
		command("resume", "Fire again, from now on", (*orbit.Client).ResumeSchedule),
		scheduleWrite(a, "run", "Submit one task now, beside the schedule", func(ctx context.Context, c *orbit.Client, id, key string, r orbit.ScheduleCommandRequest) error {
			done, err := c.RunSchedule(ctx, id, key, r)
			if err != nil {
				return err
			}
			return a.show(done, func() { a.fields("task", done.Fire.TaskID, "fired", stamp(done.Fire.FireAt)) })
		}),
		schedulePreview(a), scheduleFires(a))
}

func timing(v *orbit.ScheduleVersion) string {
	switch {
	case v == nil:
		return ""
	case v.Cron != "":
		return fmt.Sprintf("version %d: %s (%s), catch up %s", v.Version, v.Cron, v.TimeZone, v.CatchUp)
	}
	return fmt.Sprintf("version %d: every %d s, catch up %s", v.Version, v.Every, v.CatchUp)
}

func (a *app) showSchedule(v any, s orbit.Schedule) error {
	return a.show(v, func() {
		a.fields("id", s.ID, "name", s.Name, "queue", s.QueueID, "state", s.State, "revision", s.Revision, "published", timing(s.Published),
			"draft", timing(s.Draft), "next fire", stampOf(s.NextFireAt), "last fire", stampOf(s.LastFireAt), "created", stamp(s.CreatedAt))
	})
}

func scheduleCreate(a *app) *cobra.Command {
	var key string
	c := &cobra.Command{Use: "create FILE", Short: "Make a draft; nothing fires before publish", Args: exactly(1), Long: `Make a draft from a JSON file (- is stdin); nothing fires before publish:

  {"name": "nightly", "queue_id": "…", "cron": "30 2 * * *", "time_zone": "Europe/Berlin", "catch_up": "one",
   "task": {"input": {"report": "sales"}, "retry_safety": "safe"}}

"every" (seconds) may stand instead of "cron".`}
	keyFlag(c, &key)
	c.RunE = func(c *cobra.Command, args []string) error {
		var r orbit.CreateScheduleRequest
		if err := a.document(args[0], &r); err != nil {
			return err
		}
		client, err := a.client()
		if err != nil {
			return err
		}
		done, err := client.CreateSchedule(c.Context(), keyOf(key), r)
		if err != nil {
			return err
		}
		return a.showSchedule(done, done.Schedule)
	}
	return c
}

func scheduleUpdate(a *app) *cobra.Command {
	var w write
	c := &cobra.Command{Use: "update ID FILE", Short: "Make a new draft from a JSON file, as create does but without name and queue_id", Args: exactly(2)}
	w.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		r := orbit.UpdateScheduleRequest{Reason: w.reason}
		if err := a.document(args[1], &r.ScheduleSpec); err != nil {
			return err
		}
		client, err := a.client()
		if err != nil {
			return err
		}
		if r.ExpectedRevision, err = w.expected(scheduleRevision(c.Context(), client, args[0])); err != nil {
			return err
		}
		done, err := client.UpdateSchedule(c.Context(), args[0], keyOf(w.key), r)
		if err != nil {
			return err
		}
		return a.showSchedule(done, done.Schedule)
	}
	return c
}

func scheduleRevision(ctx context.Context, client *orbit.Client, id string) func() (string, error) {
	return func() (string, error) {
		s, err := client.GetSchedule(ctx, id)
		if err != nil {
			return "", err
		}
		return s.Revision, nil
	}
}

func scheduleWrite(a *app, verb, short string, do func(ctx context.Context, c *orbit.Client, id, key string, r orbit.ScheduleCommandRequest) error) *cobra.Command {
	var w write
	c := &cobra.Command{Use: verb + " ID", Short: short, Args: exactly(1)}
	w.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		rev, err := w.expected(scheduleRevision(c.Context(), client, args[0]))
		if err != nil {
			return err
		}
		return do(c.Context(), client, args[0], keyOf(w.key), orbit.ScheduleCommandRequest{ExpectedRevision: rev, Reason: w.reason})
	}
	return c
}

func scheduleList(a *app) *cobra.Command {
	var queue string
	var limit int
	c := &cobra.Command{Use: "list", Short: "List schedules", Args: exactly(0)}
	c.Flags().StringVar(&queue, "queue", "", "only of this queue id")
	limitFlag(c, &limit)
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		all := client.AllSchedules(c.Context(), orbit.ListSchedulesRequest{QueueID: queue, Limit: 100})
		return list(a, all, limit, "ID NAME STATE NEXT LAST REVISION", func(s orbit.Schedule) []string {
			return []string{s.ID, s.Name, s.State, stampOf(s.NextFireAt), stampOf(s.LastFireAt), s.Revision}
		})
	}
	return c
}

func scheduleShow(a *app) *cobra.Command {
	return &cobra.Command{Use: "show ID", Short: "Show a schedule", Args: exactly(1), RunE: func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		s, err := client.GetSchedule(c.Context(), args[0])
		if err != nil {
			return err
		}
		return a.showSchedule(s, *s)
	}}
}

func schedulePreview(a *app) *cobra.Command {
	var r orbit.PreviewScheduleRequest
	var draft bool
	c := &cobra.Command{Use: "preview ID", Short: "Show the next fire times", Args: exactly(1)}
	c.Flags().BoolVar(&draft, "draft", false, "of the draft (default: of the published version, if there is one)")
	c.Flags().IntVar(&r.Count, "count", 10, "how many, 1 to 100")
	c.RunE = func(c *cobra.Command, args []string) error {
		if draft {
			r.Version = "draft"
		}
		client, err := a.client()
		if err != nil {
			return err
		}
		next, err := client.PreviewSchedule(c.Context(), args[0], r)
		if err != nil {
			return err
		}
		return a.show(map[string][]orbit.UpcomingFire{"items": next}, func() {
			rows := make([][]string, len(next))
			for i, f := range next {
				rows[i] = []string{stamp(f.FireAt), f.LocalTime}
			}
			a.table("UTC LOCAL", rows)
		})
	}
	return c
}

func scheduleFires(a *app) *cobra.Command {
	var limit int
	c := &cobra.Command{Use: "fires ID", Short: "Show what became of each fire time, newest first", Args: exactly(1)}
	limitFlag(c, &limit)
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		return list(a, client.AllScheduleFires(c.Context(), args[0]), limit, "FIRE STATE MANUAL VERSION TASK SKIPPED REASON", func(f orbit.ScheduleFire) []string {
			skipped := ""
			if f.Skipped > 0 {
				skipped = strconv.Itoa(f.Skipped)
			}
			return []string{stamp(f.FireAt), f.State, yes(f.Manual), strconv.Itoa(f.Version), f.TaskID, skipped, f.Reason}
		})
	}
	return c
}
