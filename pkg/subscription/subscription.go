// Package subscription is a durable reader of one queue's events (§5).
package subscription

import (
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/result"
)

// Limits and defaults of R5.1 and R5.3.
const (
	MaxActive          = 64 // per namespace, paused ones included
	DefaultMaxPending  = 100
	LimitMaxPending    = 1000
	DefaultMaxAttempts = 20
	LimitMaxAttempts   = 100
	MaxReason          = 1024 // Unicode characters
)

// Subscription is the object as every answer shows it (R5.2). Revision counts configuration
// commands only; CursorSequence says how far the log was materialised, not what was acknowledged.
type Subscription struct {
	ID             ids.ID        `json:"id"`
	QueueID        ids.ID        `json:"queue_id"`
	CredentialID   ids.ID        `json:"credential_id"`
	Name           string        `json:"name"`
	Revision       ids.Counter   `json:"revision"`
	Enabled        bool          `json:"enabled"`
	Types          []result.Type `json:"types"`
	CursorSequence ids.Counter   `json:"cursor_sequence"`
	PendingCount   int           `json:"pending_count"`
	MaxPending     int           `json:"max_pending"`
	MaxAttempts    int           `json:"max_attempts"`
	CreatedAt      time.Time     `json:"created_at"`
	UpdatedAt      time.Time     `json:"updated_at"`

	// Both only when retired (R7.1): nothing above RetiredSequence belongs to it.
	RetiredAt       *time.Time   `json:"retired_at,omitzero"`
	RetiredSequence *ids.Counter `json:"retired_sequence,omitzero"`
}

// Create is the body of POST /v1/subscriptions.
type Create struct {
	Name         string       `json:"name"`
	QueueID      *ids.ID      `json:"queue_id"`
	Types        []string     `json:"types"`
	FromSequence *ids.Counter `json:"from_sequence"`
	MaxPending   int          `json:"max_pending"`
	MaxAttempts  int          `json:"max_attempts"`
}

// New is a checked creation with its defaults applied; it is also what a receipt's fingerprint covers.
type New struct {
	Name         string
	QueueID      ids.ID
	Types        result.Types
	FromSequence *ids.Counter // nil: after the committed head
	MaxPending   int
	MaxAttempts  int
}

// Normalise applies defaults and checks limits; errors are INVALID_ARGUMENT and name the field.
func (c Create) Normalise() (New, error) {
	n := New{Name: c.Name, FromSequence: c.FromSequence, MaxPending: c.MaxPending, MaxAttempts: c.MaxAttempts}
	if err := ids.CheckName(c.Name); err != nil {
		return n, errs.Invalid("name", "%v", err)
	}
	if c.QueueID == nil {
		return n, errs.Invalid("queue_id", "is required")
	}
	n.QueueID = *c.QueueID
	var err error
	if n.Types, err = result.ParseTypes(c.Types); err != nil {
		return n, errs.Invalid("types", "%v", err)
	}
	if n.MaxPending == 0 {
		n.MaxPending = DefaultMaxPending
	}
	if n.MaxPending < 1 || n.MaxPending > LimitMaxPending {
		return n, errs.Invalid("max_pending", "must be 0 (default %d) or 1…%d, is %d", DefaultMaxPending, LimitMaxPending, c.MaxPending)
	}
	if n.MaxAttempts == 0 {
		n.MaxAttempts = DefaultMaxAttempts
	}
	if n.MaxAttempts < 1 || n.MaxAttempts > LimitMaxAttempts {
		return n, errs.Invalid("max_attempts", "must be 0 (default %d) or 1…%d, is %d", DefaultMaxAttempts, LimitMaxAttempts, c.MaxAttempts)
	}
	return n, nil
}

// Configure is the body of :configure; all three members are required (R5.5).
type Configure struct {
	ExpectedRevision *ids.Counter `json:"expected_revision"`
	Enabled          *bool        `json:"enabled"`
	Reason           string       `json:"reason"`
}

// Validate returns INVALID_ARGUMENT naming the field.
func (c Configure) Validate() error {
	if c.ExpectedRevision == nil {
		return errs.Invalid("expected_revision", "is required")
	}
	if c.Enabled == nil {
		return errs.Invalid("enabled", "is required")
	}
	return CheckReason(c.Reason)
}

// CheckReason accepts 1–1024 Unicode characters.
func CheckReason(reason string) error {
	if err := ids.CheckText(reason, MaxReason); err != nil {
		return errs.Invalid("reason", "%v", err)
	}
	return nil
}
