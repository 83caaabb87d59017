package queue

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
	if err := ids.CheckText(r.Reason, 1024); err != nil {
		return errs.Invalid("reason", "%v", err)
	}
	return nil
}

// Refuse is RESOURCE_RETIRED for a retired queue: it takes no command and nothing new (R7.2).
func (q *Queue) Refuse() error {
	if q.RetiredAt == nil {
		return nil
	}
	return errs.New(errs.ResourceRetired, "queue %s was retired at %s; its history stays readable, new work needs another queue",
		q.ID, q.RetiredAt.Format(time.RFC3339))
}
