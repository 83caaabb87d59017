package store

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// newCredential is a credential about to be made; Queues is its scope unless AllQueues.
type newCredential struct {
	ID, NamespaceID, ApplicationID ids.ID
	Name                           string
	Actions                        []access.Action
	AllQueues                      bool
	Queues                         []ids.ID
}

// insertCredential writes the credential, its scope and its first secret, and returns the only copy
// of its token.
func insertCredential(ctx context.Context, tx *sqlx.Tx, n newCredential) (token string, err error) {
	_, err = tx.ExecContext(ctx, `
INSERT INTO credentials (id, namespace_id, application_id, name, actions, all_queues, created_at)
VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))`,
		n.ID, n.NamespaceID, n.ApplicationID, []byte(n.Name), []byte(access.JoinActions(n.Actions)), n.AllQueues)
	if err != nil {
		return "", fmt.Errorf("insert credential: %w", err)
	}
	if !n.AllQueues {
		for _, queue := range n.Queues {
			if err := joinScope(ctx, tx, n.ID, queue); err != nil {
				return "", err
			}
		}
	}
	return insertSecret(ctx, tx, n.ID)
}

// insertSecret gives a credential one more live secret and returns the only copy of its token.
func insertSecret(ctx context.Context, tx *sqlx.Tx, credential ids.ID) (token string, err error) {
	secret := ids.NewSecret()
	digest := secret.Digest()
	_, err = tx.ExecContext(ctx, "INSERT INTO credential_secrets (credential_id, digest, created_at) VALUES (?, ?, UTC_TIMESTAMP(6))", credential, digest[:])
	if err != nil {
		return "", fmt.Errorf("insert secret of credential %s: %w", credential, err)
	}
	return access.FormatToken(credential, secret), nil
}
