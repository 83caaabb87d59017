package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"github.com/spf13/cobra"
)

func consumeCommand(a *app) *cobra.Command {
	var after string
	var concurrency, max int
	var drain time.Duration
	c := &cobra.Command{Use: "consume SUBSCRIPTION", Short: "Print events as JSON lines and acknowledge them", Args: exactly(1),
		Long: `Print each event as a line of JSON, {"delivery", "event"}, and acknowledge it after the line was written.

With --ack-after 'COMMAND' the event alone is COMMAND's stdin, and it is acknowledged only when COMMAND exits 0; otherwise the event
comes again. COMMAND's environment has ORBIT_EVENT_ID, ORBIT_DELIVERY_ID and ORBIT_EVENT_TYPE, and no token. Delivery is at-least-once:
COMMAND must bear the same event id twice. SIGTERM and SIGINT stop receiving, let running commands end, and exit 0.`}
	f := c.Flags()
	f.StringVar(&after, "ack-after", "", "run this for each event, and acknowledge when it exits 0")
	f.IntVar(&concurrency, "concurrency", 1, "how many events at once, 1 to 32")
	f.IntVar(&max, "max", 0, "end after so many acknowledgements; 0: never")
	f.DurationVar(&drain, "drain-timeout", 20*time.Second, "how long running commands may take after a signal")
	c.RunE = func(c *cobra.Command, args []string) error {
		if concurrency < 1 || concurrency > 32 {
			return usage("--concurrency: must be 1 to 32")
		}
		url, token, err := a.socket()
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(c.Context())
		defer stop()
		var mu sync.Mutex
		acked := 0
		consumer := orbit.Consumer{
			URL: url, Token: token, SubscriptionID: args[0], Concurrency: concurrency, DrainTimeout: drain, InsecureHTTP: a.insecure,
			Handler: func(ctx context.Context, d *orbit.Delivery) error {
				if after != "" {
					env := []string{"ORBIT_EVENT_ID=" + d.Event.ID, "ORBIT_DELIVERY_ID=" + d.ID, "ORBIT_EVENT_TYPE=" + d.Event.Type}
					_, tail, err := shell(ctx, after, append(bytes.Clone(d.RawEvent), '\n'), env, 0)
					if err != nil {
						return fmt.Errorf("--ack-after: %w: %s", err, tail)
					}
				}
				return printDelivery(a, &mu, d)
			},
			OnAck: func(orbit.AckResult) {
				mu.Lock()
				defer mu.Unlock()
				if acked++; acked == max {
					stop()
				}
			},
			OnDisconnect: func(err error) {
				if ctx.Err() == nil {
					fmt.Fprintf(a.errs, "disconnected: %v\n", err)
				}
			},
			OnError: func(err orbit.DeliveryError) { fmt.Fprintf(a.errs, "not acknowledged: %v\n", err) },
		}
		return consumer.Run(ctx)
	}
	return c
}

// printDelivery writes one line; the event's text stays as it was sent, but for space between its members.
func printDelivery(a *app, mu *sync.Mutex, d *orbit.Delivery) error {
	delivery, err := json.Marshal(d.EventDelivery)
	if err != nil {
		return err
	}
	line := bytes.NewBufferString(`{"delivery":`)
	line.Write(delivery)
	line.WriteString(`,"event":`)
	if err := json.Compact(line, d.RawEvent); err != nil {
		return err
	}
	line.WriteString("}\n")
	mu.Lock()
	defer mu.Unlock()
	_, err = a.out.Write(line.Bytes())
	return err
}
