package store

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/queue"
)

// Bootstrap names what a first installation needs.
type Bootstrap struct {
	Namespace, Application, Credential string
	Queue                              queue.Create
	Actions                            []access.Action
	AllQueues                          bool
}

// Bootstrapped has the new ids and the only copy of the token.
type Bootstrapped struct {
	NamespaceID, ApplicationID, QueueID, CredentialID ids.ID
	Token                                             string
}

// Bootstrap makes a namespace with its log, an application, a queue and a credential in one
// transaction. A namespace of that name is STATE_CONFLICT and nothing is made.
func (s *Store) Bootstrap(ctx context.Context, b Bootstrap) (Bootstrapped, error) {
	for field, name := range map[string]string{"namespace": b.Namespace, "application": b.Application, "credential": b.Credential} {
		if err := ids.CheckName(name); err != nil {
			return Bootstrapped{}, errs.Invalid(field, "%v", err)
		}
	}
	if err := b.Queue.Normalise(); err != nil {
		return Bootstrapped{}, err
	}
	var out Bootstrapped
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		out = Bootstrapped{NamespaceID: ids.New(), ApplicationID: ids.New(), QueueID: ids.New(), CredentialID: ids.New()}
		if err := insertNamespace(ctx, tx, out.NamespaceID, b.Namespace); err != nil {
			return err
		}
		if err := insertApplication(ctx, tx, out.NamespaceID, out.ApplicationID, b.Application); err != nil {
			return err
		}
		if err := insertQueue(ctx, tx, out.NamespaceID, out.QueueID, b.Queue); err != nil {
			return err
		}
		row := newCredential{
			ID: out.CredentialID, NamespaceID: out.NamespaceID, ApplicationID: out.ApplicationID, Name: b.Credential,
			Actions: b.Actions, AllQueues: b.AllQueues, Queues: []ids.ID{out.QueueID},
		}
		var err error
		if out.Token, err = insertCredential(ctx, tx, row); err != nil {
			return err
		}
		return insertOperatorAudit(ctx, tx, out.NamespaceID, auditRow{Action: "bootstrap", ResourceKind: "namespace", ResourceID: out.NamespaceID})
	})
	return out, err
}

func insertNamespace(ctx context.Context, tx *sqlx.Tx, id ids.ID, name string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO namespaces (id, name, created_at) VALUES (?, ?, UTC_TIMESTAMP(6))", id, []byte(name))
	if isDuplicate(err) {
		return errs.New(errs.StateConflict, "namespace: %q exists", name)
	}
	if err != nil {
		return fmt.Errorf("insert namespace: %w", err)
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO result_streams (namespace_id, head, boundary, wake_version, generation) VALUES (?, 0, 0, 0, ?)", id, ids.New())
	if err != nil {
		return fmt.Errorf("insert result stream: %w", err)
	}
	return nil
}

func insertApplication(ctx context.Context, tx *sqlx.Tx, namespace, id ids.ID, name string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO applications (namespace_id, id, name, created_at) VALUES (?, ?, ?, UTC_TIMESTAMP(6))", namespace, id, []byte(name))
	if isDuplicate(err) {
		return errs.New(errs.StateConflict, "application: %q exists in this namespace", name)
	}
	if err != nil {
		return fmt.Errorf("insert application: %w", err)
	}
	return nil
}

func insertOperatorAudit(ctx context.Context, tx *sqlx.Tx, namespace ids.ID, row auditRow) error {
	_, err := tx.ExecContext(ctx, insertAuditSQL+auditTuple, namespace, ids.New(), nil, []byte(row.Action), []byte(row.ResourceKind), row.ResourceID, nil, row.Detail)
	if err != nil {
		return fmt.Errorf("audit %s: %w", row.Action, err)
	}
	return nil
}
