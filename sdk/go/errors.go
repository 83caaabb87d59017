package orbit

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Code is an error code of the contract (R2.6). It is itself an error, so that a code is what to compare
// with: errors.Is(err, orbit.ErrNotFound).
type Code string

// The codes.
const (
	ErrInvalidArgument     Code = "INVALID_ARGUMENT"      // 400: the request is malformed; do not repeat it unchanged
	ErrUnauthenticated     Code = "UNAUTHENTICATED"       // 401: the credential is unknown or revoked
	ErrPermissionDenied    Code = "PERMISSION_DENIED"     // 403: the action or the queue is outside the credential
	ErrNotFound            Code = "NOT_FOUND"             // 404: missing, or another owner's
	ErrStateConflict       Code = "STATE_CONFLICT"        // 409: revision, state or budget does not allow it
	ErrIdempotencyConflict Code = "IDEMPOTENCY_CONFLICT"  // 409: the key was used for another request
	ErrSubscriptionLimit   Code = "SUBSCRIPTION_LIMIT"    // 409: 64 subscriptions are live in the namespace
	ErrResourceBusy        Code = "RESOURCE_BUSY"         // 409: something is in the way; the message names it
	ErrResourceRetired     Code = "RESOURCE_RETIRED"      // 409: retired for ever
	ErrEventHistoryExpired Code = "EVENT_HISTORY_EXPIRED" // 410: the log no longer holds what was asked for
	ErrDeliveryLeaseLost   Code = "DELIVERY_LEASE_LOST"   // socket: the delivery has a newer lease, or the proof is wrong
	ErrAttemptLeaseLost    Code = "ATTEMPT_LEASE_LOST"    // socket: the attempt is no longer this worker's
	ErrProtocolRequired    Code = "PROTOCOL_REQUIRED"     // 426: the subprotocol is not spoken
	ErrCapacityExceeded    Code = "CAPACITY_EXCEEDED"     // 429: quota, rate or room; try later
	ErrUnavailable         Code = "UNAVAILABLE"           // 503: a passing failure; nothing was half done
	ErrInternal            Code = "INTERNAL"              // 500: the server's log has it under the request id
)

// Error makes a code an error.
func (c Code) Error() string { return "orbit: " + string(c) }

// Error is an answer of Orbit that says no, over HTTP or on a socket, or a request refused before it was
// sent (HTTPStatus 0, no RequestID). errors.Is compares it by code.
type Error struct {
	Code       Code
	Message    string        // for people; its wording is no contract
	RequestID  string        // names the request in the server's log; "" on sockets
	HTTPStatus int           // 0 on sockets and for requests that were not sent
	RetryAfter time.Duration // the server's Retry-After; 0 when it named none
}

// Error is "orbit: CODE: message (request …)".
func (e *Error) Error() string {
	text := "orbit: " + string(e.Code)
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// Is reports whether target is this error's code.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

func invalid(format string, args ...any) *Error {
	return &Error{Code: ErrInvalidArgument, Message: fmt.Sprintf(format, args...)}
}

// transient reports whether the same request may be sent again with hope.
func (e *Error) transient() bool {
	switch e.HTTPStatus {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// final reports whether a connection that was refused with err must not be tried again.
func final(err error) bool {
	var closed *CloseError
	if errors.As(err, &closed) {
		return !closed.Reconnect()
	}
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case ErrUnavailable, ErrCapacityExceeded, ErrInternal:
		return false
	}
	return true
}
