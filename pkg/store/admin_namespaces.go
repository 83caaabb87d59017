package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// Named is a namespace or an application as administration lists it.
type Named struct {
	ID        ids.ID    `db:"id" json:"id"`
	Name      string    `db:"name" json:"name"`
	CreatedAt time.Time `db:"created_at" json:"created_at"`
}

// CreateNamespace makes a namespace and its result log. A taken name is STATE_CONFLICT.
func (s *Store) CreateNamespace(ctx context.Context, name string) (ids.ID, error) {
	if err := ids.CheckName(name); err != nil {
		return ids.ID{}, errs.Invalid("namespace", "%v", err)
	}
	id := ids.New()
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		if err := insertNamespace(ctx, tx, id, name); err != nil {
			return err
		}
		return insertOperatorAudit(ctx, tx, id, auditRow{Action: "namespace.create", ResourceKind: "namespace", ResourceID: id})
	})
	return id, err
}

// ListNamespaces returns all of them by name.
func (s *Store) ListNamespaces(ctx context.Context) ([]Named, error) {
	var rows []Named
	if err := s.db.SelectContext(ctx, &rows, "SELECT id, name, created_at FROM namespaces ORDER BY name"); err != nil {
		return nil, classify(fmt.Errorf("list namespaces: %w", err))
	}
	return rows, nil
}

// CreateApplication makes an application in a namespace. A name that is taken there is STATE_CONFLICT.
func (s *Store) CreateApplication(ctx context.Context, namespace, name string) (ids.ID, error) {
	if err := ids.CheckName(name); err != nil {
		return ids.ID{}, errs.Invalid("application", "%v", err)
	}
	id := ids.New()
	err := s.InTx(ctx, func(tx *sqlx.Tx) error {
		ns, err := namespaceNamed(ctx, tx, namespace)
		if err != nil {
			return err
		}
		if err := insertApplication(ctx, tx, ns, id, name); err != nil {
			return err
		}
		return insertOperatorAudit(ctx, tx, ns, auditRow{Action: "application.create", ResourceKind: "application", ResourceID: id})
	})
	return id, err
}

// ListApplications returns those of a namespace by name.
func (s *Store) ListApplications(ctx context.Context, namespace string) ([]Named, error) {
	ns, err := namespaceNamed(ctx, s.db, namespace)
	if err != nil {
		return nil, err
	}
	var rows []Named
	if err := s.db.SelectContext(ctx, &rows, "SELECT id, name, created_at FROM applications WHERE namespace_id = ? ORDER BY name", ns); err != nil {
		return nil, classify(fmt.Errorf("list applications: %w", err))
	}
	return rows, nil
}

func namespaceNamed(ctx context.Context, q sqlx.QueryerContext, name string) (ids.ID, error) {
	return idNamed(ctx, q, "namespace", name, "SELECT id FROM namespaces WHERE name = ?", []byte(name))
}

func applicationNamed(ctx context.Context, q sqlx.QueryerContext, namespace ids.ID, name string) (ids.ID, error) {
	return idNamed(ctx, q, "application", name, "SELECT id FROM applications WHERE namespace_id = ? AND name = ?", namespace, []byte(name))
}

func queueNamed(ctx context.Context, q sqlx.QueryerContext, namespace ids.ID, name string) (ids.ID, error) {
	return idNamed(ctx, q, "queue", name, "SELECT id FROM queues WHERE namespace_id = ? AND name = ?", namespace, []byte(name))
}

func idNamed(ctx context.Context, q sqlx.QueryerContext, kind, name, query string, args ...any) (ids.ID, error) {
	var id ids.ID
	err := sqlx.GetContext(ctx, q, &id, query, args...)
	if errors.Is(err, sql.ErrNoRows) {
		return id, errs.New(errs.NotFound, "%s: there is none named %q", kind, name)
	}
	if err != nil {
		return id, classify(fmt.Errorf("read %s %q: %w", kind, name, err))
	}
	return id, nil
}
