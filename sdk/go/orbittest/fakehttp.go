package orbittest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// statusOf is the HTTP status of each code (R2.6).
var statusOf = map[orbit.Code]int{
	orbit.ErrInvalidArgument: 400, orbit.ErrUnauthenticated: 401, orbit.ErrPermissionDenied: 403, orbit.ErrNotFound: 404,
	orbit.ErrStateConflict: 409, orbit.ErrIdempotencyConflict: 409, orbit.ErrSubscriptionLimit: 409, orbit.ErrResourceBusy: 409,
	orbit.ErrResourceRetired: 409, orbit.ErrEventHistoryExpired: 410, orbit.ErrProtocolRequired: 426, orbit.ErrCapacityExceeded: 429,
	orbit.ErrUnavailable: 503, orbit.ErrInternal: 500,
}

func refuse(code orbit.Code, format string, args ...any) error {
	return &orbit.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func missing(kind, id string) error {
	return refuse(orbit.ErrNotFound, "%s %s does not exist here", kind, id)
}

// request is one call of the management API.
type request struct {
	ids   []string
	verb  string
	query url.Values
	key   string
	body  []byte
	id    string // its own, for the audit
}

// receipt is the stored answer of a write.
type receipt struct {
	fingerprint string
	data        []byte // {"<resource>":…}
}

// read answers a GET with its data.
type read func(f *Fake, r *request) ([]byte, error)

// write decides a POST: check runs before the receipt, do after it; what do returns is the receipt's data.
type write struct {
	creates bool
	do      func(f *Fake, r *request) ([]byte, error)
	// check finds the resource and the shape's faults (R2.9); nil: do does
	check func(f *Fake, r *request) error
}

// place is a path and its verb.
type place struct {
	method, path, verb string // {} in path is an id
	params             string // the query parameters it takes, blank separated
	read               read
	write              write
}

var places = []place{
	{method: "POST", path: "queues", write: write{true, (*Fake).createQueue, nil}},
	{method: "GET", path: "queues", params: "limit cursor", read: (*Fake).listQueues},
	{method: "GET", path: "queues/{}", read: (*Fake).getQueue},
	{method: "POST", path: "queues/{}", verb: "configure", write: write{false, (*Fake).configureQueue, (*Fake).hasQueue}},
	{method: "POST", path: "queues/{}", verb: "retire", write: write{false, (*Fake).retireQueue, (*Fake).hasQueue}},
	{method: "POST", path: "tasks", write: write{true, (*Fake).submitTask, nil}},
	{method: "POST", path: "tasks", verb: "batch", write: write{true, (*Fake).submitTasks, nil}},
	{method: "GET", path: "tasks", params: "queue_id state label limit cursor", read: (*Fake).listTasks},
	{method: "GET", path: "tasks/{}", read: (*Fake).getTask},
	{method: "GET", path: "tasks/{}/attempts", params: "limit cursor", read: (*Fake).listAttempts},
	{method: "POST", path: "tasks/{}", verb: "cancel", write: write{false, (*Fake).cancelTask, (*Fake).hasTask}},
	{method: "POST", path: "tasks/{}", verb: "resolve", write: write{false, (*Fake).resolveTask, (*Fake).hasTask}},
	{method: "POST", path: "subscriptions", write: write{true, (*Fake).createSubscription, nil}},
	{method: "GET", path: "subscriptions", params: "queue_id limit cursor", read: (*Fake).listSubscriptions},
	{method: "GET", path: "subscriptions/{}", read: (*Fake).getSubscription},
	{method: "POST", path: "subscriptions/{}", verb: "configure", write: write{false, (*Fake).configureSubscription, (*Fake).hasSubscription}},
	{method: "POST", path: "subscriptions/{}", verb: "retire", write: write{false, (*Fake).retireSubscription, (*Fake).hasSubscription}},
	{method: "GET", path: "subscriptions/{}/deliveries", params: "state limit cursor", read: (*Fake).listDeliveries},
	{method: "GET", path: "subscriptions/{}/deliveries/{}", read: (*Fake).getDelivery},
	{method: "POST", path: "subscriptions/{}/deliveries/{}", verb: "retry", write: write{false, (*Fake).retryDelivery, (*Fake).hasDelivery}},
	{method: "GET", path: "audit", params: "limit cursor", read: (*Fake).listAudit},
}

var (
	idForm   = regexp.MustCompile(`^[0-9a-f]{32}$`)
	keyForm  = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)
	nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// ServeHTTP is the management API and the door of both sockets.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := orbit.NewID()
	if r.URL.Path == eventsPath || r.URL.Path == workersPath {
		f.upgrade(w, r, id)
		return
	}
	status, data, err := f.answer(r, id)
	f.reply(w, id, status, data, err)
}

func (f *Fake) reply(w http.ResponseWriter, id string, status int, data []byte, err error) {
	body := append([]byte(`{"request_id":"`+id+`","data":`), data...)
	var refused *orbit.Error
	if errors.As(err, &refused) {
		status = statusOf[refused.Code]
		body = append([]byte(`{"request_id":"`+id+`","error":`), encode(map[string]string{"code": string(refused.Code), "message": refused.Message})...)
	}
	h := w.Header()
	h.Set("X-Request-ID", id)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/json")
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '}')) // a client that is gone has no use for it
}

