package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

const oldReceiptsSQL = `
SELECT namespace_id, credential_id, idempotency_key FROM receipts
WHERE created_at < UTC_TIMESTAMP(6) - INTERVAL ? SECOND
ORDER BY created_at LIMIT ?`

// SweepReceipts removes up to limit receipts that are older than age by the database clock, by
// primary key in one transaction, and returns how many (R3.4). Any number of replicas may sweep.
func (s *Store) SweepReceipts(ctx context.Context, age time.Duration, limit int) (int, error) {
	seconds := int64(age / time.Second)
	var rows []struct {
		NamespaceID  ids.ID `db:"namespace_id"`
		CredentialID ids.ID `db:"credential_id"`
		Key          []byte `db:"idempotency_key"`
	}
	if err := s.db.SelectContext(ctx, &rows, oldReceiptsSQL, seconds, limit); err != nil {
		return 0, classify(fmt.Errorf("look for old receipts: %w", err))
	}
	if len(rows) == 0 {
		return 0, nil
	}
	args := make([]any, 0, 3*len(rows))
	for _, r := range rows {
		args = append(args, r.NamespaceID, r.CredentialID, r.Key)
	}
	args = append(args, seconds)
	keys := strings.TrimSuffix(strings.Repeat("(namespace_id = ? AND credential_id = ? AND idempotency_key = ?) OR ", len(rows)), " OR ")
	var n int64
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		// The age again: the key may have been removed and used anew since it was read.
		res, err := tx.ExecContext(ctx, "DELETE FROM receipts WHERE ("+keys+") AND created_at < UTC_TIMESTAMP(6) - INTERVAL ? SECOND", args...)
		if err != nil {
			return fmt.Errorf("remove %d old receipts: %w", len(rows), err)
		}
		n, err = res.RowsAffected()
		return err
	})
	return int(n), err
}
