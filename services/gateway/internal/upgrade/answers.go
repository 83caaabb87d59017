package upgrade

import (
	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/wire"
)

// Greet waits for the hello of this type; anything else ends the connection with 1008.
func (c *Conn) Greet(helloType string) (wire.Frame, bool) {
	data, err := c.read(c.limits.Hello)
	if err != nil {
		close(c.in) // nobody reads any more
		c.sayWhy(err, "no hello in time")
		return wire.Frame{}, false
	}
	frame, err := wire.ParseHello(data, helloType)
	if err != nil {
		c.refuse(nil, wire.ClosePolicy, "policy: "+errs.MessageOf(err))
		return wire.Frame{}, false
	}
	return frame, true
}

// RefuseHello answers a hello that cannot be served and closes: it has no second try here.
func (c *Conn) RefuseHello(log *zap.Logger, peer Peer, frame *wire.Frame, err error) {
	code := wire.CloseCode(err)
	if code == wire.CloseInternal {
		log.Error("hello failed", zap.Stringer("request_id", peer.RequestID), zap.Error(err))
		c.refuse(nil, code, "internal "+peer.RequestID.String())
		return
	}
	if code == 0 {
		code = wire.ClosePolicy
	}
	c.refuse(wire.Error(err, &frame.MessageID, nil), code, string(errs.KindOf(err)))
}

// FailWith answers an error, and closes where its kind says so. The text of an internal error stays
// in the log; the client gets the request id.
func (c *Conn) FailWith(log *zap.Logger, peer Peer, err error, replyTo, session *ids.ID) {
	code := wire.CloseCode(err)
	if code == wire.CloseInternal {
		if c.Close(code, "internal "+peer.RequestID.String()) { // else many commands failed of one cause
			log.Error("connection failed", zap.Stringer("session_id", session), zap.Stringer("request_id", peer.RequestID), zap.Error(err))
		}
		return
	}
	c.Send(wire.Error(err, replyTo, session))
	if code != 0 {
		c.Close(code, string(errs.KindOf(err)))
	}
}

// refuse ends a connection that never got as far as Run.
func (c *Conn) refuse(frame []byte, code int, reason string) {
	if frame != nil {
		if err := c.write(frame); err != nil {
			return // the peer is gone
		}
	}
	go c.readAll()
	c.goodbye(closing{code, reason})
}
