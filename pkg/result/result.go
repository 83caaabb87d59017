// Package result is the per-namespace log of authoritative outcomes: event types, filters and the
// one encoding of an event (R8.6).
package result

import (
	"fmt"
	"strconv"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

// Type names a result event.
type Type string

// The types. TaskRequeued is in the log and is never delivered.
const (
	TaskCancelled   Type = "task.cancelled"
	TaskFailed      Type = "task.failed"
	TaskNeedsReview Type = "task.needs_review"
	TaskSucceeded   Type = "task.succeeded"
	TaskRequeued    Type = "task.requeued"
)

// Types is a set of subscribable types; its order is the contract's fixed order (R5.2).
type Types uint8

var subscribable = []Type{TaskCancelled, TaskFailed, TaskNeedsReview, TaskSucceeded}

// AllTypes has the four subscribable types.
const AllTypes Types = 15

// ParseTypes reads a non-repeating subset; an empty list means all four (R5.1).
func ParseTypes(names []string) (Types, error) {
	if len(names) == 0 {
		return AllTypes, nil
	}
	var set Types
	for i, name := range names {
		bit := bitOf(Type(name))
		if bit == 0 {
			return 0, fmt.Errorf("item %d is not one of task.succeeded, task.failed, task.cancelled, task.needs_review", i)
		}
		if set&bit != 0 {
			return 0, fmt.Errorf("item %d repeats %s", i, name)
		}
		set |= bit
	}
	return set, nil
}

func bitOf(t Type) Types {
	for i, s := range subscribable {
		if s == t {
			return 1 << i
		}
	}
	return 0
}

// Has reports whether t is in the set.
func (s Types) Has(t Type) bool { return s&bitOf(t) != 0 }

// List returns the set in the fixed order.
func (s Types) List() []Type {
	out := make([]Type, 0, len(subscribable))
	for i, t := range subscribable {
		if s&(1<<i) != 0 {
			out = append(out, t)
		}
	}
	return out
}

// Event is one immutable entry of the log. Details and Snapshot are JSON text that is spliced in
// as it is, so that a business result keeps its bytes.
type Event struct {
	ID                ids.ID
	Sequence          ids.Counter
	Type              Type
	AggregateID       ids.ID
	AggregateRevision ids.Counter
	OccurredAt        time.Time
	Details           strictjson.Raw
	Snapshot          strictjson.Raw
}

// AppendJSON appends the event as R8.6 shows it.
func (e *Event) AppendJSON(b []byte) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, e.ID.String()...)
	b = append(b, `","sequence":"`...)
	b = strconv.AppendUint(b, uint64(e.Sequence), 10)
	b = append(b, `","type":"`...)
	b = append(b, e.Type...)
	b = append(b, `","aggregate_kind":"task","aggregate_id":"`...)
	b = append(b, e.AggregateID.String()...)
	b = append(b, `","aggregate_revision":"`...)
	b = strconv.AppendUint(b, uint64(e.AggregateRevision), 10)
	b = append(b, `","occurred_at":"`...)
	b = e.OccurredAt.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","details":`...)
	b = append(b, e.Details...)
	b = append(b, `,"snapshot":`...)
	b = append(b, e.Snapshot...)
	return append(b, '}')
}
