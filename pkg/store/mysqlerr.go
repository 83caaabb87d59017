package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"slices"

	"github.com/go-sql-driver/mysql"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
)

// Server error numbers that the code decides on.
const (
	erDupEntry        = 1062
	erNoSuchTable     = 1146
	erLockWaitTimeout = 1205
	erDeadlock        = 1213
)

// serverGone are refusals of a server that is going down, starting, full or read-only.
var serverGone = []uint16{1040, 1053, 1152, 1158, 1159, 1160, 1161, 1203, 1290, 1792, 1836, 1927, 3169, 4031}

func isServerError(err error, numbers ...uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(numbers, e.Number)
}

func isDuplicate(err error) bool { return isServerError(err, erDupEntry) }
func isNoTable(err error) bool   { return isServerError(err, erNoSuchTable) }

// isConflict reports that the server gave up this transaction in favour of another one; the whole
// of it may be run again.
func isConflict(err error) bool { return isServerError(err, erDeadlock, erLockWaitTimeout) }

// classify turns faults of the database or of the way to it into UNAVAILABLE; other errors pass.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var ours *errs.Error
	if errors.As(err, &ours) {
		return err
	}
	var netErr net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return errs.Wrap(errs.Unavailable, err, "the request ran out of time; nothing was half done")
	case isConflict(err):
		return errs.Wrap(errs.Unavailable, err, "the database is busy with conflicting writes; try again")
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, mysql.ErrInvalidConn), errors.Is(err, sql.ErrConnDone),
		errors.As(err, &netErr), isServerError(err, serverGone...):
		return errs.Wrap(errs.Unavailable, err, "the database cannot be reached or does not take writes; try again")
	}
	return err
}
