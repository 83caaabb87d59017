package httpapi

import (
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// answer is a successful reply: its status and the JSON of "data". Resources arrive as finished
// JSON text and are spliced in, so that business JSON keeps its bytes.
type answer struct {
	status int
	data   []byte
}

// object answers a GET of one resource: the resource itself is the data (R2.8).
func object(resource []byte) answer { return answer{http.StatusOK, resource} }

// created answers a create: 201 the first time, 200 with the original snapshot for a repeated key.
func created(resource string, r store.Receipt) answer {
	a := commanded(resource, r)
	if !r.Deduplicated {
		a.status = http.StatusCreated
	}
	return a
}

// commanded answers any other write.
func commanded(resource string, r store.Receipt) answer {
	b := make([]byte, 0, len(r.Snapshot)+len(resource)+32)
	b = append(b, `{"`...)
	b = append(b, resource...)
	b = append(b, `":`...)
	b = append(b, r.Snapshot...)
	b = append(b, `,"deduplicated":`...)
	b = strconv.AppendBool(b, r.Deduplicated)
	return answer{http.StatusOK, append(b, '}')}
}

// list answers a page: next_cursor only when more may follow.
func list[T any](items []T, appendJSON func([]byte, T) ([]byte, error), nextCursor string) (answer, error) {
	b := []byte(`{"items":[`)
	var err error
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendJSON(b, item); err != nil {
			return answer{}, err
		}
	}
	b = append(b, ']')
	if nextCursor != "" {
		b = append(append(append(b, `,"next_cursor":"`...), nextCursor...), '"') // base64url needs no escaping
	}
	return answer{http.StatusOK, append(b, '}')}, nil
}

// appendValue encodes a resource that holds no business JSON of its own.
func appendValue[T any](b []byte, v T) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(b, text...), err
}

// envelope is {"request_id", "data"} (R2.3).
func envelope(request ids.ID, data []byte) []byte {
	b := make([]byte, 0, len(data)+64)
	b = append(b, `{"request_id":"`...)
	b = append(b, request.String()...)
	b = append(b, `","data":`...)
	b = append(b, data...)
	return append(b, "}\n"...)
}

// errorEnvelope is {"request_id", "error": {"code", "message"}} with what may be shown of err.
func errorEnvelope(request ids.ID, err error) []byte {
	type inner struct {
		Code    errs.Kind `json:"code"`
		Message string    `json:"message"`
	}
	b, encodeErr := json.Marshal(struct {
		RequestID ids.ID `json:"request_id"`
		Error     inner  `json:"error"`
	}{request, inner{errs.KindOf(err), errs.MessageOf(err)}})
	if encodeErr != nil { // a message that is not UTF-8: the code is what a client acts on
		b = []byte(`{"request_id":"` + request.String() + `","error":{"code":"` + string(errs.KindOf(err)) + `","message":""}}`)
	}
	return append(b, '\n')
}
