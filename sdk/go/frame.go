package orbit

import "encoding/json"

// maxFrame is the limit of one frame in both directions (R6.1).
const maxFrame = 512 << 10

// frame is the envelope of both sockets (R6.1).
type frame struct {
	ProtocolVersion string          `json:"protocol_version"`
	Type            string          `json:"type"`
	MessageID       string          `json:"message_id"`
	ReplyTo         string          `json:"reply_to"`
	SessionID       string          `json:"session_id"`
	Body            json.RawMessage `json:"body"`
	Error           *wireError      `json:"error"`
}

// encodeFrame writes the client's envelope around a body that keeps its bytes.
func encodeFrame(typ, messageID, sessionID string, body []byte) ([]byte, error) {
	var o object
	o.put("protocol_version", "1")
	o.put("type", typ)
	o.put("message_id", messageID)
	if sessionID != "" {
		o.put("session_id", sessionID)
	}
	o.raw("body", body)
	text := o.done()
	if len(text) > maxFrame {
		return nil, invalid("%s: the frame would have %d bytes, the limit is %d", typ, len(text), maxFrame)
	}
	return text, nil
}

// err returns the error frame's error, or nil.
func (f *frame) err() error {
	if f.Type != "error" && f.Error == nil {
		return nil
	}
	if f.Error == nil {
		return &Error{Code: ErrInternal, Message: "an error frame without an error"}
	}
	return &Error{Code: f.Error.Code, Message: f.Error.Message}
}
