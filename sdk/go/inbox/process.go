package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// Process saves the event and, when it is fresh, runs write, in one transaction: both commit or neither. A
// repeated event commits without write and returns false. After a deadlock or a lock wait that timed out
// the whole transaction runs again, write included, so write must do nothing but SQL on tx, and must not
// hide such an error (wrap with %w). An error means that nothing is known to be saved: do not acknowledge.
func (i *Inbox) Process(ctx context.Context, d *orbit.Delivery, write func(ctx context.Context, tx *sql.Tx) error) (fresh bool, err error) {
	for try := 0; ; try++ {
		fresh, err = i.once(ctx, d, write)
		if err == nil || try >= i.retries || !passing(err) {
			return fresh && err == nil, err
		}
		if err := pause(ctx, try); err != nil {
			return false, err
		}
	}
}

// Handler makes a consumer's handler of Process: what write commits is acknowledged, repeated events are
// acknowledged without write.
func (i *Inbox) Handler(write func(ctx context.Context, tx *sql.Tx, d *orbit.Delivery) error) orbit.DeliveryHandler {
	return func(ctx context.Context, d *orbit.Delivery) error {
		_, err := i.Process(ctx, d, func(ctx context.Context, tx *sql.Tx) error { return write(ctx, tx, d) })
		return err
	}
}

func (i *Inbox) once(ctx context.Context, d *orbit.Delivery, write func(ctx context.Context, tx *sql.Tx) error) (bool, error) {
	tx, err := i.db.BeginTx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("inbox: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	fresh, err := i.Save(ctx, tx, d)
	if err != nil {
		return false, err
	}
	if fresh {
		if err := write(ctx, tx); err != nil {
			return false, err
		}
	}
	if err := tx.Commit(); err != nil {
		return false, fmt.Errorf("inbox: commit event %s: %w", d.Event.ID, err)
	}
	return fresh, nil
}

// passing reports a deadlock, a lock wait that timed out or a serialisation failure: MySQL 1213 and 1205,
// SQLSTATE 40001, 40P01 and 55P03. It knows the drivers' errors by shape, so that none is imported.
func passing(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		switch state.SQLState() {
		case "40001", "40P01", "55P03":
			return true
		}
	}
	return numbered(err)
}

// numbered looks for a driver's error with a Number of 1213 or 1205 in err's tree.
func numbered(err error) bool {
	v := reflect.Indirect(reflect.ValueOf(err))
	if v.Kind() == reflect.Struct {
		if n := v.FieldByName("Number"); n.IsValid() && n.CanUint() && (n.Uint() == 1213 || n.Uint() == 1205) {
			return true
		}
	}
	switch tree := err.(type) { //nolint:errorlint // walks the tree itself
	case interface{ Unwrap() error }:
		return numbered(tree.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(tree.Unwrap(), numbered)
	}
	return false
}

// pause waits with full jitter, up to 5 ms doubled at every try and at most 500 ms.
func pause(ctx context.Context, try int) error {
	limit := min(5*time.Millisecond<<min(try, 10), 500*time.Millisecond)
	t := time.NewTimer(rand.N(limit))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
