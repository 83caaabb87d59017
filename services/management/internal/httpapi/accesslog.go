package httpapi

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
)

// logCall writes the one line of a call: who did what, with which end and how long it took. The
// route is its template, so no id, token or query of a caller reaches the log; the text of an error
// does only where it is our fault or the database's.
func (a *API) logCall(method, route string, c *call, status int, took time.Duration, err error, stack []byte) {
	fields := []zap.Field{
		zap.String("request_id", c.requestID.String()),
		zap.String("method", method),
		zap.String("route", route),
		zap.Int("status", status),
		zap.Duration("duration_ms", took),
	}
	if c.caller != nil {
		fields = append(fields, zap.String("credential_id", c.caller.CredentialID.String()))
	}
	level := zapcore.InfoLevel
	if err != nil {
		kind := errs.KindOf(err)
		fields = append(fields, zap.String("code", string(kind)))
		switch kind {
		case errs.Unavailable:
			level = zapcore.WarnLevel
			fields = append(fields, zap.Error(err))
		case errs.Internal, errs.DeliveryLeaseLost, errs.AttemptLeaseLost:
			level = zapcore.ErrorLevel
			fields = append(fields, zap.Error(err))
		}
	}
	if stack != nil {
		fields = append(fields, zap.ByteString("stack", stack))
	}
	a.log.Log(level, "request", fields...)
}
