package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

// TestPathsAndMethods is the first table of api/http.md.
func TestPathsAndMethods(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	queue := r.tenant.QueueID.String()
	encoded := fmt.Sprintf("%%%02x", queue[0]) + queue[1:]
	sub := r.subscribe(t, `{"name":"s","queue_id":"`+queue+`"}`)
	anonymous := func(h http.Header) { h.Del("Authorization") }
	cases := []struct {
		name, method, path, body string
		header                   func(h http.Header)
		status                   int
		code, allow              string
	}{
		{"unknown path", "GET", "/v1/nothing", "", anonymous, 404, "NOT_FOUND", ""},
		{"root", "GET", "/", "", anonymous, 404, "NOT_FOUND", ""},
		{"trailing slash", "GET", "/v1/queues/", "", nil, 404, "NOT_FOUND", ""},
		{"double slash", "GET", "/v1//queues", "", nil, 404, "NOT_FOUND", ""},
		{"dot segment", "GET", "/v1/./queues", "", nil, 404, "NOT_FOUND", ""},
		{"dot dot segment", "GET", "/v1/x/../queues", "", nil, 404, "NOT_FOUND", ""},
		{"other case", "GET", "/V1/queues", "", nil, 404, "NOT_FOUND", ""},
		{"encoded literal", "GET", "/v1/%71ueues", "", nil, 404, "NOT_FOUND", ""},
		{"encoded slash as separator", "GET", "/v1%2Fqueues", "", nil, 404, "NOT_FOUND", ""},
		{"encoded slash in an id", "GET", "/v1/queues/" + queue + "%2Fx", "", nil, 400, "INVALID_ARGUMENT", ""},
		{"encoded id", "GET", "/v1/queues/" + encoded, "", nil, 200, "", ""},
		{"upper case id", "GET", "/v1/queues/" + strings.ToUpper(queue), "", nil, 400, "INVALID_ARGUMENT", ""},
		{"encoded colon", "POST", "/v1/subscriptions/" + sub + "%3Aconfigure", `{"expected_revision":"1","enabled":true,"reason":"r"}`, nil, 200, "", ""},
		{"encoded colon, lower case", "POST", "/v1/subscriptions/" + sub + "%3aconfigure", `{"expected_revision":"2","enabled":true,"reason":"r"}`, nil, 200, "", ""},
		{"encoded colon after a word", "POST", "/v1/tasks%3Abatch", `{"tasks":[{"queue_id":"` + queue + `","input":1}]}`, nil, 201, "", ""},
		{"verb after a word, read", "GET", "/v1/tasks:batch", "", nil, 405, "INVALID_ARGUMENT", "OPTIONS, POST"},
		{"unknown verb after a word", "POST", "/v1/tasks:explode", "{}", nil, 404, "NOT_FOUND", ""},
		{"no verb after a word", "POST", "/v1/tasksbatch", "{}", nil, 404, "NOT_FOUND", ""},
		{"two colons after a word", "POST", "/v1/tasks::batch", "{}", nil, 404, "NOT_FOUND", ""},
		{"unknown verb", "POST", "/v1/subscriptions/" + sub + ":explode", "{}", nil, 404, "NOT_FOUND", ""},
		{"verb in other case", "POST", "/v1/subscriptions/" + sub + ":Configure", "{}", nil, 404, "NOT_FOUND", ""},
		{"empty verb", "POST", "/v1/subscriptions/" + sub + ":", "{}", nil, 405, "INVALID_ARGUMENT", "GET, HEAD, OPTIONS"},
		{"verb of another resource", "POST", "/v1/subscriptions/" + sub + ":cancel", "{}", nil, 404, "NOT_FOUND", ""},
		{"two verbs", "POST", "/v1/subscriptions/" + sub + ":x:configure", "{}", nil, 400, "INVALID_ARGUMENT", ""},
		{"verb read", "GET", "/v1/subscriptions/" + sub + ":configure", "", nil, 405, "INVALID_ARGUMENT", "OPTIONS, POST"},
		{"write without verb", "POST", "/v1/subscriptions/" + sub, "{}", nil, 405, "INVALID_ARGUMENT", "GET, HEAD, OPTIONS"},
		{"delete", "DELETE", "/v1/queues", "", anonymous, 405, "INVALID_ARGUMENT", "GET, HEAD, OPTIONS, POST"},
		{"patch", "PATCH", "/v1/queues/" + queue, "{}", nil, 405, "INVALID_ARGUMENT", "GET, HEAD, OPTIONS"},
		{"trace", "TRACE", "/v1/queues", "", nil, 405, "INVALID_ARGUMENT", "GET, HEAD, OPTIONS, POST"},
		{"unknown method", "BREW", "/v1/audit", "", nil, 405, "INVALID_ARGUMENT", "GET, HEAD, OPTIONS"},
		{"method override", "POST", "/v1/audit", "{}", func(h http.Header) { h.Set("X-HTTP-Method-Override", "GET") }, 405, "INVALID_ARGUMENT", "GET, HEAD, OPTIONS"},
		{"options", "OPTIONS", "/v1/subscriptions/" + sub + ":configure", "", anonymous, 204, "", "OPTIONS, POST"},
		{"options of an unknown path", "OPTIONS", "/v1/nothing", "", anonymous, 404, "", ""},
		{"options of health", "OPTIONS", "/livez", "", anonymous, 204, "", "GET, HEAD, OPTIONS"},
		{"post to health", "POST", "/readyz", "{}", anonymous, 405, "INVALID_ARGUMENT", "GET, HEAD, OPTIONS"},
		{"head", "HEAD", "/v1/queues/" + queue, "", nil, 200, "", ""},
		{"head without credential", "HEAD", "/v1/queues/" + queue, "", anonymous, 401, "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			res := r.do(t, request{method: c.method, path: c.path, body: c.body, header: c.header})
			res.want(t, c.status, c.code, "")
			if got := res.header.Get("Allow"); got != c.allow {
				t.Errorf("Allow: %q, want %q", got, c.allow)
			}
			if (c.method == "HEAD" || c.status == 204) && len(res.raw) != 0 {
				t.Errorf("%s has a body: %q", c.method, res.raw)
			}
			for name := range res.header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("answers %s", name)
				}
			}
		})
	}
}

