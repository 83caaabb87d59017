package orbit

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"
)

// maxAnswer bounds how much of one HTTP answer is read: a list of 100 subscriptions or tasks is far below.
const maxAnswer = 64 << 20

// answer is the envelope of R2.3.
type answer struct {
	RequestID string          `json:"request_id"`
	Data      json.RawMessage `json:"data"`
	Error     *wireError      `json:"error"`
}

type wireError struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// err returns the error, or nil for none.
func (w *wireError) err() error {
	if w == nil {
		return nil
	}
	return &Error{Code: w.Code, Message: w.Message}
}

// refusal reads an HTTP answer that says no. One without Orbit's envelope comes from something in
// between; it is UNAVAILABLE, CAPACITY_EXCEEDED or INTERNAL, so that a proxy's 404 is never taken for a
// missing resource.
func refusal(r *http.Response) *Error {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	e := &Error{HTTPStatus: r.StatusCode, RequestID: r.Header.Get("X-Request-ID"), RetryAfter: retryAfter(r.Header)}
	var a answer
	if json.Unmarshal(body, &a) == nil && a.Error != nil && a.Error.Code != "" {
		e.Code, e.Message = a.Error.Code, a.Error.Message
		if a.RequestID != "" {
			e.RequestID = a.RequestID
		}
		return e
	}
	e.Message = "HTTP " + r.Status + " without an answer of Orbit"
	switch r.StatusCode {
	case http.StatusTooManyRequests:
		e.Code = ErrCapacityExceeded
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		e.Code = ErrUnavailable
	default:
		e.Code = ErrInternal
	}
	return e
}

func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil && seconds > 0 {
		return time.Duration(min(seconds, 1<<20)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
