package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

type credentialRow struct {
	ID            ids.ID     `db:"id"`
	NamespaceID   ids.ID     `db:"namespace_id"`
	ApplicationID ids.ID     `db:"application_id"`
	Actions       []byte     `db:"actions"`
	AllQueues     bool       `db:"all_queues"`
	RevokedAt     *time.Time `db:"revoked_at"`
}

const authenticateSQL = `
SELECT c.id, c.namespace_id, c.application_id, c.actions, c.all_queues, c.revoked_at
FROM credentials c
JOIN credential_secrets s ON s.credential_id = c.id AND s.digest = ? AND s.revoked_at IS NULL
WHERE c.id = ? AND c.revoked_at IS NULL`

// Authenticate returns who holds this token, UNAUTHENTICATED for an unknown, malformed or revoked
// one, all alike.
func (s *Store) Authenticate(ctx context.Context, token string) (*access.Caller, error) {
	id, secret, err := access.ParseToken(token)
	if err != nil {
		return nil, errUnauthenticated()
	}
	return s.CallerOf(ctx, id, secret.Digest())
}

// CallerOf is Authenticate for a session that kept the digest of its secret.
func (s *Store) CallerOf(ctx context.Context, credential ids.ID, digest [32]byte) (*access.Caller, error) {
	var row credentialRow
	err := s.db.GetContext(ctx, &row, authenticateSQL, digest[:], credential)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errUnauthenticated()
	}
	if err != nil {
		return nil, classify(fmt.Errorf("read credential %s: %w", credential, err))
	}
	caller, err := row.caller()
	if err != nil {
		return nil, err
	}
	if !row.AllQueues {
		if err := s.db.SelectContext(ctx, &caller.Queues, "SELECT queue_id FROM credential_queues WHERE credential_id = ?", row.ID); err != nil {
			return nil, classify(fmt.Errorf("read scope of credential %s: %w", row.ID, err))
		}
	}
	return caller, nil
}

func (r *credentialRow) caller() (*access.Caller, error) {
	actions, err := access.ParseActions(string(r.Actions))
	if err != nil {
		return nil, fmt.Errorf("credential %s: %w", r.ID, err)
	}
	return &access.Caller{
		NamespaceID: r.NamespaceID, ApplicationID: r.ApplicationID, CredentialID: r.ID, Actions: actions, AllQueues: r.AllQueues,
	}, nil
}

func errUnauthenticated() error {
	return errs.New(errs.Unauthenticated, "the token is malformed, unknown or revoked")
}

// joinScope adds a queue to the scope of the credential that created it.
func joinScope(ctx context.Context, tx *sqlx.Tx, credential, queue ids.ID) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO credential_queues (credential_id, queue_id) VALUES (?, ?)", credential, queue)
	if err != nil {
		return fmt.Errorf("add queue %s to scope of credential %s: %w", queue, credential, err)
	}
	return nil
}
