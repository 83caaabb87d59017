package store

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// Credential is a credential as administration lists it.
type Credential struct {
	ID          ids.ID     `db:"id" json:"id"`
	Name        string     `db:"name" json:"name"`
	Application string     `db:"application" json:"application"`
	Actions     string     `db:"actions" json:"actions"` // comma-separated
	AllQueues   bool       `db:"all_queues" json:"all_queues"`
	Queues      []string   `db:"-" json:"queues,omitempty"`
	CreatedAt   time.Time  `db:"created_at" json:"created_at"`
	RevokedAt   *time.Time `db:"revoked_at" json:"revoked_at,omitempty"`
	Secrets     []Secret   `db:"-" json:"secrets"`
}

// Secret is one secret of a credential by the beginning of its digest, enough to name it and no help
// in guessing it.
type Secret struct {
	Fingerprint string     `json:"fingerprint"`
	CreatedAt   time.Time  `json:"created_at"`
	RevokedAt   *time.Time `json:"revoked_at,omitempty"`
}

const fingerprintBytes = 6

// ListCredentials returns those of a namespace, oldest first, revoked ones included.
func (s *Store) ListCredentials(ctx context.Context, namespace string) ([]*Credential, error) {
	ns, err := namespaceNamed(ctx, s.db, namespace)
	if err != nil {
		return nil, err
	}
	var rows []*Credential
	err = s.db.SelectContext(ctx, &rows, `
SELECT c.id, c.name, a.name AS application, c.actions, c.all_queues, c.created_at, c.revoked_at
FROM credentials c JOIN applications a ON a.namespace_id = c.namespace_id AND a.id = c.application_id
WHERE c.namespace_id = ? ORDER BY c.id`, ns)
	if err != nil {
		return nil, classify(fmt.Errorf("list credentials: %w", err))
	}
	for _, row := range rows {
		if err := s.fillCredential(ctx, ns, row); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func (s *Store) fillCredential(ctx context.Context, namespace ids.ID, c *Credential) error {
	err := s.db.SelectContext(ctx, &c.Queues, `
SELECT q.name FROM credential_queues cq JOIN queues q ON q.namespace_id = ? AND q.id = cq.queue_id
WHERE cq.credential_id = ? ORDER BY q.name`, namespace, c.ID)
	if err != nil {
		return classify(fmt.Errorf("read scope of credential %s: %w", c.ID, err))
	}
	var secrets []secretRow
	err = s.db.SelectContext(ctx, &secrets, "SELECT digest, created_at, revoked_at FROM credential_secrets WHERE credential_id = ? ORDER BY created_at, digest", c.ID)
	if err != nil {
		return classify(fmt.Errorf("read secrets of credential %s: %w", c.ID, err))
	}
	for _, row := range secrets {
		c.Secrets = append(c.Secrets, Secret{row.fingerprint(), row.CreatedAt, row.RevokedAt})
	}
	return nil
}

type secretRow struct {
	Digest    []byte     `db:"digest"`
	CreatedAt time.Time  `db:"created_at"`
	RevokedAt *time.Time `db:"revoked_at"`
}

func (r secretRow) fingerprint() string { return hex.EncodeToString(r.Digest[:fingerprintBytes]) }

// AddSecret gives a credential one more live secret, beside those it has, and returns the only copy
// of the new token.
func (s *Store) AddSecret(ctx context.Context, credential ids.ID) (token string, err error) {
	err = s.changeCredential(ctx, "secret.add", credential, Rights{}, func(tx *sqlx.Tx, _ *credentialRow, _ []ids.ID) error {
		var err error
		token, err = insertSecret(ctx, tx, credential)
		return err
	})
	return token, err
}

// RevokeSecret ends one secret by its fingerprint; the credential and the others
// stay. The last live one is STATE_CONFLICT.
func (s *Store) RevokeSecret(ctx context.Context, credential ids.ID, fingerprint string) error {
	if len(fingerprint) != 2*fingerprintBytes {
		return errs.Invalid("fingerprint", "must be the %d characters that `credential list` shows", 2*fingerprintBytes)
	}
	return s.changeCredential(ctx, "secret.revoke", credential, Rights{}, func(tx *sqlx.Tx, _ *credentialRow, _ []ids.ID) error {
		var live []secretRow // under the credential's lock
		err := tx.SelectContext(ctx, &live, "SELECT digest, created_at, revoked_at FROM credential_secrets WHERE credential_id = ? AND revoked_at IS NULL", credential)
		if err != nil {
			return fmt.Errorf("read secrets of credential %s: %w", credential, err)
		}
		for _, row := range live {
			if row.fingerprint() != fingerprint {
				continue
			}
			if len(live) == 1 {
				return errs.New(errs.StateConflict, "%s is the last live secret; add another first, or revoke the credential", fingerprint)
			}
			res, err := tx.ExecContext(ctx, "UPDATE credential_secrets SET revoked_at = UTC_TIMESTAMP(6) WHERE credential_id = ? AND digest = ? AND revoked_at IS NULL", credential, row.Digest)
			return changed(res, err, 1, "revoke secret "+fingerprint)
		}
		return errs.New(errs.NotFound, "credential %s has no live secret %s", credential, fingerprint)
	})
}
