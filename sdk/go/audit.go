package orbit

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// AuditEntry is one committed write of the namespace: of a credential, of an operator (no CredentialID) or
// an acknowledgement.
type AuditEntry struct {
	ID           string          `json:"id"`
	At           time.Time       `json:"at"`
	CredentialID string          `json:"credential_id,omitempty"`
	Action       string          `json:"action"`
	ResourceKind string          `json:"resource_kind"`
	ResourceID   string          `json:"resource_id"`
	RequestID    string          `json:"request_id,omitempty"`
	Detail       json.RawMessage `json:"detail,omitempty"` // what the command said besides its resource: the reason, for one
}

// ListAudit reads one page, newest first. It needs events:manage or queues:manage.
func (c *Client) ListAudit(ctx context.Context, o ListOptions) (*Page[AuditEntry], error) {
	out := new(Page[AuditEntry])
	return result(out, c.get(ctx, "/v1/audit", o.query(), out))
}

// AllAudit reads page after page. A failure is yielded once and ends the sequence.
func (c *Client) AllAudit(ctx context.Context) iter.Seq2[AuditEntry, error] {
	return all(ctx, ListOptions{Limit: 100}, c.ListAudit)
}
