package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"github.com/spf13/cobra"
)

func deliveryCommand(a *app) *cobra.Command {
	return group("delivery", "Deliveries: one event for one subscription", deliveryList(a), deliveryShow(a), deliveryRetry(a), deliveryRetryAll(a))
}

func deliveryList(a *app) *cobra.Command {
	var r orbit.ListEventDeliveriesRequest
	var limit int
	c := &cobra.Command{Use: "list SUBSCRIPTION", Short: "List a subscription's deliveries, newest first", Args: exactly(1)}
	c.Flags().StringVar(&r.State, "state", "", "PENDING, LEASED, ACKED or EXPIRED")
	limitFlag(c, &limit)
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		r.Limit, r.State = 100, strings.ToUpper(r.State)
		return list(a, client.AllEventDeliveries(c.Context(), args[0], r), limit, "ID SEQUENCE STATE ATTEMPTS CREATED ACKED", func(d orbit.EventDelivery) []string {
			return []string{d.ID, d.Sequence, d.State, fmt.Sprintf("%d/%d", d.Attempts, d.AttemptBudget), stamp(d.CreatedAt), stampOf(d.AcknowledgedAt)}
		})
	}
	return c
}

func deliveryShow(a *app) *cobra.Command {
	return &cobra.Command{Use: "show SUBSCRIPTION DELIVERY", Short: "Show a delivery, its event and its timeline", Args: exactly(2),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			d, err := client.GetEventDelivery(c.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			return a.show(d, func() {
				v := d.Delivery
				a.fields("id", v.ID, "subscription", v.SubscriptionID, "state", v.State, "revision", v.Revision, "attempts", fmt.Sprintf("%d of %d", v.Attempts, v.AttemptBudget),
					"event", d.Event.ID, "sequence", v.Sequence, "type", d.Event.Type, "task", d.Event.AggregateID, "result", string(d.Event.Snapshot.Result))
				fmt.Fprintf(a.out, "\n%s", timeline(*d))
			})
		}}
}

func deliveryRetry(a *app) *cobra.Command {
	var w write
	var more int
	c := &cobra.Command{Use: "retry SUBSCRIPTION DELIVERY", Short: "Give an EXPIRED delivery more attempts", Args: exactly(2)}
	c.Flags().IntVar(&more, "attempts", 5, "how many more, 1 to 100")
	w.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.client()
		if err != nil {
			return err
		}
		rev, err := w.expected(func() (string, error) {
			d, err := client.GetEventDelivery(c.Context(), args[0], args[1])
			if err != nil {
				return "", err
			}
			return d.Delivery.Revision, nil
		})
		if err != nil {
			return err
		}
		done, err := client.RetryEventDelivery(c.Context(), args[0], args[1], keyOf(w.key),
			orbit.RetryEventDeliveryRequest{ExpectedRevision: rev, Reason: w.reason, AdditionalAttempts: more})
		if err != nil {
			return err
		}
		return a.show(done, func() {
			a.fields("id", done.Delivery.ID, "state", done.Delivery.State, "attempts", fmt.Sprintf("%d of %d", done.Delivery.Attempts, done.Delivery.AttemptBudget))
		})
	}
	return c
}

// deliveryFilter selects among the EXPIRED deliveries of a subscription.
type deliveryFilter struct {
	from, to      uint64
	since, before time.Duration
}

func (f deliveryFilter) takes(d orbit.EventDelivery, now time.Time) bool {
	n, err := orbit.ParseCounter(d.Sequence)
	return err == nil && n >= f.from && (f.to == 0 || n <= f.to) &&
		(f.since == 0 || now.Sub(d.CreatedAt) <= f.since) && (f.before == 0 || now.Sub(d.CreatedAt) >= f.before)
}

func deliveryRetryAll(a *app) *cobra.Command {
	var f deliveryFilter
	var reason string
	var more int
	var rate float64
	var dry bool
	c := &cobra.Command{Use: "retry-all SUBSCRIPTION", Short: "Retry every EXPIRED delivery that the filter takes", Args: exactly(1)}
	fl := c.Flags()
	fl.Uint64Var(&f.from, "from-sequence", 0, "only from this sequence on")
	fl.Uint64Var(&f.to, "to-sequence", 0, "only up to this sequence (0: no end)")
	fl.DurationVar(&f.since, "newer-than", 0, "only those created within this time")
	fl.DurationVar(&f.before, "older-than", 0, "only those created before this time")
	fl.IntVar(&more, "attempts", 5, "how many more each, 1 to 100")
	fl.Float64Var(&rate, "rate", 20, "at most so many a second")
	fl.BoolVar(&dry, "dry-run", false, "only count them")
	fl.StringVar(&reason, "reason", "", "why, for the audit (required)")
	_ = c.MarkFlagRequired("reason") // it exists
	c.RunE = func(c *cobra.Command, args []string) error {
		if rate <= 0 || rate > 1000 {
			return usage("--rate: must be above 0 and at most 1000")
		}
		client, err := a.client()
		if err != nil {
			return err
		}
		// All are found first: a retried delivery leaves the list, and pages would shift under the reader.
		var found []orbit.EventDelivery
		for d, err := range client.AllEventDeliveries(c.Context(), args[0], orbit.ListEventDeliveriesRequest{State: orbit.DeliveryExpired, Limit: 100}) {
			if err != nil {
				return err
			}
			if f.takes(d, time.Now()) {
				found = append(found, d)
			}
		}
		sum := retrySum{Found: len(found)}
		if !dry {
			if err := a.retryEach(c.Context(), client, found, rate, &sum, orbit.RetryEventDeliveryRequest{Reason: reason, AdditionalAttempts: more}); err != nil {
				return err
			}
		}
		if err := a.show(sum, func() {
			fmt.Fprintf(a.out, "found %d, retried %d, moved on %d, failed %d\n", sum.Found, sum.Retried, sum.MovedOn, sum.Failed)
		}); err != nil {
			return err
		}
		if sum.Failed > 0 {
			return partial("%d of %d deliveries were not retried", sum.Failed, sum.Found)
		}
		return nil
	}
	return c
}

// retrySum is what retry-all prints; MovedOn are those that somebody else retried or acknowledged meanwhile.
type retrySum struct {
	Found   int `json:"found"`
	Retried int `json:"retried"`
	MovedOn int `json:"moved_on"`
	Failed  int `json:"failed"`
}

func (a *app) retryEach(ctx context.Context, client *orbit.Client, found []orbit.EventDelivery, rate float64, sum *retrySum, r orbit.RetryEventDeliveryRequest) error {
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	said := time.Now()
	for i := len(found) - 1; i >= 0; i-- { // oldest first
		d := found[i]
		r.ExpectedRevision = d.Revision
		// The key names the state that is retried, so that a repeated run cannot grow a budget twice.
		_, err := client.RetryEventDelivery(ctx, d.SubscriptionID, d.ID, "retry-all-"+d.ID+"-"+d.Revision, r)
		switch {
		case err == nil:
			sum.Retried++
		case errors.Is(err, orbit.ErrStateConflict):
			sum.MovedOn++
		case ctx.Err() != nil, exitCode(err) == exitDenied, exitCode(err) == exitUsage:
			return err
		default:
			sum.Failed++
			fmt.Fprintf(a.errs, "delivery %s: %v\n", d.ID, err)
		}
		if i == 0 || time.Since(said) > time.Second {
			fmt.Fprintf(a.errs, "%d of %d\n", len(found)-i, len(found))
			said = time.Now()
		}
		if i > 0 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}