// TestHeadersAndBodies is the rest of api/http.md that shapes a request.
func TestHeadersAndBodies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	set := func(name string, values ...string) func(h http.Header) {
		return func(h http.Header) { h[name] = values }
	}
	bearer := "Bearer " + r.tenant.Token
	padded := func(n int) string { // a good body of exactly n bytes
		head := `{"name":"p` + fmt.Sprint(n) + `"}`
		return head + strings.Repeat(" ", n-len(head))
	}
	key128 := strings.Repeat("k", 128)
	cases := []struct {
		name, method string
		header       func(h http.Header)
		body         string
		status       int
		code         string
		message      string
	}{
		{"no credential", "POST", set("Authorization"), "{}", 401, "UNAUTHENTICATED", ""},
		{"credential twice", "POST", set("Authorization", bearer, bearer), "{}", 401, "UNAUTHENTICATED", ""},
		{"other scheme", "POST", set("Authorization", "Basic "+r.tenant.Token), "{}", 401, "UNAUTHENTICATED", ""},
		{"scheme in other case", "POST", set("Authorization", "bEARER "+r.tenant.Token), `{"name":"h1"}`, 201, "", ""},
		{"two spaces", "POST", set("Authorization", "Bearer  "+r.tenant.Token), "{}", 401, "UNAUTHENTICATED", ""},
		{"token alone", "POST", set("Authorization", r.tenant.Token), "{}", 401, "UNAUTHENTICATED", ""},
		{"other secret", "POST", set("Authorization", "Bearer orbit_"+r.tenant.CredentialID.String()+"_"+ids.NewSecret().Text()), "{}", 401, "UNAUTHENTICATED", ""},
		{"no key", "POST", set("Idempotency-Key"), `{"name":"h2"}`, 400, "INVALID_ARGUMENT", "Idempotency-Key: "},
		{"key twice", "POST", set("Idempotency-Key", "a", "a"), `{"name":"h3"}`, 400, "INVALID_ARGUMENT", "Idempotency-Key: "},
		{"empty key", "POST", set("Idempotency-Key", ""), `{"name":"h4"}`, 400, "INVALID_ARGUMENT", "Idempotency-Key: "},
		{"key of 1", "POST", set("Idempotency-Key", "k"), `{"name":"h5"}`, 201, "", ""},
		{"key of 128", "POST", set("Idempotency-Key", key128), `{"name":"h6"}`, 201, "", ""},
		{"key of 129", "POST", set("Idempotency-Key", key128+"k"), `{"name":"h7"}`, 400, "INVALID_ARGUMENT", "Idempotency-Key: "},
		{"every character of a key", "POST", set("Idempotency-Key", "AZaz09._:-"), `{"name":"h8"}`, 201, "", ""},
		{"a key with a space", "POST", set("Idempotency-Key", "a b"), `{"name":"h9"}`, 400, "INVALID_ARGUMENT", "Idempotency-Key: "},
		{"a key with a comma", "POST", set("Idempotency-Key", "a,b"), `{"name":"ha"}`, 400, "INVALID_ARGUMENT", "Idempotency-Key: "},
		{"a key that is not ASCII", "POST", set("Idempotency-Key", "é"), `{"name":"hb"}`, 400, "INVALID_ARGUMENT", "Idempotency-Key: "},
		{"no content type", "POST", set("Content-Type"), `{"name":"c1"}`, 400, "INVALID_ARGUMENT", "Content-Type: "},
		{"content type twice", "POST", set("Content-Type", "application/json", "application/json"), `{"name":"c2"}`, 400, "INVALID_ARGUMENT", "Content-Type: "},
		{"text", "POST", set("Content-Type", "text/plain"), `{"name":"c3"}`, 400, "INVALID_ARGUMENT", "Content-Type: "},
		{"charset utf-8", "POST", set("Content-Type", "application/json; charset=UTF-8"), `{"name":"c4"}`, 201, "", ""},
		{"charset latin1", "POST", set("Content-Type", "application/json; charset=latin1"), `{"name":"c5"}`, 400, "INVALID_ARGUMENT", "Content-Type: "},
		{"a parameter", "POST", set("Content-Type", "application/json; profile=x"), `{"name":"c6"}`, 400, "INVALID_ARGUMENT", "Content-Type: "},
		{"case of the type", "POST", set("Content-Type", "Application/JSON"), `{"name":"c7"}`, 201, "", ""},
		{"gzip", "POST", set("Content-Encoding", "gzip"), `{"name":"c8"}`, 400, "INVALID_ARGUMENT", "Content-Encoding: "},
		{"identity", "POST", set("Content-Encoding", "identity"), `{"name":"c9"}`, 201, "", ""},
		{"a foreign request id", "POST", set("X-Request-Id", "mine"), `{"name":"ca"}`, 201, "", ""},
		{"524287 bytes", "POST", nil, padded(524287), 201, "", ""},
		{"524288 bytes", "POST", nil, padded(524288), 201, "", ""},
		{"524289 bytes", "POST", nil, padded(524289), 400, "INVALID_ARGUMENT", "body: must be at most 524288 bytes"},
		{"byte order mark", "POST", nil, "\ufeff{\"name\":\"b1\"}", 400, "INVALID_ARGUMENT", "body: "},
		{"a comment", "POST", nil, `{"name":"b2"/**/}`, 400, "INVALID_ARGUMENT", "body: "},
		{"depth of 10000", "POST", nil, `{"name":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `}`, 400, "INVALID_ARGUMENT", "name.0.0.0"},
		{"a read with a body", "GET", nil, "{}", 400, "INVALID_ARGUMENT", "body: "},
		{"a read with a key", "GET", set("Idempotency-Key", "a", "b"), "", 200, "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			res := r.do(t, request{method: c.method, path: "/v1/queues", header: c.header, body: c.body})
			res.want(t, c.status, c.code, c.message)
			if auth := res.header.Get("WWW-Authenticate"); (auth == "Bearer") != (c.status == 401) {
				t.Errorf("WWW-Authenticate: %q", auth)
			}
			if res.RequestID == "mine" {
				t.Error("takes the caller's request id")
			}
		})
	}
}

// TestChecksRunInOrder is R2.9: each request is wrong in every later way too.
func TestChecksRunInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, reader, err := r.Owner.CreateCredential(t.Context(), r.namespace(t), "app", "reader", rightsOf("events:read"))
	if err != nil {
		t.Fatal(err)
	}
	id := r.subscribe(t, `{"name":"s","queue_id":"`+r.tenant.QueueID.String()+`"}`)
	missing := "/v1/subscriptions/" + ids.New().String() + ":configure"
	good := `{"expected_revision":"1","enabled":false,"reason":"r"}`
	r.do(t, request{method: "POST", path: "/v1/subscriptions/x:configure", token: "nonsense", body: "["}).want(t, 401, "UNAUTHENTICATED", "")
	r.do(t, request{method: "POST", path: "/v1/subscriptions/x:configure", token: reader, body: "["}).want(t, 403, "PERMISSION_DENIED", "credential ")
	r.do(t, request{method: "POST", path: missing, body: "["}).want(t, 400, "INVALID_ARGUMENT", "body: ")
	first := r.do(t, request{method: "POST", path: "/v1/subscriptions/" + id + ":configure", key: "k", body: good}).ok(t, 200)
	r.do(t, request{method: "POST", path: missing, key: "k", body: good}).want(t, 404, "NOT_FOUND", "")
	again := r.do(t, request{method: "POST", path: "/v1/subscriptions/" + id + ":configure", key: "k", body: good}).ok(t, 200) // revision 1 is gone
	a, _ := first.resource(t, "subscription")
	b, deduplicated := again.resource(t, "subscription")
	if a != b || !deduplicated {
		t.Errorf("first %s, then %s", first.raw, again.raw)
	}
	r.do(t, request{method: "POST", path: "/v1/subscriptions/" + id + ":configure", body: good}).want(t, 409, "STATE_CONFLICT", "")
}

// TestNoBodyIsReadForACallerWhoMayNotAct: 100 Continue is sent only when the body is wanted.
func TestNoBodyIsReadForACallerWhoMayNotAct(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for token, want := range map[string]string{"nonsense": "HTTP/1.1 401 Unauthorized", r.tenant.Token: "HTTP/1.1 100 Continue"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(conn, "POST /v1/queues HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: 12\r\nExpect: 100-continue\r\n\r\n", token)
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || strings.TrimSpace(line) != want {
			t.Errorf("got %q %v, want %q", line, err, want)
		}
	}
}

// TestChunkedBodiesAreFine and bound by the same limit; a broken one is refused.
func TestChunkedBodiesAreFine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	send := func(name, body string) *response {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, "POST /v1/queues HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: %s\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%s", r.tenant.Token, name, body)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return readResponse(t, "POST", res)
	}
	send("two", "8\r\n{\"name\":\r\n6\r\n\"two\"}\r\n0\r\n\r\n").want(t, 201, "", "")
	chunk := "10000\r\n" + strings.Repeat(" ", 0x10000) + "\r\n"
	send("long", strings.Repeat(chunk, 8)+"1\r\n{\r\n0\r\n\r\n").want(t, 400, "INVALID_ARGUMENT", "body: must be at most 524288 bytes")
	send("broken", "zz\r\n{}\r\n0\r\n\r\n").want(t, 400, "INVALID_ARGUMENT", "body: cannot be read")
}

// TestASlowRequestIsUnavailable and leaves nothing half done: R2.4.
func TestASlowRequestIsUnavailable(t *testing.T) {
	t.Parallel()
	r := newRigWith(t, nil, nop(), Options{Timeout: 300 * time.Millisecond})
	lock, err := r.SQL.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback() // when the test fails before it releases the lock
	if _, err := lock.Exec("SELECT head FROM result_streams FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	create := request{method: "POST", path: "/v1/subscriptions", key: "slow", body: `{"name":"s","queue_id":"` + r.tenant.QueueID.String() + `"}`}
	res := r.do(t, create).want(t, 503, "UNAVAILABLE", "")
	if res.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After: %q", res.header.Get("Retry-After"))
	}
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := r.count(t, "SELECT (SELECT COUNT(*) FROM receipts) + (SELECT COUNT(*) FROM subscriptions)"); n != 0 {
		t.Errorf("%d rows of a request that timed out", n)
	}
	r.do(t, create).ok(t, 201)

	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/queues HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{", r.tenant.Token)
	slow, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	readResponse(t, "POST", slow).want(t, 503, "UNAVAILABLE", "body: did not arrive in time")
}

// TestANodeHasItsLimitOfRequests: one more than the limit is CAPACITY_EXCEEDED, and not for long.
func TestANodeHasItsLimitOfRequests(t *testing.T) {
	t.Parallel()
	r := newRigWith(t, nil, nop(), Options{MaxInFlight: 1})
	lock, err := r.SQL.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback() // when the test fails before it releases the lock
	if _, err := lock.Exec("SELECT head FROM result_streams FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	done := make(chan *response)
	go func() {
		for { // one of the reads below may have the place first
			res := r.post(t, "/v1/subscriptions", `{"name":"s","queue_id":"`+r.tenant.QueueID.String()+`"}`)
			if res.status != 429 {
				done <- res
				return
			}
		}
	}()
	var refused *response
	for refused == nil || refused.status == 200 { // until the first one is inside
		refused = r.get(t, "/v1/queues")
	}
	refused.want(t, 429, "CAPACITY_EXCEEDED", "this node has 1 requests in flight")
	if refused.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After: %q", refused.header.Get("Retry-After"))
	}
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	(<-done).ok(t, 201)
	r.get(t, "/v1/queues").ok(t, 200)
}
