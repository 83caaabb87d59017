// Package delivery is one event on its way to one subscription: state, lease and budget (§5, §6).
//
//	          claim                ack
//	PENDING ─────────▶ LEASED ─────────────▶ ACKED
//	  ▲  ▲               │ │                  ▲ ▲
//	  │  └─ release ─────┘ │ lapse            │ │
//	  │     lapse, budget  │ budget used up   │ │
//	  │     left           ▼                  │ │
//	  └────── retry ── EXPIRED ── late ack ───┘ │
//	  └────────────── late ack ─────────────────┘
//
// A late ack counts as long as no newer epoch was issued (R6.5).
package delivery

import (
	"strconv"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

// State of a delivery.
type State string

// The states; PENDING, LEASED and EXPIRED hold a backlog place.
const (
	Pending State = "PENDING"
	Leased  State = "LEASED"
	Acked   State = "ACKED"
	Expired State = "EXPIRED"
)

// Limits of R5.7 and §6.
const (
	LeaseDuration = 30 * time.Second
	MaxCapacity   = 32
	MaxAdditional = 100
	MaxBudget     = 1_000_000
)

// ParseState accepts one of the four states.
func ParseState(s string) (State, error) {
	switch st := State(s); st {
	case Pending, Leased, Acked, Expired:
		return st, nil
	}
	return "", errs.Invalid("state", "must be PENDING, LEASED, ACKED or EXPIRED")
}

// Delivery is the object as every answer shows it (R5.6). LeaseUntil is set only while LEASED,
// AcknowledgedAt only when ACKED.
type Delivery struct {
	ID             ids.ID
	SubscriptionID ids.ID
	EventID        ids.ID
	Sequence       ids.Counter
	Revision       ids.Counter
	State          State
	CreatedAt      time.Time
	AvailableAt    time.Time
	LeaseEpoch     ids.Counter
	LeaseUntil     *time.Time
	Attempts       int
	AttemptBudget  int
	AcknowledgedAt *time.Time
}

// AppendJSON appends the object; it is on the path of every event, so it is written out.
func (d *Delivery) AppendJSON(b []byte) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, d.ID.String()...)
	b = append(b, `","subscription_id":"`...)
	b = append(b, d.SubscriptionID.String()...)
	b = append(b, `","event_id":"`...)
	b = append(b, d.EventID.String()...)
	b = append(b, `","sequence":"`...)
	b = strconv.AppendUint(b, uint64(d.Sequence), 10)
	b = append(b, `","revision":"`...)
	b = strconv.AppendUint(b, uint64(d.Revision), 10)
	b = append(b, `","state":"`...)
	b = append(b, d.State...)
	b = append(b, `","created_at":"`...)
	b = d.CreatedAt.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","available_at":"`...)
	b = d.AvailableAt.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","lease_epoch":"`...)
	b = strconv.AppendUint(b, uint64(d.LeaseEpoch), 10)
	b = append(b, '"')
	if d.LeaseUntil != nil {
		b = append(b, `,"lease_until":"`...)
		b = d.LeaseUntil.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	b = append(b, `,"attempts":`...)
	b = strconv.AppendInt(b, int64(d.Attempts), 10)
	b = append(b, `,"attempt_budget":`...)
	b = strconv.AppendInt(b, int64(d.AttemptBudget), 10)
	if d.AcknowledgedAt != nil {
		b = append(b, `,"acknowledged_at":"`...)
		b = d.AcknowledgedAt.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	return append(b, '}')
}

// MarshalJSON makes the object usable inside other answers.
func (d Delivery) MarshalJSON() ([]byte, error) { return d.AppendJSON(nil), nil }

// Proof is the right to acknowledge: the newest epoch of a delivery and its secret.
type Proof struct {
	DeliveryID ids.ID
	Epoch      ids.Counter
	Digest     [32]byte
}

// Retry is the body of :retry (R5.7).
type Retry struct {
	ExpectedRevision   *ids.Counter `json:"expected_revision"`
	Reason             string       `json:"reason"`
	AdditionalAttempts int          `json:"additional_attempts"`
}

// Validate returns INVALID_ARGUMENT naming the field.
func (r Retry) Validate() error {
	if r.ExpectedRevision == nil {
		return errs.Invalid("expected_revision", "is required")
	}
	if r.AdditionalAttempts < 1 || r.AdditionalAttempts > MaxAdditional {
		return errs.Invalid("additional_attempts", "must be 1…%d, is %d", MaxAdditional, r.AdditionalAttempts)
	}
	return subscription.CheckReason(r.Reason)
}

// CommandKind is what a consumer does with a lease.
type CommandKind string

// Release and Extend are extensions of the user's protocol (R6.10).
const (
	Ack     CommandKind = "ack"
	Release CommandKind = "release"
	Extend  CommandKind = "extend"
)

// MaxDelay bounds how far a release may put a delivery off.
const MaxDelay = 15 * time.Minute

// Command is one decision on a lease with its proof.
type Command struct {
	Kind   CommandKind
	Proof  Proof
	Delay  time.Duration // release: until it is available again
	Refund bool          // release: never started, so the attempt does not count
}