func (f *Fake) answer(r *http.Request, id string) (int, []byte, error) {
	p, ids, ok := find(r.Method, r.URL.Path)
	if !ok {
		return 0, nil, refuse(orbit.ErrNotFound, "no such path in this API")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 512<<10+1))
	if err != nil {
		return 0, nil, refuse(orbit.ErrInvalidArgument, "body: cannot be read to its end")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.admit(r); err != nil {
		return 0, nil, err
	}
	call := &request{ids: ids, verb: p.verb, query: r.URL.Query(), key: r.Header.Get("Idempotency-Key"), body: body, id: id}
	if err := call.shape(r, p); err != nil {
		return 0, nil, err
	}
	if p.read != nil {
		data, err := p.read(f, call)
		return http.StatusOK, data, err
	}
	return f.execute(p, call)
}

// find matches a path such as /v1/queues/<id>:configure.
func find(method, path string) (place, []string, bool) {
	path, ok := strings.CutPrefix(path, "/v1/")
	segments := strings.Split(path, "/")
	last := len(segments) - 1
	var verb string
	segments[last], verb, _ = strings.Cut(segments[last], ":")
	for _, p := range places {
		want := strings.Split(p.path, "/")
		if !ok || p.method != method || p.verb != verb || len(want) != len(segments) {
			continue
		}
		var ids []string
		match := true
		for i, w := range want {
			if w == "{}" {
				ids = append(ids, segments[i])
			} else {
				match = match && w == segments[i]
			}
		}
		if match {
			return p, ids, true
		}
	}
	return place{}, nil, false
}

func (f *Fake) admit(r *http.Request) error {
	if f.away > 0 {
		f.away--
		return refuse(orbit.ErrUnavailable, "the fake was told to be away")
	}
	if f.revoked || r.Header.Get("Authorization") != "Bearer "+f.Token {
		return refuse(orbit.ErrUnauthenticated, "the token is malformed, unknown or revoked")
	}
	return nil
}

func (c *request) shape(r *http.Request, p place) error {
	for name, values := range c.query {
		if !strings.Contains(" "+p.params+" ", " "+name+" ") || len(values) != 1 {
			return refuse(orbit.ErrInvalidArgument, "query: unknown or repeated parameter")
		}
	}
	for _, id := range c.ids {
		if !idForm.MatchString(id) {
			return refuse(orbit.ErrInvalidArgument, "id: must be 32 lowercase hex characters")
		}
	}
	if p.method == http.MethodGet {
		return nil
	}
	switch {
	case !keyForm.MatchString(c.key):
		return refuse(orbit.ErrInvalidArgument, "Idempotency-Key: must be 1…128 of A-Z a-z 0-9 . _ : -")
	case r.Header.Get("Content-Type") != "application/json":
		return refuse(orbit.ErrInvalidArgument, "Content-Type: must be application/json")
	case len(c.body) > 512<<10:
		return refuse(orbit.ErrInvalidArgument, "body: must be at most %d bytes", 512<<10)
	}
	return nil
}

// execute runs a write once per key (§3).
func (f *Fake) execute(p place, r *request) (int, []byte, error) {
	if p.write.check != nil {
		if err := p.write.check(f, r); err != nil {
			return 0, nil, err
		}
	}
	fingerprint := p.path + ":" + p.verb + strings.Join(r.ids, "/") + compact(r.body)
	if old, found := f.receipts[r.key]; found {
		if old.fingerprint != fingerprint {
			return 0, nil, refuse(orbit.ErrIdempotencyConflict, "Idempotency-Key was used by this credential for another request")
		}
		return http.StatusOK, with(old.data, "deduplicated", []byte("true")), nil
	}
	data, err := p.write.do(f, r)
	if err != nil {
		return 0, nil, err
	}
	f.receipts[r.key] = receipt{fingerprint, data}
	f.pump()
	status := http.StatusOK
	if p.write.creates {
		status = http.StatusCreated
	}
	return status, with(data, "deduplicated", []byte("false")), nil
}

func compact(body []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, body) != nil {
		return string(body)
	}
	return b.String()
}

// page cuts a list, whose items are already in order, by limit and cursor.
func page[T any](r *request, scope string, items []T, encodeItem func(T) []byte) ([]byte, error) {
	limit, from := 20, 0
	if text := r.query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 100 {
			return nil, refuse(orbit.ErrInvalidArgument, "limit: must be a whole number 1…100")
		}
		limit = n
	}
	if text := r.query.Get("cursor"); text != "" {
		// From the oldest end, so that newer items do not shift what follows.
		plain, err := base64.RawURLEncoding.DecodeString(text)
		rest, ok := strings.CutPrefix(string(plain), scope+"|")
		left, errLeft := strconv.Atoi(rest)
		if err != nil || !ok || errLeft != nil || left > len(items) {
			return nil, refuse(orbit.ErrInvalidArgument, "cursor: is not one that this list gave out for this credential, parent and filter")
		}
		from = len(items) - left
	}
	out := []byte(`{"items":[`)
	for i := from; i < min(from+limit, len(items)); i++ {
		if i > from {
			out = append(out, ',')
		}
		out = append(out, encodeItem(items[i])...)
	}
	out = append(out, ']')
	if left := len(items) - from - limit; left > 0 {
		cursor := base64.RawURLEncoding.EncodeToString([]byte(scope + "|" + strconv.Itoa(left)))
		out = append(out, `,"next_cursor":"`+cursor+`"`...)
	}
	return append(out, '}'), nil
}
