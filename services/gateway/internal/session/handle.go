package session

import (
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/wire"
)

// Blocked stops reading while the window is full.
func (s *session) Blocked() bool { return s.underWay.Load() >= window }

// Handle takes one frame. A malformed envelope or a wrong session closes; a bad command is answered.
func (s *session) Handle(data []byte) {
	frame, err := wire.Parse(data)
	if err == nil {
		err = frame.CheckSession(s.id)
	}
	if err != nil {
		s.conn.Close(wire.ClosePolicy, "policy: "+errs.MessageOf(err))
		return
	}
	switch frame.Type {
	case "event.ack":
		err = s.ack(&frame)
	case "event.ack_batch":
		err = s.ackBatch(&frame)
	case "event.release":
		err = s.release(&frame)
	case "event.extend":
		err = s.extend(&frame)
	case "events.ping":
		err = s.ping(&frame)
	case "events.drain":
		err = s.drain(&frame)
	default:
		err = errs.Invalid("type", "%s is not a command of this socket", wire.Shown(frame.Type))
	}
	if err != nil {
		s.fail(err, &frame.MessageID)
	}
}

func (s *session) fail(err error, replyTo *ids.ID) {
	s.conn.FailWith(s.server.Log, s.peer, err, replyTo, &s.id)
}

// ping is answered by a scan that begins after it: the credential was checked again and enabled is
// as of then (R6.6).
func (s *session) ping(frame *wire.Frame) error {
	if err := frame.Decode(&struct{}{}); err != nil {
		return err
	}
	replyTo := frame.MessageID
	s.underWay.Add(1)
	s.server.Scanner.Ask(func(now time.Time, err error) {
		s.underWay.Add(-1)
		if err != nil {
			s.fail(err, &replyTo)
			return
		}
		b := wire.Open(make([]byte, 0, 320), "ack", &replyTo, &s.id)
		b = append(b, `{"server_time":`...)
		b = wire.AppendTime(b, now)
		b = append(b, `,"enabled":`...)
		b = wire.AppendBool(b, s.sub.Enabled())
		s.conn.Send(wire.Close(append(b, '}')))
	})
	return nil
}

// drain is answered after the last delivery of this connection; acks, releases and extends go on.
func (s *session) drain(frame *wire.Frame) error {
	if err := frame.Decode(&struct{}{}); err != nil {
		return err
	}
	replyTo := frame.MessageID
	s.underWay.Add(1)
	s.sub.DrainMember(s.id, func() {
		s.underWay.Add(-1)
		s.conn.Send(wire.Close(append(wire.Open(make([]byte, 0, 192), "ack", &replyTo, &s.id), `{"draining":true}`...)))
	})
	return nil
}

// deliver sends committed leases.
func (s *session) deliver(claimed []store.Claimed) {
	for _, c := range claimed {
		b := wire.Open(make([]byte, 0, 1536+len(c.Event.Snapshot)), "event.deliver", nil, &s.id)
		b = append(b, `{"delivery":`...)
		b = c.Delivery.AppendJSON(b)
		b = append(b, `,"event":`...)
		b = c.Event.AppendJSON(b)
		b = append(b, `,"lease_secret":"`...)
		b = append(b, c.Secret.Text()...)
		s.conn.Send(wire.Close(append(b, `"}`...)))
	}
}
