package orbit

import (
	"context"
	"time"
)

// AckResult is the server's record of an acknowledgement. Deduplicated means that it was recorded before;
// AcknowledgedAt is always the first time (R6.5).
type AckResult struct {
	DeliveryID     string    `json:"delivery_id"`
	EventID        string    `json:"event_id"`
	Epoch          Counter   `json:"epoch"`
	AcknowledgedAt time.Time `json:"acknowledged_at"`
	Deduplicated   bool      `json:"deduplicated"`
}

// Ack acknowledges a delivery that is safely saved. When the answer is lost, report the same proof again,
// on this or another connection. ErrDeliveryLeaseLost: a newer lease exists; what was saved stays, the
// event comes again.
func (c *EventConn) Ack(ctx context.Context, p Proof) (AckResult, error) {
	var r AckResult
	err := c.call(ctx, "event.ack", p.lease().body("delivery_id"), &r)
	return r, err
}

// AckItem is the answer for one proof of a batch: Err is nil or an *Error.
type AckItem struct {
	AckResult
	Err error
}

// AckBatch acknowledges 1–32 deliveries in one frame and answers for each, in order (R6.10).
func (c *EventConn) AckBatch(ctx context.Context, proofs []Proof) ([]AckItem, error) {
	leases := make([]lease, len(proofs))
	for i, p := range proofs {
		leases[i] = p.lease()
	}
	var reply struct {
		Results []struct {
			AckResult
			Error *wireError `json:"error"`
		} `json:"results"`
	}
	if err := c.call(ctx, "event.ack_batch", list("acks", "delivery_id", leases), &reply); err != nil {
		return nil, err
	}
	if len(reply.Results) != len(proofs) {
		return nil, &Error{Code: ErrInternal, Message: "the batch was answered with another number of results"}
	}
	items := make([]AckItem, len(proofs))
	for i, r := range reply.Results {
		items[i] = AckItem{AckResult: r.AckResult, Err: r.Error.err()}
	}
	return items, nil
}

// Extend renews the lease for another full duration and returns its new end (R6.10).
func (c *EventConn) Extend(ctx context.Context, p Proof) (time.Time, error) {
	var r struct {
		LeaseUntil time.Time `json:"lease_until"`
	}
	err := c.call(ctx, "event.extend", p.lease().body("delivery_id"), &r)
	return r.LeaseUntil, err
}

// Release gives a lease back, available again after delay (0–15 min, in whole milliseconds). refund, for
// work that was never started, gives the attempt back too (R6.10).
func (c *EventConn) Release(ctx context.Context, p Proof, delay time.Duration, refund bool) error {
	var r struct{}
	return c.call(ctx, "event.release", releaseBody(p.lease(), delay, refund), &r)
}

func releaseBody(l lease, delay time.Duration, refund bool) []byte {
	o := l.members("delivery_id")
	o.put("delay_ms", min(max(delay, 0), maxReleaseDelay).Milliseconds())
	o.put("refund", refund)
	return o.done()
}

const maxReleaseDelay = 15 * time.Minute
