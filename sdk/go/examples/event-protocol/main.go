// Event-protocol receives one event, saves it with its proof, and acknowledges, now or from another process.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// saved is what a receiver keeps until the acknowledgement was answered.
type saved struct {
	Event json.RawMessage `json:"event"`
	Proof orbit.Proof     `json:"proof"`
}

func main() {
	if len(os.Args) != 4 || os.Args[1] != "receive" && os.Args[1] != "report" {
		fmt.Fprintln(os.Stderr, "usage: event-protocol receive|report SUBSCRIPTION_ID FILE")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command, subscription, file string) error {
	conn, err := orbit.DialEvents(ctx, orbit.EventOptions{
		URL: os.Getenv("ORBIT_GATEWAY_URL"), Token: os.Getenv("ORBIT_TOKEN"), SubscriptionID: subscription, Capacity: 1})
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Println("session", conn.Welcome.SessionID, "lease", conn.Welcome.LeaseDuration)
	var s saved
	if command == "receive" {
		if s, err = receive(ctx, conn, file); err != nil {
			return err
		}
		if os.Getenv("EXAMPLE_DIE") != "" { // the moment that all this is about
			os.Exit(3)
		}
	} else if s, err = read(file); err != nil {
		return err
	}
	ack, err := conn.Ack(ctx, s.Proof)
	if errors.Is(err, orbit.ErrDeliveryLeaseLost) {
		return fmt.Errorf("the event is saved and will come again under a newer lease: %w", err)
	}
	if err != nil {
		return err // unknown: report again
	}
	fmt.Println("acknowledged", ack.DeliveryID, "at", ack.AcknowledgedAt.Format(time.RFC3339Nano), "deduplicated", ack.Deduplicated)
	return nil
}

func receive(ctx context.Context, conn *orbit.EventConn, file string) (saved, error) {
	d, err := conn.Receive(ctx)
	if err != nil {
		return saved{}, err
	}
	fmt.Println("received", d.Event.Type, "of task", d.Event.AggregateID, "attempt", d.Attempts)
	s := saved{Event: d.RawEvent, Proof: d.Proof()}
	return s, write(file, s)
}

// write returns when the file is on the disk.
func write(file string, s saved) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(s), f.Sync(), f.Close())
}

func read(file string) (s saved, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}
