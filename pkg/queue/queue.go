// Package queue is where tasks wait (§8).
package queue

import (
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// Limits and defaults of R8.1.
const (
	DefaultLease = 30 * time.Second
	MinLease     = 5 * time.Second
	MaxLease     = time.Hour
	MaxRunning   = 1_000_000
)

// Queue is the object as every answer shows it.
type Queue struct {
	ID              ids.ID      `json:"id"`
	Name            string      `json:"name"`
	Revision        ids.Counter `json:"revision"`
	Paused          bool        `json:"paused"`
	MaxRunning      int         `json:"max_running"` // 0 = no limit
	LeaseDurationMS int         `json:"lease_duration_ms"`
	CreatedAt       time.Time   `json:"created_at"`
	UpdatedAt       time.Time   `json:"updated_at"`
	RetiredAt       *time.Time  `json:"retired_at,omitzero"` // only when retired (R7.2)
}

// Create is the body of POST /v1/queues.
type Create struct {
	Name            string `json:"name"`
	MaxRunning      int    `json:"max_running"`
	LeaseDurationMS int    `json:"lease_duration_ms"`
}

// Normalise applies defaults and checks limits; errors are INVALID_ARGUMENT and name the field.
func (c *Create) Normalise() error {
	if err := ids.CheckName(c.Name); err != nil {
		return errs.Invalid("name", "%v", err)
	}
	if c.LeaseDurationMS == 0 {
		c.LeaseDurationMS = int(DefaultLease / time.Millisecond)
	}
	return checkLimits(c.MaxRunning, c.LeaseDurationMS)
}

func checkLimits(maxRunning, leaseMS int) error {
	if maxRunning < 0 || maxRunning > MaxRunning {
		return errs.Invalid("max_running", "must be 0…%d, is %d", MaxRunning, maxRunning)
	}
	lease := time.Duration(leaseMS) * time.Millisecond
	if leaseMS < 0 || leaseMS > int(MaxLease/time.Millisecond) || lease < MinLease {
		return errs.Invalid("lease_duration_ms", "must be %d…%d, is %d", MinLease/time.Millisecond, MaxLease/time.Millisecond, leaseMS)
	}
	return nil
}

// Configure is the body of :configure: what is not nil changes (R8.1).
type Configure struct {
	ExpectedRevision *ids.Counter `json:"expected_revision"`
	Reason           string       `json:"reason"`
	Paused           *bool        `json:"paused"`
	MaxRunning       *int         `json:"max_running"`
	LeaseDurationMS  *int         `json:"lease_duration_ms"`
}

// Validate returns INVALID_ARGUMENT naming the field.
func (c Configure) Validate() error {
	if c.ExpectedRevision == nil {
		return errs.Invalid("expected_revision", "is required")
	}
	if err := ids.CheckText(c.Reason, 1024); err != nil {
		return errs.Invalid("reason", "%v", err)
	}
	if c.Paused == nil && c.MaxRunning == nil && c.LeaseDurationMS == nil {
		return errs.Invalid("body", "must change at least one of paused, max_running, lease_duration_ms")
	}
	maxRunning, lease := 0, int(DefaultLease/time.Millisecond)
	if c.MaxRunning != nil {
		maxRunning = *c.MaxRunning
	}
	if c.LeaseDurationMS != nil {
		lease = *c.LeaseDurationMS
	}
	return checkLimits(maxRunning, lease)
}
