package wire

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// Open begins a server frame up to its body, which the caller appends before Close.
func Open(b []byte, frameType string, replyTo, session *ids.ID) []byte {
	return append(head(b, frameType, replyTo, session), `,"body":`...)
}

// Close ends a frame.
func Close(b []byte) []byte { return append(b, '}') }

// Error is a whole error frame; replyTo and session may be nil.
func Error(err error, replyTo, session *ids.ID) []byte {
	b := head(make([]byte, 0, 256), "error", replyTo, session)
	b = append(b, `,"error":`...)
	b = AppendError(b, err)
	return append(b, '}')
}

// AppendError appends {code, message}: what may be shown of err, never more.
func AppendError(b []byte, err error) []byte {
	b = append(b, `{"code":"`...)
	b = append(b, errs.KindOf(err)...)
	b = append(b, `","message":`...)
	b = AppendString(b, errs.MessageOf(err))
	return append(b, '}')
}

// AppendString appends a JSON string.
func AppendString(b []byte, s string) []byte {
	b, err := jsontext.AppendQuote(b, s)
	if err != nil { // invalid UTF-8 was replaced; the rest is written
		return b
	}
	return b
}

// AppendTime appends a quoted UTC RFC 3339 time.
func AppendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

// AppendCounter appends a quoted decimal.
func AppendCounter(b []byte, c ids.Counter) []byte {
	b = append(b, '"')
	b = strconv.AppendUint(b, uint64(c), 10)
	return append(b, '"')
}

// AppendID appends a quoted id.
func AppendID(b []byte, id ids.ID) []byte {
	b = append(b, '"')
	b = append(b, id.String()...)
	return append(b, '"')
}

func head(b []byte, frameType string, replyTo, session *ids.ID) []byte {
	b = append(b, `{"protocol_version":"1","type":"`...)
	b = append(b, frameType...)
	b = append(b, `","message_id":`...)
	b = AppendID(b, ids.New())
	if replyTo != nil {
		b = append(b, `,"reply_to":`...)
		b = AppendID(b, *replyTo)
	}
	if session != nil {
		b = append(b, `,"session_id":`...)
		b = AppendID(b, *session)
	}
	return b
}

// AppendInt appends a number.
func AppendInt(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }

// AppendBool appends true or false.
func AppendBool(b []byte, v bool) []byte { return strconv.AppendBool(b, v) }

// Shown is a client's string as a message may repeat it: short and printable.
func Shown(s string) string { return strconv.QuoteToASCII(s[:min(len(s), 64)]) }
