package httpapi

import (
	"net/http"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
)

// statuses is the only place where a kind becomes an HTTP status (§2.6). The two lease kinds belong
// to the sockets; over HTTP they could only be a fault of ours.
var statuses = map[errs.Kind]int{
	errs.InvalidArgument:     http.StatusBadRequest,
	errs.Unauthenticated:     http.StatusUnauthorized,
	errs.PermissionDenied:    http.StatusForbidden,
	errs.NotFound:            http.StatusNotFound,
	errs.StateConflict:       http.StatusConflict,
	errs.IdempotencyConflict: http.StatusConflict,
	errs.SubscriptionLimit:   http.StatusConflict,
	errs.ResourceBusy:        http.StatusConflict,
	errs.ResourceRetired:     http.StatusConflict,
	errs.EventHistoryExpired: http.StatusGone,
	errs.DeliveryLeaseLost:   http.StatusInternalServerError,
	errs.AttemptLeaseLost:    http.StatusInternalServerError,
	errs.ProtocolRequired:    http.StatusUpgradeRequired,
	errs.CapacityExceeded:    http.StatusTooManyRequests,
	errs.Unavailable:         http.StatusServiceUnavailable,
	errs.Internal:            http.StatusInternalServerError,
}

// retryAfter has the kinds whose answer says when to come back, in seconds.
var retryAfter = map[errs.Kind]string{
	errs.CapacityExceeded: "1",
	errs.Unavailable:      "1",
}
