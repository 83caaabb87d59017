package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// Exit codes; exitCodesHelp documents them and they do not change.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitDenied      = 5
	exitUnavailable = 6
	exitPartial     = 7
)

const exitCodesHelp = `orbitctl's exit codes:

  0   success; consume and worker: ended by a signal and drained
  1   failure that no other code names
  2   usage: a flag, an argument, a setting or the request is wrong
  3   not found: the id does not exist, or is out of this credential's reach
  4   conflict: revision, state, name, limit, busy or retired
  5   unauthenticated or denied: the token or its actions
  6   unavailable: unreachable, 503, or over capacity; try again later
  7   partly done: some items of a batch or retry-all failed; doctor: a check failed`

// coded is an error with an exit code of its own.
type coded struct {
	code int
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

func usage(format string, args ...any) error { return &coded{exitUsage, fmt.Errorf(format, args...)} }

func partial(format string, args ...any) error {
	return &coded{exitPartial, fmt.Errorf(format, args...)}
}

// report prints what went wrong and what to do, and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	var refused *orbit.Error
	if errors.As(err, &refused) {
		fmt.Fprintf(w, "error: %s: %s\n", string(refused.Code), refused.Message)
		if refused.RequestID != "" {
			fmt.Fprintf(w, "  request id: %s\n", refused.RequestID)
		}
	} else {
		fmt.Fprintf(w, "error: %s\n", strings.TrimPrefix(err.Error(), "orbit: "))
	}
	if todo := whatToDo(err); todo != "" {
		fmt.Fprintf(w, "  what to do: %s\n", todo)
	}
	return exitCode(err)
}

// exitCode sorts an error into the documented codes.
func exitCode(err error) int {
	var own *coded
	if errors.As(err, &own) {
		return own.code
	}
	if unreachable(err) {
		return exitUnavailable
	}
	for code, exit := range map[orbit.Code]int{
		orbit.ErrInvalidArgument: exitUsage, orbit.ErrNotFound: exitNotFound,
		orbit.ErrStateConflict: exitConflict, orbit.ErrIdempotencyConflict: exitConflict, orbit.ErrSubscriptionLimit: exitConflict,
		orbit.ErrResourceBusy: exitConflict, orbit.ErrResourceRetired: exitConflict, orbit.ErrEventHistoryExpired: exitConflict,
		orbit.ErrUnauthenticated: exitDenied, orbit.ErrPermissionDenied: exitDenied,
		orbit.ErrUnavailable: exitUnavailable, orbit.ErrCapacityExceeded: exitUnavailable,
	} {
		if errors.Is(err, code) {
			return exit
		}
	}
	if text := err.Error(); strings.HasPrefix(text, "unknown command") || strings.HasPrefix(text, "required flag") { // cobra has no types for these
		return exitUsage
	}
	return exitFailed
}

// unreachable reports whether no answer came at all.
func unreachable(err error) bool {
	var onWire *url.Error
	var op *net.OpError
	return errors.As(err, &onWire) || errors.As(err, &op) || errors.Is(err, context.DeadlineExceeded)
}

func whatToDo(err error) string {
	var own *coded
	if errors.As(err, &own) {
		return ""
	}
	if unreachable(err) {
		return "check the address and that the service runs; orbitctl doctor looks at each part"
	}
	for code, text := range map[orbit.Code]string{
		orbit.ErrInvalidArgument:     "correct what the message names; repeating it as it is cannot succeed",
		orbit.ErrUnauthenticated:     "get a live token of the same credential; check ORBIT_TOKEN or the token file",
		orbit.ErrPermissionDenied:    "ask an operator to grant the action named in the message",
		orbit.ErrNotFound:            "check the id, and which credential created it",
		orbit.ErrStateConflict:       "show the resource, decide again, and repeat the command",
		orbit.ErrIdempotencyConflict: "send the original content with this key, or use another --key",
		orbit.ErrSubscriptionLimit:   "retire a subscription that is no longer needed",
		orbit.ErrResourceBusy:        "finish or remove what the message names, then repeat",
		orbit.ErrResourceRetired:     "use another one; its history stays readable",
		orbit.ErrEventHistoryExpired: `decide where to go on, for example with a new subscription --from 0`,
		orbit.ErrCapacityExceeded:    "wait a second and repeat",
		orbit.ErrUnavailable:         "repeat in a moment; with the same --key nothing is done twice",
		orbit.ErrInternal:            "report the request id to whoever runs the server",
	} {
		if errors.Is(err, code) {
			return text
		}
	}
	return ""
}
