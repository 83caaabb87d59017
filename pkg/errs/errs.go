// Package errs is the one error type that crosses package borders: a kind that the edges map to a
// status or a close, a message that is safe to show a caller, and a cause that stays in the log.
package errs

import (
	"errors"
	"fmt"
)

// Kind is a code of the contract (§2.6); its text is what goes over the wire.
type Kind string

// The kinds, in the contract's order. AttemptLeaseLost is the worker socket's (§9).
const (
	InvalidArgument     Kind = "INVALID_ARGUMENT"
	Unauthenticated     Kind = "UNAUTHENTICATED"
	PermissionDenied    Kind = "PERMISSION_DENIED"
	NotFound            Kind = "NOT_FOUND"
	StateConflict       Kind = "STATE_CONFLICT"
	IdempotencyConflict Kind = "IDEMPOTENCY_CONFLICT"
	SubscriptionLimit   Kind = "SUBSCRIPTION_LIMIT"
	ResourceBusy        Kind = "RESOURCE_BUSY"
	ResourceRetired     Kind = "RESOURCE_RETIRED"
	EventHistoryExpired Kind = "EVENT_HISTORY_EXPIRED"
	DeliveryLeaseLost   Kind = "DELIVERY_LEASE_LOST"
	AttemptLeaseLost    Kind = "ATTEMPT_LEASE_LOST"
	ProtocolRequired    Kind = "PROTOCOL_REQUIRED"
	CapacityExceeded    Kind = "CAPACITY_EXCEEDED"
	Unavailable         Kind = "UNAVAILABLE"
	Internal            Kind = "INTERNAL"
)

// Kinds lists every kind; tests of the edges walk it so that none stays unmapped.
var Kinds = []Kind{
	InvalidArgument, Unauthenticated, PermissionDenied, NotFound, StateConflict, IdempotencyConflict,
	SubscriptionLimit, ResourceBusy, ResourceRetired, EventHistoryExpired, DeliveryLeaseLost,
	AttemptLeaseLost, ProtocolRequired, CapacityExceeded, Unavailable, Internal,
}

// Error carries a kind, a message that may be shown to the caller, and a private cause.
type Error struct {
	Kind    Kind
	Message string
	Cause   error
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Kind, e.Message, e.Cause)
	}
	return fmt.Sprintf("%s: %s", e.Kind, e.Message)
}

func (e *Error) Unwrap() error { return e.Cause }

// New makes an error of a kind with a message that is safe to show.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Wrap keeps cause for the log behind a message that is safe to show.
func Wrap(kind Kind, cause error, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...), Cause: cause}
}

// Invalid is INVALID_ARGUMENT on a named field: "field: what is wrong".
func Invalid(field, format string, args ...any) *Error {
	return &Error{Kind: InvalidArgument, Message: field + ": " + fmt.Sprintf(format, args...)}
}

// KindOf returns the kind of err, INTERNAL for any error that is not ours, "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// MessageOf returns what may be shown to a caller: our message, and never the text of a foreign
// or INTERNAL error.
func MessageOf(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Kind != Internal {
		return e.Message
	}
	return "internal error; the server log has it under this request id"
}

// Is reports whether err is of kind.
func Is(err error, kind Kind) bool { return err != nil && KindOf(err) == kind }
