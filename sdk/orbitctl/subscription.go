package main

import (
	"fmt"
	"strconv"
	"strings"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"github.com/spf13/cobra"
)

func subscriptionCommand(a *app) *cobra.Command {
	return group("subscription", "Subscriptions: durable readers of a queue's results", subscriptionCreate(a), subscriptionList(a),
		subscriptionShow(a), subscriptionSwitch(a, "pause", false), subscriptionSwitch(a, "resume", true))
}

func (a *app) showSubscription(v any, s orbit.Subscription) error {
	return a.show(v, func() {
		a.fields("id", s.ID, "name", s.Name, "queue", s.QueueID, "revision", s.Revision, "enabled", yes(s.Enabled),
			"types", strings.Join(s.Types, ", "), "cursor", s.CursorSequence, "pending", fmt.Sprintf("%d of %d", s.PendingCount, s.MaxPending),
			"max attempts", strconv.Itoa(s.MaxAttempts), "created", stamp(s.CreatedAt), "retired", stampOf(s.RetiredAt))
	})
}

func subscriptionCreate(a *app) *cobra.Command {
	var r orbit.CreateSubscriptionRequest
	var key string
	c := &cobra.Command{Use: "create NAME", Short: "Create a subscription", Args: exactly(1)}
	f := c.Flags()
	f.StringVar(&r.QueueID, "queue", "", "queue id (required)")
	f.StringSliceVar(&r.Types, "type", nil, "task.succeeded, task.failed, task.cancelled, task.needs_review (default: all)")
	f.StringVar(&r.FromSequence, "from", "", "deliver events after this sequence; 0: all that the log holds (default: after the present head)")
	f.IntVar(&r.MaxPending, "max-pending", 0, "1 to 1000 (default 100)")
	f.IntVar(&r.MaxAttempts, "max-attempts", 0, "1 to 100 sends of one event (default 20)")
	keyFlag(c, &key)
	_ = c.MarkFlagRequired("queue") // it exists
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		r.Name = args[0]
		done, err := client.CreateSubscription(c.Context(), keyOf(key), r)
		if err != nil {
			return err
		}
		return a.showSubscription(done, done.Subscription)
	}
	return c
}

func subscriptionList(a *app) *cobra.Command {
	var queue string
	var limit int
	c := &cobra.Command{Use: "list", Short: "List this credential's subscriptions of a queue", Args: exactly(0)}
	c.Flags().StringVar(&queue, "queue", "", "queue id (required)")
	limitFlag(c, &limit)
	_ = c.MarkFlagRequired("queue") // it exists
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		all := client.AllSubscriptions(c.Context(), orbit.ListSubscriptionsRequest{QueueID: queue, Limit: 100})
		return list(a, all, limit, "ID NAME ENABLED PENDING CURSOR REVISION", func(s orbit.Subscription) []string {
			return []string{s.ID, s.Name, yes(s.Enabled), fmt.Sprintf("%d/%d", s.PendingCount, s.MaxPending), s.CursorSequence, s.Revision}
		})
	}
	return c
}

func subscriptionShow(a *app) *cobra.Command {
	return &cobra.Command{Use: "show ID", Short: "Show a subscription", Args: exactly(1), RunE: func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		s, err := client.GetSubscription(c.Context(), args[0])
		if err != nil {
			return err
		}
		return a.showSubscription(s, *s)
	}}
}

func subscriptionSwitch(a *app, verb string, enabled bool) *cobra.Command {
	var w write
	c := &cobra.Command{Use: verb + " ID", Short: strings.ToUpper(verb[:1]) + verb[1:] + " a subscription", Args: exactly(1)}
	w.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		rev, err := w.expected(func() (string, error) {
			s, err := client.GetSubscription(c.Context(), args[0])
			if err != nil {
				return "", err
			}
			return s.Revision, nil
		})
		if err != nil {
			return err
		}
		done, err := client.ConfigureSubscription(c.Context(), args[0], keyOf(w.key),
			orbit.ConfigureSubscriptionRequest{ExpectedRevision: rev, Enabled: enabled, Reason: w.reason})
		if err != nil {
			return err
		}
		return a.showSubscription(done, done.Subscription)
	}
	return c
}
