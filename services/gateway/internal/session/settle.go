package session

import (
	"sync"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/pipeline"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/wire"
)

type proof struct {
	DeliveryID  *ids.ID      `json:"delivery_id"`
	Epoch       *ids.Counter `json:"epoch"`
	LeaseSecret *ids.Secret  `json:"lease_secret"`
}

func (p *proof) validate() (delivery.Proof, error) {
	switch {
	case p.DeliveryID == nil:
		return delivery.Proof{}, errs.Invalid("delivery_id", "is required")
	case p.Epoch == nil:
		return delivery.Proof{}, errs.Invalid("epoch", "is required")
	case p.LeaseSecret == nil:
		return delivery.Proof{}, errs.Invalid("lease_secret", "is required")
	}
	return delivery.Proof{DeliveryID: *p.DeliveryID, Epoch: *p.Epoch, Digest: p.LeaseSecret.Digest()}, nil
}

func (s *session) ack(frame *wire.Frame) error {
	var body proof
	if err := frame.Decode(&body); err != nil {
		return err
	}
	return s.settle(frame, &body, delivery.Command{Kind: delivery.Ack}, "acknowledged_at")
}

func (s *session) release(frame *wire.Frame) error {
	var body struct {
		proof
		DelayMS *int  `json:"delay_ms"`
		Refund  *bool `json:"refund"`
	}
	if err := frame.Decode(&body); err != nil {
		return err
	}
	if ms := body.DelayMS; ms == nil || *ms < 0 || *ms > int(delivery.MaxDelay/time.Millisecond) {
		return errs.Invalid("delay_ms", "is required, 0…%d", delivery.MaxDelay/time.Millisecond)
	}
	if body.Refund == nil {
		return errs.Invalid("refund", "is required")
	}
	return s.settle(frame, &body.proof, delivery.Command{
		Kind: delivery.Release, Delay: time.Duration(*body.DelayMS) * time.Millisecond, Refund: *body.Refund,
	}, "available_at")
}

func (s *session) extend(frame *wire.Frame) error {
	var body proof
	if err := frame.Decode(&body); err != nil {
		return err
	}
	return s.settle(frame, &body, delivery.Command{Kind: delivery.Extend}, "lease_until")
}

// settle commits one command and answers it.
func (s *session) settle(frame *wire.Frame, body *proof, c delivery.Command, timeName string) error {
	p, err := body.validate()
	if err != nil {
		return err
	}
	c.Proof = p
	replyTo := frame.MessageID
	s.underWay.Add(1)
	s.server.Settle.Add(s.sub, pipeline.Settlement{Credential: s.peer.Caller.CredentialID, Command: c, Reply: func(r store.Settled) {
		s.underWay.Add(-1)
		if r.Err != nil {
			s.fail(r.Err, &replyTo)
			return
		}
		b := wire.Open(make([]byte, 0, 448), "ack", &replyTo, &s.id)
		s.conn.Send(wire.Close(appendSettled(b, c, r, timeName)))
	}})
	return nil
}

func appendSettled(b []byte, c delivery.Command, r store.Settled, timeName string) []byte {
	b = append(b, `{"delivery_id":`...)
	b = wire.AppendID(b, c.Proof.DeliveryID)
	b = append(b, `,"event_id":`...)
	b = wire.AppendID(b, r.EventID)
	b = append(b, `,"epoch":`...)
	b = wire.AppendCounter(b, c.Proof.Epoch)
	b = append(append(append(b, `,"`...), timeName...), `":`...)
	b = wire.AppendTime(b, r.At)
	if c.Kind == delivery.Ack {
		b = append(b, `,"deduplicated":`...)
		b = wire.AppendBool(b, r.Deduplicated)
	}
	return append(b, '}')
}

// ackBatch acknowledges up to 32 deliveries in one frame, answered one by one (R6.10).
func (s *session) ackBatch(frame *wire.Frame) error {
	var body struct {
		Acks []proof `json:"acks"`
	}
	if err := frame.Decode(&body); err != nil {
		return err
	}
	n := len(body.Acks)
	if n < 1 || n > delivery.MaxCapacity {
		return errs.Invalid("acks", "must have 1…%d items, has %d", delivery.MaxCapacity, n)
	}
	answer := &batchAnswer{session: s, replyTo: frame.MessageID, results: make([]store.Settled, n), commands: make([]delivery.Command, n), missing: n}
	batch := make([]pipeline.Settlement, n)
	for i := range body.Acks {
		p, err := body.Acks[i].validate()
		if err != nil {
			return err
		}
		answer.commands[i] = delivery.Command{Kind: delivery.Ack, Proof: p}
		batch[i] = pipeline.Settlement{Credential: s.peer.Caller.CredentialID, Command: answer.commands[i], Reply: func(r store.Settled) { answer.take(i, r) }}
	}
	s.underWay.Add(1)
	s.server.Settle.Add(s.sub, batch...)
	return nil
}

// batchAnswer gathers the results of one ack_batch, which commits may split.
type batchAnswer struct {
	session  *session
	replyTo  ids.ID
	commands []delivery.Command

	mu      sync.Mutex
	results []store.Settled
	missing int
}

func (a *batchAnswer) take(i int, r store.Settled) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.results[i] = r
	if a.missing--; a.missing > 0 {
		return
	}
	s := a.session
	s.underWay.Add(-1)
	b := wire.Open(make([]byte, 0, 256*len(a.results)), "ack", &a.replyTo, &s.id)
	b = append(b, `{"results":[`...)
	for i, r := range a.results {
		if i > 0 {
			b = append(b, ',')
		}
		if r.Err == nil {
			b = appendSettled(b, a.commands[i], r, "acknowledged_at")
			continue
		}
		if !errs.Is(r.Err, errs.DeliveryLeaseLost) { // what ends a connection for one ack ends it for a batch
			s.fail(r.Err, &a.replyTo)
			return
		}
		b = append(b, `{"delivery_id":`...)
		b = wire.AppendID(b, a.commands[i].Proof.DeliveryID)
		b = append(b, `,"epoch":`...)
		b = wire.AppendCounter(b, a.commands[i].Proof.Epoch)
		b = append(b, `,"error":`...)
		b = append(wire.AppendError(b, r.Err), '}')
	}
	s.conn.Send(wire.Close(append(b, `]}`...)))
}
