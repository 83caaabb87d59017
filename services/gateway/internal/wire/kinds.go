package wire

import (
	"net/http"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
)

// Close codes of the sockets; api/ws.md says for each whether to come back.
const (
	CloseNormal          = 1000
	ClosePolicy          = 1008
	CloseInternal        = 1011
	CloseRestart         = 1012
	CloseTryAgain        = 1013
	CloseUnauthenticated = 4401
	CloseDenied          = 4403
	CloseNotFound        = 4404
	CloseGone            = 4410
)

// outcome is a kind's place on the wire: its status before the upgrade, its close code after.
// Close 0 means that an error frame answers and the connection stays.
type outcome struct {
	Status int
	Close  int
}

// kinds is the one place of this service where a kind becomes wire (§2.6).
var kinds = map[errs.Kind]outcome{
	errs.InvalidArgument:     {http.StatusBadRequest, 0},
	errs.Unauthenticated:     {http.StatusUnauthorized, CloseUnauthenticated},
	errs.PermissionDenied:    {http.StatusForbidden, CloseDenied},
	errs.NotFound:            {http.StatusNotFound, CloseNotFound},
	errs.StateConflict:       {http.StatusConflict, 0},
	errs.IdempotencyConflict: {http.StatusConflict, 0},
	errs.SubscriptionLimit:   {http.StatusConflict, 0},
	errs.ResourceBusy:        {http.StatusConflict, 0},
	errs.ResourceRetired:     {http.StatusConflict, CloseGone},
	errs.EventHistoryExpired: {http.StatusGone, CloseGone},
	errs.DeliveryLeaseLost:   {http.StatusConflict, 0},
	errs.AttemptLeaseLost:    {http.StatusConflict, 0},
	errs.ProtocolRequired:    {http.StatusUpgradeRequired, ClosePolicy},
	errs.CapacityExceeded:    {http.StatusTooManyRequests, CloseTryAgain},
	errs.Unavailable:         {http.StatusServiceUnavailable, CloseTryAgain},
	errs.Internal:            {http.StatusInternalServerError, CloseInternal},
}

// Status is the HTTP status of an error before the upgrade.
func Status(err error) int { return kinds[errs.KindOf(err)].Status }

// CloseCode is the close code of an error, 0 where the connection stays.
func CloseCode(err error) int { return kinds[errs.KindOf(err)].Close }
