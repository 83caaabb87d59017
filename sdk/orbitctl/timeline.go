package main

import (
	"fmt"
	"strings"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// timeline draws a delivery's life as far as the API keeps it: times of the event, of the delivery and of the
// acknowledgement are exact; of leases only the newest has a time.
func timeline(d orbit.EventDeliveryDetail) string {
	var b strings.Builder
	v := d.Delivery
	line := func(at, what string) { fmt.Fprintf(&b, "%-24s  * %s\n", at, what) }
	line(stamp(d.Event.OccurredAt), fmt.Sprintf("appended to the log as %s (%s)", v.Sequence, d.Event.Type))
	line(stamp(v.CreatedAt), "delivery created")
	epochs, _ := orbit.ParseCounter(v.LeaseEpoch) // the server's own, so canonical; 0 draws no lease
	first := uint64(1)
	if epochs > 20 {
		first = epochs - 19
		line("", fmt.Sprintf("%d earlier leases", epochs-20))
	}
	for n := first; n <= epochs; n++ {
		what := fmt.Sprintf("lease %d: sent", n)
		switch {
		case n < epochs:
			what += ", not acknowledged"
		case v.State == orbit.DeliveryLeased && v.LeaseUntil != nil:
			what += ", to be acknowledged until " + stamp(*v.LeaseUntil)
		case v.State == orbit.DeliveryPending || v.State == orbit.DeliveryExpired:
			what += ", ran out or was given back"
		}
		line("", what)
	}
	switch v.State {
	case orbit.DeliveryAcked:
		line(stampOf(v.AcknowledgedAt), "acknowledged")
	case orbit.DeliveryPending:
		line(stamp(v.AvailableAt), "may be sent from here on")
	case orbit.DeliveryExpired:
		line("", fmt.Sprintf("EXPIRED: all %d attempts are used up; orbitctl delivery retry gives more", v.AttemptBudget))
	}
	return b.String()
}
