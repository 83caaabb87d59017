package orbit

import (
	"errors"
	"fmt"
)

// Close codes of Orbit's sockets that are worth a name; 1006 is the local code for a connection that
// ended without a close frame.
const (
	CloseNormal           = 1000
	CloseAbnormal         = 1006
	ClosePolicy           = 1008
	CloseTooBig           = 1009
	CloseInternal         = 1011
	CloseServiceRestart   = 1012
	CloseTryAgainLater    = 1013
	CloseUnauthenticated  = 4401
	ClosePermissionDenied = 4403
	CloseNotFound         = 4404
	CloseGone             = 4410
)

// ErrConnClosed is what calls on a connection return after its own Close.
var ErrConnClosed = errors.New("orbit: the connection was closed by its owner")

// CloseError says how a socket ended. errors.Is compares it with the code of the error frame before the
// close, or with the close's reason when that is a code.
type CloseError struct {
	Code   int
	Reason string
	Err    *Error // the error frame that came before the close, if any
	cause  error  // what the network said, for 1006
}

// Error names code, reason and what came before.
func (e *CloseError) Error() string {
	text := fmt.Sprintf("orbit: connection closed with %d", e.Code)
	if e.Reason != "" {
		text += " " + e.Reason
	}
	if e.Err != nil && e.Err.Message != "" {
		text += ": " + e.Err.Message
	}
	return text
}

// Unwrap returns the error frame or the network's error.
func (e *CloseError) Unwrap() error {
	if e.Err != nil {
		return e.Err
	}
	return e.cause
}

// Is reports whether target is the code in the close's reason, or the one that its number stands for.
func (e *CloseError) Is(target error) bool {
	code, ok := target.(Code)
	if !ok {
		return false
	}
	switch e.Code {
	case CloseUnauthenticated:
		return code == ErrUnauthenticated
	case ClosePermissionDenied:
		return code == ErrPermissionDenied
	case CloseNotFound:
		return code == ErrNotFound
	}
	return string(code) == e.Reason
}

// Reconnect reports whether to come back: false for codes that another try cannot change (1009 and every
// 44xx: credential, action, resource), true for the rest, with back-off; after 1012 at once, with jitter.
func (e *CloseError) Reconnect() bool {
	return e.Code != CloseTooBig && (e.Code < 4400 || e.Code > 4499)
}
