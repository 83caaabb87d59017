package store

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// auditRow is what one write did; who and when come from the Write and the database clock.
type auditRow struct {
	Action       string
	ResourceKind string
	ResourceID   ids.ID
	Detail       []byte // JSON, or nil
}

const (
	insertAuditSQL = `
INSERT INTO audit (namespace_id, id, at, credential_id, action, resource_kind, resource_id, request_id, detail) VALUES `
	auditTuple = `(?, ?, UTC_TIMESTAMP(6), ?, ?, ?, ?, ?, ?)`
)

func insertAudit(ctx context.Context, tx *sqlx.Tx, w Write, row auditRow) error {
	_, err := tx.ExecContext(ctx, insertAuditSQL+auditTuple, w.Caller.NamespaceID, ids.New(), w.Caller.CredentialID,
		[]byte(row.Action), []byte(row.ResourceKind), row.ResourceID, w.RequestID, row.Detail)
	if err != nil {
		return fmt.Errorf("audit %s %s: %w", row.Action, row.ResourceID, err)
	}
	return nil
}

// insertAckAudits writes one row per acknowledged delivery (R6.5).
func insertAckAudits(ctx context.Context, tx *sqlx.Tx, namespace, credential ids.ID, deliveries []ids.ID) error {
	args := make([]any, 0, 8*len(deliveries))
	for _, id := range deliveries {
		args = append(args, namespace, ids.New(), credential, []byte("event.ack"), []byte("delivery"), id, nil, nil)
	}
	if _, err := tx.ExecContext(ctx, insertAuditSQL+tuples(auditTuple, len(deliveries)), args...); err != nil {
		return fmt.Errorf("audit %d acks: %w", len(deliveries), err)
	}
	return nil
}

// reasonDetail is the audit detail of a command that carries a reason.
func reasonDetail(reason string) []byte {
	b, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil { // a checked string always encodes
		return nil
	}
	return b
}
