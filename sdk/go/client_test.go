package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// seen is one request as a server saw it.
type seen struct{ line, key, token, contentType, body string }

// api answers requests in order, each with one answer; it fails the test on more.
func api(t *testing.T, answers ...http.HandlerFunc) (*httptest.Server, func() []seen) {
	var mu sync.Mutex
	var got []seen
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		got = append(got, seen{r.Method + " " + r.URL.RequestURI(), r.Header.Get("Idempotency-Key"), r.Header.Get("Authorization"), r.Header.Get("Content-Type"), string(body)})
		n := len(got)
		mu.Unlock()
		if n > len(answers) {
			t.Errorf("request %d: %s", n, r.URL)
			return
		}
		answers[n-1](w, r)
	}))
	t.Cleanup(s.Close)
	return s, func() []seen {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
}

func data(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-ID", id(7))
		_, _ = fmt.Fprintf(w, `{"request_id":%q,"data":%s}`, id(7), text)
	}
}

func refuse(status int, code Code) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"request_id":%q,"error":{"code":%q,"message":"no"}}`, id(7), string(code))
	}
}

func client(t *testing.T, s *httptest.Server) *Client {
	t.Helper()
	c, err := NewClient(s.URL, testToken, WithRetry(3, quick))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

const taskText = `{"id":"` + testSub + `","queue_id":"` + testQueue + `","state":"SUCCEEDED","revision":"9007199254740993","retry_safety":"safe","priority":-1,` +
	`"attempts":1,"max_attempts":3,"run_at":"2026-09-17T10:00:00Z","effect_uncertain":true,"cancel_requested":true,"input": ` + exact + ` ,"result":` + exact +
	`,"error":{"code":"A","message":"b"},"created_at":"2026-09-17T10:00:00.5Z","updated_at":"2026-09-17T10:00:00Z","finished_at":"2026-09-17T10:00:00Z","new_member":1}`

func TestClientRequests(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	task, queue, sub, delivery := `{"task":`+taskText+`,"deduplicated":true}`, `{"queue":{"id":"`+testQueue+`","revision":"2"},"deduplicated":true}`,
		`{"subscription":{"id":"`+testSub+`","types":["task.failed"],"revision":"2"},"deduplicated":true}`, `{"delivery":{"id":"`+testSub+`","revision":"4"},"deduplicated":true}`
	page := `{"items":[{"id":"` + testSub + `"}],"next_cursor":"n"}`
	command := `{"expected_revision":"3","reason":"r<>"`
	for name, c := range map[string]struct {
		call   func(*Client) (any, error)
		line   string
		body   string
		answer string
	}{
		"CreateQueue": {func(c *Client) (any, error) {
			return c.CreateQueue(ctx, "k", CreateQueueRequest{Name: "q", LeaseDurationMS: 5000})
		},
			"POST /v1/queues", `{"name":"q","lease_duration_ms":5000}`, queue},
		"GetQueue":   {func(c *Client) (any, error) { return c.GetQueue(ctx, testQueue) }, "GET /v1/queues/" + testQueue, "", `{"id":"q"}`},
		"ListQueues": {func(c *Client) (any, error) { return c.ListQueues(ctx, ListOptions{Limit: 2, Cursor: "a+b"}) }, "GET /v1/queues?cursor=a%2Bb&limit=2", "", page},
		"ConfigureQueue": {func(c *Client) (any, error) {
			return c.ConfigureQueue(ctx, testQueue, "k", ConfigureQueueRequest{ExpectedRevision: "3", Reason: "r", Paused: Ptr(false), MaxRunning: Ptr(0)})
		}, "POST /v1/queues/" + testQueue + ":configure", `{"expected_revision":"3","reason":"r","paused":false,"max_running":0}`, queue},
		"RetireQueue": {func(c *Client) (any, error) {
			return c.RetireQueue(ctx, testQueue, "k", RetireResourceRequest{ExpectedRevision: "3", Reason: "r"})
		}, "POST /v1/queues/" + testQueue + ":retire", `{"expected_revision":"3","reason":"r"}`, queue},
		"SubmitTask": {func(c *Client) (any, error) {
			return c.SubmitTask(ctx, "k", SubmitTaskRequest{QueueID: testQueue, Input: json.RawMessage(exact), RetrySafety: Safe, MaxAttempts: 2,
				RunAt: time.Date(2026, 9, 17, 12, 0, 0, 1000, time.FixedZone("", 7200)), Priority: -1, Labels: map[string]string{"k": "v"}})
		}, "POST /v1/tasks", `{"queue_id":"` + testQueue + `","input":` + exact + `,"retry_safety":"safe","max_attempts":2,"run_at":"2026-09-17T10:00:00.000001Z","priority":-1,"labels":{"k":"v"}}`, task},
		"SubmitTasks": {func(c *Client) (any, error) {
			return c.SubmitTasks(ctx, "k", []SubmitTaskRequest{{QueueID: testQueue, Input: json.RawMessage(exact)}, {QueueID: testQueue, Input: json.RawMessage("1.0")}})
		}, "POST /v1/tasks:batch", `{"tasks":[{"queue_id":"` + testQueue + `","input":` + exact + `},{"queue_id":"` + testQueue + `","input":1.0}]}`, `{"tasks":[` + taskText + `],"deduplicated":false}`},
		"GetTask": {func(c *Client) (any, error) { return c.GetTask(ctx, testSub) }, "GET /v1/tasks/" + testSub, "", taskText},
		"ListTasks": {func(c *Client) (any, error) {
			return c.ListTasks(ctx, ListTasksRequest{QueueID: testQueue, State: TaskStateFailed})
		}, "GET /v1/tasks?queue_id=" + testQueue + "&state=FAILED", "", page},
		"ListTaskAttempts": {func(c *Client) (any, error) { return c.ListTaskAttempts(ctx, testSub, ListOptions{}) },
			"GET /v1/tasks/" + testSub + "/attempts", "", page},
		"CancelTask": {func(c *Client) (any, error) {
			return c.CancelTask(ctx, testSub, "k", CancelTaskRequest{ExpectedRevision: "3", Reason: "r"})
		}, "POST /v1/tasks/" + testSub + ":cancel", `{"expected_revision":"3","reason":"r"}`, task},
		"ResolveTask": {func(c *Client) (any, error) {
			return c.ResolveTask(ctx, testSub, "k", ResolveTaskRequest{ExpectedRevision: "3", Outcome: ResolveSucceeded, Result: json.RawMessage(exact), Reason: "r"})
		}, "POST /v1/tasks/" + testSub + ":resolve", `{"expected_revision":"3","outcome":"succeeded","result":` + exact + `,"reason":"r"}`, task},
		"CreateSubscription": {func(c *Client) (any, error) {
			return c.CreateSubscription(ctx, "k", CreateSubscriptionRequest{Name: "s", QueueID: testQueue, Types: []EventType{TaskFailed}, FromSequence: "0", MaxPending: 5})
		}, "POST /v1/subscriptions", `{"name":"s","queue_id":"` + testQueue + `","types":["task.failed"],"from_sequence":"0","max_pending":5}`, sub},
		"ListSubscriptions": {func(c *Client) (any, error) {
			return c.ListSubscriptions(ctx, ListSubscriptionsRequest{QueueID: testQueue})
		},
			"GET /v1/subscriptions?queue_id=" + testQueue, "", page},
		"GetSubscription": {func(c *Client) (any, error) { return c.GetSubscription(ctx, testSub) }, "GET /v1/subscriptions/" + testSub, "", `{"id":"s"}`},
		"ConfigureSubscription": {func(c *Client) (any, error) {
			return c.ConfigureSubscription(ctx, testSub, "k", ConfigureSubscriptionRequest{ExpectedRevision: "3", Reason: "r"})
		}, "POST /v1/subscriptions/" + testSub + ":configure", `{"expected_revision":"3","enabled":false,"reason":"r"}`, sub},
		"RetireSubscription": {func(c *Client) (any, error) {
			return c.RetireSubscription(ctx, testSub, "k", RetireResourceRequest{ExpectedRevision: "3", Reason: "r"})
		}, "POST /v1/subscriptions/" + testSub + ":retire", `{"expected_revision":"3","reason":"r"}`, sub},
		"ListEventDeliveries": {func(c *Client) (any, error) {
			return c.ListEventDeliveries(ctx, testSub, ListEventDeliveriesRequest{State: DeliveryExpired, Limit: 100})
		}, "GET /v1/subscriptions/" + testSub + "/deliveries?limit=100&state=EXPIRED", "", page},
		"GetEventDelivery": {func(c *Client) (any, error) { return c.GetEventDelivery(ctx, testSub, testQueue) },
			"GET /v1/subscriptions/" + testSub + "/deliveries/" + testQueue, "", `{"delivery":{"id":"d"},"event":` + eventText(1, exact) + `}`},
		"RetryEventDelivery": {func(c *Client) (any, error) {
			return c.RetryEventDelivery(ctx, testSub, testQueue, "k", RetryEventDeliveryRequest{ExpectedRevision: "3", Reason: "r<>", AdditionalAttempts: 2})
		}, "POST /v1/subscriptions/" + testSub + "/deliveries/" + testQueue + ":retry", strings.NewReplacer("<", `\u003c`, ">", `\u003e`).Replace(command) + `,"additional_attempts":2}`, delivery},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, requests := api(t, data(c.answer))
			out, err := c.call(client(t, s))
			if err != nil {
				t.Fatal(err)
			}
			want := seen{line: c.line, token: "Bearer " + testToken, body: c.body}
			if strings.HasPrefix(c.line, "POST") {
				want.key, want.contentType = "k", "application/json"
			}
			if got := requests()[0]; got != want {
				t.Errorf("\n got %+v\nwant %+v", got, want)
			}
			checkAnswer(t, out)
		})
	}
}

func checkAnswer(t *testing.T, out any) {
	t.Helper()
	var task *Task
	switch out := out.(type) {
	case *TaskResult:
		task = &out.Task
		if !out.Deduplicated {
			t.Error("deduplicated was lost")
		}
	case *TasksResult:
		task = &out.Tasks[0]
	case *Task:
		task = out
	case *EventDeliveryDetail:
		if string(out.RawEvent) != eventText(1, exact) || string(out.Event.Snapshot.Result) != exact || out.Delivery.ID != "d" {
			t.Errorf("detail %+v", out)
		}
	case *Page[Subscription]:
		if len(out.Items) != 1 || out.NextCursor != "n" {
			t.Errorf("page %+v", out)
		}
	case *SubscriptionResult:
		if !out.Deduplicated || out.Subscription.Types[0] != TaskFailed || out.Subscription.Revision != "2" {
			t.Errorf("result %+v", out)
		}
	}
	if task != nil && (string(task.Input) != exact || string(task.Result) != exact || task.Revision != "9007199254740993" || task.Error.Code != "A") {
		t.Errorf("task %+v", task)
	}
}

func TestClientRetriesWhatIsSafe(t *testing.T) {
	t.Parallel()
	drop := func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }
	half := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"request_id"`)
	}
	ok := data(`{"queue":{"id":"` + testQueue + `"},"deduplicated":true}`)
	for name, c := range map[string]struct {
		answers []http.HandlerFunc
		is      error
	}{
		"away, then a dropped connection": {[]http.HandlerFunc{refuse(503, ErrUnavailable), drop, ok}, nil},
		"half an answer":                  {[]http.HandlerFunc{half, ok}, nil},
		"a rate limit":                    {[]http.HandlerFunc{refuse(429, ErrCapacityExceeded), ok}, nil},
		"a proxy":                         {[]http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, ok}, nil},
		"away for good":                   {[]http.HandlerFunc{refuse(503, ErrUnavailable), refuse(503, ErrUnavailable), refuse(503, ErrUnavailable)}, ErrUnavailable},
		"a conflict":                      {[]http.HandlerFunc{refuse(409, ErrStateConflict)}, ErrStateConflict},
		"an unknown failure":              {[]http.HandlerFunc{refuse(500, ErrInternal)}, ErrInternal},
		"no envelope":                     {[]http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }}, ErrInternal},
		"a redirect": {[]http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}}, ErrInternal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, requests := api(t, c.answers...)
			_, err := client(t, s).CreateQueue(context.Background(), "the-key", CreateQueueRequest{Name: "q"})
			if c.is == nil && err != nil || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v", err)
			}
			got := requests()
			if len(got) != len(c.answers) {
				t.Errorf("%d tries, want %d", len(got), len(c.answers))
			}
			for _, r := range got {
				if r != got[0] || r.key != "the-key" {
					t.Errorf("a try differs: %+v", r)
				}
			}
		})
	}
}

