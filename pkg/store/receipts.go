package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// Write says who writes, under which idempotency key and in which request.
type Write struct {
	Caller    *access.Caller
	Key       string
	RequestID ids.ID
}

// Receipt is the stored answer of an idempotent write: the resource's JSON as it was (§3).
type Receipt struct {
	Snapshot     []byte
	Deduplicated bool
}

// effect is what one write does inside its transaction: it returns the snapshot and its audit row.
type effect func(tx *sqlx.Tx) (snapshot []byte, row auditRow, err error)

// idempotent runs check, then settles the key, then applies the effect: receipt, change and audit
// commit together (R3.3). Parallel writers of one key wait on the receipt's row and get the answer
// of the one that committed.
func (s *Store) idempotent(ctx context.Context, w Write, fingerprint [32]byte, check func(tx *sqlx.Tx) error, apply effect) (Receipt, error) {
	var out Receipt
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		out = Receipt{}
		if err := check(tx); err != nil {
			return err
		}
		old, found, err := reserve(ctx, tx, w, fingerprint)
		if err != nil {
			return err
		}
		if found {
			out = Receipt{Snapshot: old, Deduplicated: true}
			return nil
		}
		snapshot, row, err := apply(tx)
		if err != nil {
			return err
		}
		if err := fillReceipt(ctx, tx, w, snapshot); err != nil {
			return err
		}
		out.Snapshot = snapshot
		return insertAudit(ctx, tx, w, row)
	})
	return out, err
}

// The empty response marks a receipt whose transaction is still under way; no other transaction
// ever sees it.
const reserveReceiptSQL = `
INSERT INTO receipts (namespace_id, credential_id, idempotency_key, fingerprint, response, created_at)
VALUES (?, ?, ?, ?, '', UTC_TIMESTAMP(6))`

const readReceiptSQL = `
SELECT fingerprint, response FROM receipts WHERE namespace_id = ? AND credential_id = ? AND idempotency_key = ?`

func reserve(ctx context.Context, tx *sqlx.Tx, w Write, fingerprint [32]byte) ([]byte, bool, error) {
	var row struct {
		Fingerprint []byte `db:"fingerprint"`
		Response    []byte `db:"response"`
	}
	key := []any{w.Caller.NamespaceID, w.Caller.CredentialID, []byte(w.Key)}
	err := tx.GetContext(ctx, &row, readReceiptSQL, key...)
	if errors.Is(err, sql.ErrNoRows) {
		_, err = tx.ExecContext(ctx, reserveReceiptSQL, append(key, fingerprint[:])...)
		if err == nil {
			return nil, false, nil
		}
		if !isDuplicate(err) {
			return nil, false, fmt.Errorf("reserve receipt: %w", err)
		}
		err = tx.GetContext(ctx, &row, readReceiptSQL, key...) // another writer of the key just committed
	}
	if err != nil {
		return nil, false, fmt.Errorf("read receipt: %w", err)
	}
	if [32]byte(row.Fingerprint) != fingerprint {
		return nil, false, errs.New(errs.IdempotencyConflict, "Idempotency-Key was used by this credential for another request")
	}
	return row.Response, true, nil
}

const fillReceiptSQL = `
UPDATE receipts SET response = ? WHERE namespace_id = ? AND credential_id = ? AND idempotency_key = ?`

func fillReceipt(ctx context.Context, tx *sqlx.Tx, w Write, snapshot []byte) error {
	res, err := tx.ExecContext(ctx, fillReceiptSQL, snapshot, w.Caller.NamespaceID, w.Caller.CredentialID, []byte(w.Key))
	return changed(res, err, 1, "fill receipt")
}

// Fingerprint covers the operation, the path's ids and the normalised body (R3.1).
func Fingerprint(operation string, parts ...any) ([32]byte, error) {
	b, err := json.Marshal(parts, json.Deterministic(true))
	if err != nil {
		return [32]byte{}, fmt.Errorf("fingerprint %s: %w", operation, err)
	}
	return sha256.Sum256(append([]byte(operation+"\n"), b...)), nil
}
