// Package wire is what both sockets speak: the envelope, its strictness, and how an error becomes a
// frame or a close (§6, §9; api/ws.md).
package wire

import (
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

// Version is the only protocol version.
const Version = "1"

// MaxFrame is the limit of one frame, in bytes, both ways (R6.1).
const MaxFrame = 512 << 10

// Frame is a client's frame whose envelope is well formed. BodyErr is set when its body is not.
type Frame struct {
	Type      string
	MessageID ids.ID
	ReplyTo   *ids.ID
	SessionID *ids.ID
	Body      strictjson.Raw
	BodyErr   error
}

type envelope struct {
	ProtocolVersion string         `json:"protocol_version"`
	Type            string         `json:"type"`
	MessageID       *ids.ID        `json:"message_id"`
	ReplyTo         *ids.ID        `json:"reply_to"`
	SessionID       *ids.ID        `json:"session_id"`
	Body            strictjson.Raw `json:"body"`
}

// Parse reads a client's frame; an error means a malformed envelope, which closes 1008.
func Parse(data []byte) (Frame, error) {
	var e envelope
	bodyErr, err := strictjson.DecodeEnvelope(data, &e)
	if err != nil {
		return Frame{}, err
	}
	switch {
	case e.ProtocolVersion != Version:
		return Frame{}, errs.Invalid("protocol_version", `must be "1"`)
	case e.Type == "" || len(e.Type) > 64:
		return Frame{}, errs.Invalid("type", "is required, at most 64 characters")
	case e.MessageID == nil:
		return Frame{}, errs.Invalid("message_id", "is required")
	case e.Body == nil || e.Body.Kind() != '{':
		return Frame{}, errs.Invalid("body", "must be a JSON object")
	}
	return Frame{Type: e.Type, MessageID: *e.MessageID, ReplyTo: e.ReplyTo, SessionID: e.SessionID, Body: e.Body, BodyErr: bodyErr}, nil
}

// Decode reads the command's body into v; INVALID_ARGUMENT is answered by an error frame.
func (f *Frame) Decode(v any) error {
	if f.BodyErr != nil {
		return f.BodyErr
	}
	return strictjson.Decode(f.Body, v)
}

// ParseHello is Parse for the first frame of a socket: of this type, without session and reply.
func ParseHello(data []byte, helloType string) (Frame, error) {
	f, err := Parse(data)
	switch {
	case err != nil:
		return f, err
	case f.Type != helloType:
		return f, errs.Invalid("type", "the first frame must be %s", helloType)
	case f.SessionID != nil || f.ReplyTo != nil:
		return f, errs.Invalid("session_id", "hello carries no session_id and no reply_to")
	}
	return f, nil
}

// CheckSession refuses a frame that is not of this session; that closes 1008.
func (f *Frame) CheckSession(session ids.ID) error {
	if f.SessionID == nil || *f.SessionID != session {
		return errs.Invalid("session_id", "must be the session_id of this connection's welcome")
	}
	return nil
}