func TestClientErrors(t *testing.T) {
	t.Parallel()
	for status, code := range map[int]Code{400: ErrInvalidArgument, 401: ErrUnauthenticated, 403: ErrPermissionDenied, 404: ErrNotFound, 409: ErrResourceBusy, 410: ErrEventHistoryExpired} {
		s, _ := api(t, refuse(status, code))
		_, err := client(t, s).GetQueue(context.Background(), testQueue)
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, code) || errors.Is(err, ErrStateConflict) || e.RequestID != id(7) || e.HTTPStatus != status || e.Message != "no" {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestClientHonoursRetryAfterWithinItsContext(t *testing.T) {
	t.Parallel()
	later := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "30")
		refuse(503, ErrUnavailable)(w, r)
	}
	s, _ := api(t, later)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	began := time.Now()
	_, err := client(t, s).GetQueue(ctx, testQueue)
	var e *Error
	if !errors.As(err, &e) || e.RetryAfter != 30*time.Second {
		t.Errorf("got %v", err)
	}
	if time.Since(began) > 5*time.Second {
		t.Error("it waited for nothing")
	}
}

func TestClientRefusesWithoutAsking(t *testing.T) {
	t.Parallel()
	s, _ := api(t) // fails on any request
	c, ctx := client(t, s), context.Background()
	for name, call := range map[string]func() error{
		"no id":         func() error { _, err := c.GetTask(ctx, ""); return err },
		"a path":        func() error { _, err := c.GetTask(ctx, "../queues/"+testQueue); return err },
		"upper case":    func() error { _, err := c.GetEventDelivery(ctx, testSub, strings.Repeat("A", 32)); return err },
		"no key":        func() error { _, err := c.CreateQueue(ctx, "", CreateQueueRequest{}); return err },
		"a key's space": func() error { _, err := c.CreateQueue(ctx, "a b", CreateQueueRequest{}); return err },
		"a long key":    func() error { _, err := c.CreateQueue(ctx, strings.Repeat("k", 129), CreateQueueRequest{}); return err },
		"no JSON": func() error {
			_, err := c.SubmitTask(ctx, "k", SubmitTaskRequest{QueueID: testQueue, Input: json.RawMessage(`1,"priority":100`)})
			return err
		},
		"no UTF-8 in a batch": func() error {
			_, err := c.SubmitTasks(ctx, "k", []SubmitTaskRequest{{QueueID: testQueue, Input: json.RawMessage("\"\xff\"")}})
			return err
		},
	} {
		if err := call(); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, base := range []string{"http://orbit.example.com", "ws://localhost", "", "https://user@h"} {
		if _, err := NewClient(base, testToken); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%q: %v", base, err)
		}
	}
	if _, err := NewClient("http://orbit.example.com/prefix/", testToken, WithInsecureHTTP()); err != nil {
		t.Error(err)
	}
}

