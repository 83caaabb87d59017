package store

import (
	"context"
	"fmt"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

// AuditEntry is one write that was committed. CredentialID and RequestID are nil for an operator's
// command and for background work; Detail is what the command said besides its resource, if anything.
type AuditEntry struct {
	ID           ids.ID         `json:"id"`
	At           time.Time      `json:"at"`
	CredentialID *ids.ID        `json:"credential_id,omitzero"`
	Action       string         `json:"action"`
	ResourceKind string         `json:"resource_kind"`
	ResourceID   ids.ID         `json:"resource_id"`
	RequestID    *ids.ID        `json:"request_id,omitzero"`
	Detail       strictjson.Raw `json:"detail,omitzero"`
}

type auditEntryRow struct {
	ID           ids.ID    `db:"id"`
	At           time.Time `db:"at"`
	CredentialID *ids.ID   `db:"credential_id"`
	Action       string    `db:"action"`
	ResourceKind string    `db:"resource_kind"`
	ResourceID   ids.ID    `db:"resource_id"`
	RequestID    *ids.ID   `db:"request_id"`
	Detail       []byte    `db:"detail"`
}

func (r *auditEntryRow) entry() *AuditEntry {
	return &AuditEntry{
		ID: r.ID, At: r.At, CredentialID: r.CredentialID, Action: r.Action, ResourceKind: r.ResourceKind,
		ResourceID: r.ResourceID, RequestID: r.RequestID, Detail: r.Detail,
	}
}

const listAuditSQL = `
SELECT id, at, credential_id, action, resource_kind, resource_id, request_id, detail FROM audit
WHERE namespace_id = ?`

// ListAudit returns the caller's namespace's writes, newest id first (ids are time-ordered), and
// where the next page begins, if there may be one.
func (s *Store) ListAudit(ctx context.Context, c *access.Caller, page Page) ([]*AuditEntry, *Position, error) {
	query, args := listAuditSQL, []any{c.NamespaceID}
	if page.After != nil {
		query += " AND id < ?"
		args = append(args, page.After.ID)
	}
	var rows []auditEntryRow
	if err := s.db.SelectContext(ctx, &rows, query+" ORDER BY id DESC LIMIT ?", append(args, page.Limit+1)...); err != nil {
		return nil, nil, classify(fmt.Errorf("list audit: %w", err))
	}
	var next *Position
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = &Position{ID: rows[page.Limit-1].ID}
	}
	out := make([]*AuditEntry, len(rows))
	for i := range rows {
		out[i] = rows[i].entry()
	}
	return out, next, nil
}
