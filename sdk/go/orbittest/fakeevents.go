package orbittest

import (
	"slices"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// eventSession is a consumer's connection.
type eventSession struct {
	*conn
	sub      *subscription
	capacity int
	draining bool
}

func greetConsumer(c *conn, f *frame) (session, []byte, error) {
	var body struct {
		SubscriptionID string   `json:"subscription_id"`
		Capacity       int      `json:"capacity"`
		Extensions     []string `json:"extensions"`
	}
	if err := firstOf(decode(f.Body, &body), checkRange("capacity", body.Capacity, 1, 32)); err != nil {
		return nil, nil, err
	}
	if !idForm.MatchString(body.SubscriptionID) {
		return nil, nil, refuse(orbit.ErrInvalidArgument, "subscription_id: must be 32 lowercase hex characters")
	}
	s := c.fake.state.subscription(body.SubscriptionID)
	if s == nil {
		return nil, nil, missing("subscription", body.SubscriptionID)
	}
	if err := live("subscription", s.ID, s.RetiredAt != nil); err != nil {
		return nil, nil, err
	}
	e := &eventSession{conn: c, sub: s, capacity: body.Capacity}
	s.sessions = append(s.sessions, e)
	welcome := encode(struct {
		SessionID           string    `json:"session_id"`
		SubscriptionID      string    `json:"subscription_id"`
		Capacity            int       `json:"capacity"`
		LeaseDurationMS     int64     `json:"lease_duration_ms"`
		HeartbeatIntervalMS int64     `json:"heartbeat_interval_ms"`
		ServerTime          time.Time `json:"server_time"`
		Enabled             bool      `json:"enabled"`
	}{c.id, s.ID, e.capacity, c.fake.options.DeliveryLease.Milliseconds(), c.fake.options.Heartbeat.Milliseconds(), now(), s.Enabled})
	if slices.Contains(body.Extensions, "generation") {
		welcome = with(welcome, "generation", encode(c.fake.credentialID)) // any constant: a fake is never restored
	}
	return e, welcome, nil
}

func (e *eventSession) gone() {
	e.sub.sessions = slices.DeleteFunc(e.sub.sessions, func(other *eventSession) bool { return other == e })
}

func (e *eventSession) held() int {
	n := 0
	for _, d := range e.sub.open {
		if d.session == e && d.State == orbit.DeliveryLeased {
			n++
		}
	}
	return n
}

// turn is one claim turn (R6.4).
func (f *Fake) turn(s *subscription, at time.Time) {
	if !s.Enabled || s.RetiredAt != nil {
		return
	}
	for _, d := range s.open {
		if d.State == orbit.DeliveryLeased && !d.LeaseUntil.After(at) {
			d.free(orbit.DeliveryPending)
		}
	}
	if len(s.sessions) == 0 {
		return
	}
	s.materialise(f.state.log, at)
	for _, d := range s.open {
		if d.State != orbit.DeliveryPending || d.AvailableAt.After(at) {
			continue
		}
		e := s.place()
		if e == nil {
			return
		}
		until := at.Add(f.options.DeliveryLease)
		d.State, d.Revision, d.LeaseEpoch, d.LeaseUntil = orbit.DeliveryLeased, next(d.Revision), next(d.LeaseEpoch), &until
		d.Attempts++
		d.session, d.secret = e, newSecret()
		body := with(with([]byte("{}"), "delivery", encode(d.EventDelivery)), "event", d.event.text)
		e.send("event.deliver", "", with(body, "lease_secret", encode(d.secret)))
	}
}

// free ends a lease; a delivery whose budget is used up becomes EXPIRED instead of PENDING.
func (d *delivery) free(to orbit.DeliveryState) {
	if to == orbit.DeliveryPending && d.Attempts >= d.AttemptBudget {
		to = orbit.DeliveryExpired
	}
	d.State, d.Revision, d.LeaseUntil, d.session = to, next(d.Revision), nil, nil
}

func (s *subscription) materialise(log []*event, at time.Time) {
	for len(s.open) < s.MaxPending && s.cursor < uint64(len(log)) {
		e := log[s.cursor]
		s.cursor++
		if e.queueID != s.QueueID || !slices.Contains(s.Types, e.kind) {
			continue
		}
		d := &delivery{event: e, EventDelivery: orbit.EventDelivery{ID: orbit.NewID(), SubscriptionID: s.ID, EventID: e.id, Sequence: sequenceOf(e), Revision: "1",
			State: orbit.DeliveryPending, CreatedAt: at, AvailableAt: at, LeaseEpoch: "0", AttemptBudget: s.MaxAttempts}}
		s.deliveries, s.open = append(s.deliveries, d), append(s.open, d)
	}
}

// place is the next session with room, in turn.
func (s *subscription) place() *eventSession {
	for range s.sessions {
		s.turn = (s.turn + 1) % len(s.sessions)
		if e := s.sessions[s.turn]; !e.closing && !e.draining && e.held() < e.capacity {
			return e
		}
	}
	return nil
}

type deliveryProof struct {
	DeliveryID  string        `json:"delivery_id"`
	Epoch       orbit.Counter `json:"epoch"`
	LeaseSecret string        `json:"lease_secret"`
}

func (p deliveryProof) check() error {
	if !idForm.MatchString(p.DeliveryID) || len(p.LeaseSecret) != 43 {
		return refuse(orbit.ErrInvalidArgument, "delivery_id, epoch and lease_secret are required")
	}
	return checkCounter("epoch", &p.Epoch)
}

func (e *eventSession) handle(f *frame) error {
	switch f.Type {
	case "event.ack":
		return e.ack(f)
	case "event.ack_batch":
		return e.ackBatch(f)
	case "event.extend":
		return e.extend(f)
	case "event.release":
		return e.release(f)
	case "events.drain":
		e.draining = true
		e.send("ack", f.MessageID, []byte(`{"draining":true}`))
		return decode(f.Body, &struct{}{})
	case "events.ping":
		if err := decode(f.Body, &struct{}{}); err != nil {
			return err
		}
		e.send("ack", f.MessageID, encode(struct {
			ServerTime time.Time `json:"server_time"`
			Enabled    bool      `json:"enabled"`
		}{now(), e.sub.Enabled}))
		return nil
	}
	return refuse(orbit.ErrInvalidArgument, "type: %.40s is not a command of this socket", f.Type)
}

// prove finds the delivery of a proof.
func (e *eventSession) prove(p deliveryProof) (*delivery, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	for _, d := range e.sub.deliveries {
		if d.ID != p.DeliveryID {
			continue
		}
		if d.LeaseEpoch != p.Epoch || d.secret != p.LeaseSecret {
			return nil, refuse(orbit.ErrDeliveryLeaseLost, "delivery %s: the proof is not that of its newest lease", d.ID)
		}
		return d, nil
	}
	return nil, missing("delivery", p.DeliveryID)
}

// settled acknowledges (R6.5) and returns the answer.
func (e *eventSession) settled(p deliveryProof) ([]byte, error) {
	d, err := e.prove(p)
	if err != nil {
		return nil, err
	}
	again := d.State == orbit.DeliveryAcked
	if !again {
		at := now()
		d.free(orbit.DeliveryAcked)
		d.AcknowledgedAt = &at
		e.sub.open = slices.DeleteFunc(e.sub.open, func(other *delivery) bool { return other == d })
		e.fake.state.audit = append(e.fake.state.audit, orbit.AuditEntry{ID: orbit.NewID(), At: at, CredentialID: e.fake.credentialID,
			Action: "event.ack", ResourceKind: "delivery", ResourceID: d.ID})
	}
	return encode(orbit.AckResult{DeliveryID: d.ID, EventID: d.EventID, Epoch: p.Epoch, AcknowledgedAt: *d.AcknowledgedAt, Deduplicated: again}), nil
}

// lost reports whether the answer is to be lost, and cuts the connection then.
func (e *eventSession) lost() bool {
	if e.fake.losing == 0 {
		return false
	}
	e.fake.losing--
	e.closing = true
	_ = e.ws.Close()
	return true
}

func (e *eventSession) ack(f *frame) error {
	var p deliveryProof
	if err := decode(f.Body, &p); err != nil {
		return err
	}
	text, err := e.settled(p)
	if err == nil && !e.lost() {
		e.send("ack", f.MessageID, text)
	}
	return err
}

func (e *eventSession) ackBatch(f *frame) error {
	var body struct {
		Acks []deliveryProof `json:"acks"`
	}
	if err := firstOf(decode(f.Body, &body), checkRange("acks", len(body.Acks), 1, 32)); err != nil {
		return err
	}
	var results [][]byte
	for _, p := range body.Acks {
		text, err := e.settled(p)
		if err != nil {
			if !isLost(err) {
				return err
			}
			text = encode(struct {
				DeliveryID string        `json:"delivery_id"`
				Epoch      orbit.Counter `json:"epoch"`
			}{p.DeliveryID, p.Epoch})
			text = with(text, "error", errorText(err))
		}
		results = append(results, text)
	}
	if !e.lost() {
		list := append(append([]byte{'['}, slices.Concat(join(results)...)...), ']')
		e.send("ack", f.MessageID, with([]byte("{}"), "results", list))
	}
	return nil
}