func TestListsAreReadPageByPage(t *testing.T) {
	t.Parallel()
	s, requests := api(t, data(`{"items":[{"id":"a"},{"id":"b"}],"next_cursor":"c1"}`), data(`{"items":[],"next_cursor":"c2"}`), data(`{"items":[{"id":"c"}]}`))
	c := client(t, s)
	var got string
	for task, err := range c.AllTasks(context.Background(), ListTasksRequest{QueueID: testQueue, State: TaskStateQueued, Limit: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		got += task.ID
	}
	if got != "abc" {
		t.Errorf("read %q", got)
	}
	for i, cursor := range []string{"", "cursor=c1&", "cursor=c2&"} {
		if want := "GET /v1/tasks?" + cursor + "limit=2&queue_id=" + testQueue + "&state=QUEUED"; requests()[i].line != want {
			t.Errorf("page %d: %s", i, requests()[i].line)
		}
	}
	s, _ = api(t, data(`{"items":[{"id":"a"}],"next_cursor":"c1"}`), refuse(400, ErrInvalidArgument))
	var errs int
	for _, err := range client(t, s).AllSubscriptions(context.Background(), ListSubscriptionsRequest{QueueID: testQueue}) {
		if err != nil {
			errs++
		}
	}
	if errs != 1 {
		t.Errorf("%d errors", errs)
	}
	s, requests = api(t, data(`{"items":[{"id":"a"},{"id":"b"}],"next_cursor":"c1"}`))
	for range client(t, s).AllQueues(context.Background()) {
		break
	}
	if len(requests()) != 1 {
		t.Errorf("%d pages were read after a break", len(requests()))
	}
}
