package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// Rights are what a credential may do and where; queues are given by name.
type Rights struct {
	Actions   []access.Action `json:"actions,omitempty"`
	Queues    []string        `json:"queues,omitempty"`
	AllQueues bool            `json:"all_queues,omitempty"`
}

// CreateCredential makes a credential of an application, with its first secret, and returns its id
// and the only copy of the token. Names of credentials need not be unique.
func (s *Store) CreateCredential(ctx context.Context, namespace, application, name string, r Rights) (id ids.ID, token string, err error) {
	if err := ids.CheckName(name); err != nil {
		return id, "", errs.Invalid("credential", "%v", err)
	}
	if len(r.Actions) == 0 {
		return id, "", errs.Invalid("actions", "at least one is required")
	}
	id = ids.New()
	err = s.InTx(ctx, func(tx *sqlx.Tx) error {
		n := newCredential{ID: id, Name: name, Actions: r.Actions, AllQueues: r.AllQueues}
		var err error
		if n.NamespaceID, err = namespaceNamed(ctx, tx, namespace); err != nil {
			return err
		}
		if n.ApplicationID, err = applicationNamed(ctx, tx, n.NamespaceID, application); err != nil {
			return err
		}
		if n.Queues, err = queuesNamed(ctx, tx, n.NamespaceID, r.Queues); err != nil {
			return err
		}
		if token, err = insertCredential(ctx, tx, n); err != nil {
			return err
		}
		return auditCredential(ctx, tx, n.NamespaceID, "credential.create", id, r)
	})
	return id, token, err
}

// GrantCredential adds actions and queues, and is in force for HTTP at once and for sockets within
// a scan of the gateways.
func (s *Store) GrantCredential(ctx context.Context, id ids.ID, r Rights) error {
	return s.changeCredential(ctx, "credential.grant", id, r, func(tx *sqlx.Tx, row *credentialRow, queues []ids.ID) error {
		actions, err := access.ParseActions(string(row.Actions))
		if err != nil {
			return fmt.Errorf("credential %s: %w", id, err)
		}
		actions = append(actions, r.Actions...)
		slices.Sort(actions)
		if err := updateRights(ctx, tx, id, slices.Compact(actions), row.AllQueues || r.AllQueues); err != nil {
			return err
		}
		for _, queue := range queues {
			if err := joinScope(ctx, tx, id, queue); err != nil && !isDuplicate(err) {
				return err
			}
		}
		return nil
	})
}

// WithdrawRights takes actions and queues away. Its last action cannot go: revoke it instead.
func (s *Store) WithdrawRights(ctx context.Context, id ids.ID, r Rights) error {
	return s.changeCredential(ctx, "credential.withdraw", id, r, func(tx *sqlx.Tx, row *credentialRow, queues []ids.ID) error {
		actions, err := access.ParseActions(string(row.Actions))
		if err != nil {
			return fmt.Errorf("credential %s: %w", id, err)
		}
		left := slices.DeleteFunc(actions, func(a access.Action) bool { return slices.Contains(r.Actions, a) })
		if len(left) == 0 {
			return errs.New(errs.StateConflict, "credential %s would have no action left; revoke it instead", id)
		}
		if err := updateRights(ctx, tx, id, left, row.AllQueues && !r.AllQueues); err != nil {
			return err
		}
		for _, queue := range queues {
			if _, err := tx.ExecContext(ctx, "DELETE FROM credential_queues WHERE credential_id = ? AND queue_id = ?", id, queue); err != nil {
				return fmt.Errorf("take queue %s from credential %s: %w", queue, id, err)
			}
		}
		return nil
	})
}

// RevokeCredential ends a credential for good: HTTP answers 401 at once, sockets close (§4). Its
// subscriptions stay.
func (s *Store) RevokeCredential(ctx context.Context, id ids.ID) error {
	return s.changeCredential(ctx, "credential.revoke", id, Rights{}, func(tx *sqlx.Tx, _ *credentialRow, _ []ids.ID) error {
		res, err := tx.ExecContext(ctx, "UPDATE credentials SET revoked_at = UTC_TIMESTAMP(6) WHERE id = ? AND revoked_at IS NULL", id)
		return changed(res, err, 1, "revoke credential "+id.String())
	})
}

// changeCredential locks a live credential, changes it, wakes the gateways and writes the audit row
// in one transaction. A revoked credential is STATE_CONFLICT.
func (s *Store) changeCredential(ctx context.Context, action string, id ids.ID, r Rights, change func(tx *sqlx.Tx, row *credentialRow, queues []ids.ID) error) error {
	return s.InTx(ctx, func(tx *sqlx.Tx) error {
		row, err := lockCredential(ctx, tx, id)
		if err != nil {
			return err
		}
		queues, err := queuesNamed(ctx, tx, row.NamespaceID, r.Queues)
		if err != nil {
			return err
		}
		if err := change(tx, row, queues); err != nil {
			return err
		}
		if err := wake(ctx, tx, row.NamespaceID); err != nil {
			return err
		}
		return auditCredential(ctx, tx, row.NamespaceID, action, id, r)
	})
}

func lockCredential(ctx context.Context, tx *sqlx.Tx, id ids.ID) (*credentialRow, error) {
	var row credentialRow
	err := tx.GetContext(ctx, &row, "SELECT id, namespace_id, application_id, actions, all_queues, revoked_at FROM credentials WHERE id = ? FOR UPDATE", id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errs.New(errs.NotFound, "credential %s does not exist", id)
	}
	if err != nil {
		return nil, fmt.Errorf("read credential %s: %w", id, err)
	}
	if row.RevokedAt != nil {
		return nil, errs.New(errs.StateConflict, "credential %s was revoked at %s", id, row.RevokedAt.Format(time.RFC3339))
	}
	return &row, nil
}

func updateRights(ctx context.Context, tx *sqlx.Tx, id ids.ID, actions []access.Action, allQueues bool) error {
	res, err := tx.ExecContext(ctx, "UPDATE credentials SET actions = ?, all_queues = ? WHERE id = ?", []byte(access.JoinActions(actions)), allQueues, id)
	return changed(res, err, 1, "change rights of credential "+id.String())
}

func queuesNamed(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, names []string) ([]ids.ID, error) {
	var out []ids.ID
	for _, name := range names {
		id, err := queueNamed(ctx, tx, namespace, name)
		if err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, nil
}

// auditCredential keeps what was granted or taken; never a secret.
func auditCredential(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, action string, id ids.ID, detail any) error {
	text, err := json.Marshal(detail)
	if err != nil {
		return fmt.Errorf("encode audit of %s: %w", action, err)
	}
	return insertOperatorAudit(ctx, tx, namespace, auditRow{Action: action, ResourceKind: "credential", ResourceID: id, Detail: text})
}
