package httpapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// Limits of a request (R2.4, R5.4).
const (
	maxBody      = 512 << 10
	defaultLimit = 20
	maxLimit     = 100
)

// bearer returns the token of the one Authorization header, "" for anything else.
func bearer(h http.Header) string {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

// isText has the names in templates that are no ids; their handlers check them.
var isText = map[string]bool{"version": true, "step": true}

// pathParams parses the ids of a path, in order of their names in the template, and passes its texts.
func pathParams(names, values []string) (map[string]ids.ID, map[string]string, error) {
	out, texts := make(map[string]ids.ID, len(names)), map[string]string{}
	for i, name := range names {
		if isText[name] {
			texts[name] = values[i]
			continue
		}
		id, err := ids.ParseID(values[i])
		if err != nil {
			return nil, nil, errs.Invalid(name, "%v", err)
		}
		out[name] = id
	}
	return out, texts, nil
}

// queryOf accepts the named parameters, each at most once, and nothing else (R2.5).
func queryOf(raw string, accepted []string) (map[string]string, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, errs.Invalid("query", "is malformed")
	}
	out := make(map[string]string, len(values))
	for name, v := range values {
		switch {
		case len(accepted) == 0:
			return nil, errs.Invalid("query", "this endpoint takes no parameters")
		case !slices.Contains(accepted, name):
			return nil, errs.Invalid("query", "unknown parameter; this endpoint takes %s", strings.Join(accepted, ", "))
		case len(v) > 1:
			return nil, errs.Invalid(name, "is given %d times", len(v))
		}
		out[name] = v[0]
	}
	return out, nil
}

func limitOf(query map[string]string) (int, error) {
	text, given := query["limit"]
	if !given {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit || strconv.Itoa(n) != text {
		return 0, errs.Invalid("limit", "must be a whole number 1…%d", maxLimit)
	}
	return n, nil
}

var keyForm = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// idempotencyKey returns the one key of a write (R2.2).
func idempotencyKey(h http.Header) (string, error) {
	values := h.Values("Idempotency-Key")
	switch {
	case len(values) == 0:
		return "", errs.Invalid("Idempotency-Key", "this header is required")
	case len(values) > 1:
		return "", errs.Invalid("Idempotency-Key", "this header is given %d times", len(values))
	case !keyForm.MatchString(values[0]):
		return "", errs.Invalid("Idempotency-Key", "must be 1…128 of A-Z a-z 0-9 . _ : -")
	}
	return values[0], nil
}

// checkContent accepts one Content-Type application/json, in UTF-8, and no Content-Encoding.
func checkContent(h http.Header) error {
	types := h.Values("Content-Type")
	if len(types) != 1 {
		return errs.Invalid("Content-Type", "this header must be given once, as application/json; it is given %d times", len(types))
	}
	media, params, err := mime.ParseMediaType(types[0])
	if err != nil || media != "application/json" {
		return errs.Invalid("Content-Type", "must be application/json")
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return errs.Invalid("Content-Type", "takes no parameter other than charset=utf-8")
		}
	}
	for _, coding := range h.Values("Content-Encoding") {
		if !strings.EqualFold(strings.TrimSpace(coding), "identity") {
			return errs.Invalid("Content-Encoding", "is not supported; send the JSON as it is")
		}
	}
	return nil
}

// noBody refuses a body where none has a meaning.
func noBody(r *http.Request) error {
	if r.ContentLength != 0 {
		return errs.Invalid("body", "a %s request takes none", r.Method)
	}
	return nil
}

// readBody returns the whole body, chunked or not, before the deadline. Over 512 KiB is
// INVALID_ARGUMENT and the connection is given up, a body that comes too slowly UNAVAILABLE.
func readBody(w http.ResponseWriter, r *http.Request, deadline time.Time) ([]byte, error) {
	tooLarge := errs.Invalid("body", "must be at most %d bytes", maxBody)
	if r.ContentLength > maxBody {
		w.Header().Set("Connection", "close")
		return nil, tooLarge
	}
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(deadline) // not supported by a recorder in tests
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return nil, errs.Wrap(errs.Unavailable, err, "body: did not arrive in time")
	case err != nil:
		w.Header().Set("Connection", "close")
		return nil, errs.Wrap(errs.InvalidArgument, err, "body: cannot be read to its end")
	case len(body) > maxBody:
		w.Header().Set("Connection", "close")
		return nil, tooLarge
	}
	_ = conn.SetReadDeadline(time.Time{})
	return body, nil
}
