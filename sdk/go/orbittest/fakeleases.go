package orbittest

import (
	"errors"
	"strconv"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

func sequenceOf(e *event) orbit.Counter { return strconv.FormatUint(e.sequence, 10) }

func isLost(err error) bool { return errors.Is(err, orbit.ErrDeliveryLeaseLost) }

// leased finds the delivery of a proof that must still be out.
func (e *eventSession) leased(p deliveryProof) (*delivery, error) {
	d, err := e.prove(p)
	if err == nil && d.State != orbit.DeliveryLeased {
		return nil, refuse(orbit.ErrDeliveryLeaseLost, "delivery %s is %s and no longer leased", d.ID, d.State)
	}
	return d, err
}

func (e *eventSession) extend(f *frame) error {
	var p deliveryProof
	if err := decode(f.Body, &p); err != nil {
		return err
	}
	d, err := e.leased(p)
	if err != nil {
		return err
	}
	until := now().Add(e.fake.options.DeliveryLease)
	d.LeaseUntil = &until
	e.sendLease(f, d, "lease_until", until)
	return nil
}

func (e *eventSession) release(f *frame) error {
	var body struct {
		deliveryProof
		DelayMS *int  `json:"delay_ms"`
		Refund  *bool `json:"refund"`
	}
	if err := decode(f.Body, &body); err != nil {
		return err
	}
	if body.DelayMS == nil || body.Refund == nil {
		return refuse(orbit.ErrInvalidArgument, "delay_ms and refund are required")
	}
	if err := checkRange("delay_ms", *body.DelayMS, 0, 900_000); err != nil {
		return err
	}
	d, err := e.leased(body.deliveryProof)
	if err != nil {
		return err
	}
	if *body.Refund {
		d.Attempts--
	}
	d.free(orbit.DeliveryPending)
	d.AvailableAt = now().Add(time.Duration(*body.DelayMS) * time.Millisecond)
	e.sendLease(f, d, "available_at", d.AvailableAt)
	return nil
}

func (e *eventSession) sendLease(f *frame, d *delivery, name string, at time.Time) {
	text := encode(struct {
		DeliveryID string        `json:"delivery_id"`
		EventID    string        `json:"event_id"`
		Epoch      orbit.Counter `json:"epoch"`
	}{d.ID, d.EventID, d.LeaseEpoch})
	e.send("ack", f.MessageID, with(text, name, encode(at)))
}
