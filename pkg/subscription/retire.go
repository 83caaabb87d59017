package subscription

import (
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// Retire is the body of :retire; both members are required (§7).
type Retire struct {
	ExpectedRevision *ids.Counter `json:"expected_revision"`
	Reason           string       `json:"reason"`
}

// Validate returns INVALID_ARGUMENT naming the field.
func (r Retire) Validate() error {
	if r.ExpectedRevision == nil {
		return errs.Invalid("expected_revision", "is required")
	}
	return CheckReason(r.Reason)
}

// Refuse is RESOURCE_RETIRED for a retired subscription: it takes no command and no connection (R7.1).
func (s *Subscription) Refuse() error {
	if s.RetiredAt == nil {
		return nil
	}
	return errs.New(errs.ResourceRetired, "subscription %s was retired at %s, at sequence %s; its history stays readable",
		s.ID, s.RetiredAt.Format(time.RFC3339), s.RetiredSequence)
}
