package store

import (
	"context"
	"fmt"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// SecretKey names one secret of a credential.
type SecretKey struct {
	Credential ids.ID
	Digest     [32]byte
}

// CallersOf is CallerOf for many sessions at once, in at most two queries. A secret that is missing
// from the result is revoked.
func (s *Store) CallersOf(ctx context.Context, secrets map[SecretKey]bool) (map[SecretKey]*access.Caller, error) {
	credentials := map[ids.ID]bool{}
	for k := range secrets {
		credentials[k.Credential] = true
	}
	args := make([]any, 0, len(credentials))
	for id := range credentials {
		args = append(args, id)
	}
	var rows []struct {
		credentialRow
		Digest []byte `db:"digest"`
	}
	err := s.db.SelectContext(ctx, &rows, `
SELECT c.id, c.namespace_id, c.application_id, c.actions, c.all_queues, c.revoked_at, s.digest
FROM credentials c JOIN credential_secrets s ON s.credential_id = c.id AND s.revoked_at IS NULL
WHERE c.revoked_at IS NULL AND c.id IN (`+marks(len(args))+")", args...)
	if err != nil {
		return nil, classify(fmt.Errorf("read %d credentials: %w", len(args), err))
	}
	out := make(map[SecretKey]*access.Caller, len(rows))
	scoped := map[ids.ID][]*access.Caller{}
	for _, row := range rows {
		key := SecretKey{row.ID, [32]byte(row.Digest)}
		if !secrets[key] {
			continue
		}
		caller, err := row.caller()
		if err != nil {
			return nil, err
		}
		out[key] = caller
		if !caller.AllQueues {
			scoped[row.ID] = append(scoped[row.ID], caller)
		}
	}
	return out, s.loadScopes(ctx, scoped)
}

func (s *Store) loadScopes(ctx context.Context, scoped map[ids.ID][]*access.Caller) error {
	if len(scoped) == 0 {
		return nil
	}
	args := make([]any, 0, len(scoped))
	for id := range scoped {
		args = append(args, id)
	}
	var rows []struct {
		CredentialID ids.ID `db:"credential_id"`
		QueueID      ids.ID `db:"queue_id"`
	}
	err := s.db.SelectContext(ctx, &rows, "SELECT credential_id, queue_id FROM credential_queues WHERE credential_id IN ("+marks(len(args))+")", args...)
	if err != nil {
		return classify(fmt.Errorf("read scopes of %d credentials: %w", len(args), err))
	}
	for _, row := range rows {
		for _, caller := range scoped[row.CredentialID] {
			caller.Queues = append(caller.Queues, row.QueueID)
		}
	}
	return nil
}
