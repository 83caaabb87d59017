package main

import (
	"context"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"github.com/spf13/cobra"
)

func retireCommand(a *app) *cobra.Command {
	return group("retire", "End a queue or a subscription for ever; what is in the way is named and nothing changes",
		retire("queue", "Retire a queue: nothing depends on it any more", func(ctx context.Context, id string, w *write) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			rev, err := w.expected(func() (string, error) {
				q, err := client.GetQueue(ctx, id)
				if err != nil {
					return "", err
				}
				return q.Revision, nil
			})
			if err != nil {
				return err
			}
			done, err := client.RetireQueue(ctx, id, keyOf(w.key), orbit.RetireResourceRequest{ExpectedRevision: rev, Reason: w.reason})
			if err != nil {
				return err
			}
			return a.showQueue(done, done.Queue)
		}),
		retire("subscription", "Retire a subscription: all it was owed is acknowledged", func(ctx context.Context, id string, w *write) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			rev, err := w.expected(func() (string, error) {
				s, err := client.GetSubscription(ctx, id)
				if err != nil {
					return "", err
				}
				return s.Revision, nil
			})
			if err != nil {
				return err
			}
			done, err := client.RetireSubscription(ctx, id, keyOf(w.key), orbit.RetireResourceRequest{ExpectedRevision: rev, Reason: w.reason})
			if err != nil {
				return err
			}
			return a.showSubscription(done, done.Subscription)
		}))
}

func retire(kind, short string, do func(ctx context.Context, id string, w *write) error) *cobra.Command {
	var w write
	c := &cobra.Command{Use: kind + " ID", Short: short, Args: exactly(1)}
	w.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error { return do(c.Context(), args[0], &w) }
	return c
}
