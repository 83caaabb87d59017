package orbit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// golden is one exchange that the management service's tests recorded and keep.
type golden struct {
	Request struct {
		Method string          `json:"method"`
		Path   string          `json:"path"`
		Body   json.RawMessage `json:"body"`
	} `json:"request"`
	Response struct {
		Status int             `json:"status"`
		Body   json.RawMessage `json:"body"`
	} `json:"response"`
}

// goldenDir holds what the service's tests record.
const goldenDir = "../../api/testdata/http"

func readGolden(t *testing.T, name string) golden {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(goldenDir, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// replay answers with the recorded response and remembers what was asked.
func replay(t *testing.T, g golden) (client *Client, method, path *string, body *[]byte) {
	t.Helper()
	method, path, body = new(string), new(string), new([]byte)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*method, *path = r.Method, r.URL.String()
		*body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(g.Response.Status)
		_, _ = w.Write(g.Response.Body)
	}))
	t.Cleanup(server.Close)
	client, err := NewClient(server.URL, "orbit_x", WithRetry(1, Backoff{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, method, path, body
}

// The service's recorded answers are read without losing a member, and the same calls ask the same.
func TestGoldenExchanges(t *testing.T) {
	t.Parallel()
	const queue, sub, task, delivery, key = "11111111111111111111111111111111", "22222222222222222222222222222222", "66666666666666666666666666666666", "33333333333333333333333333333333", "k"
	ctx := context.Background()
	for name, call := range map[string]func(c *Client, body json.RawMessage) (any, error){
		"create_queue": func(c *Client, body json.RawMessage) (any, error) {
			return c.CreateQueue(ctx, key, as[CreateQueueRequest](t, body))
		},
		"get_queue":   func(c *Client, _ json.RawMessage) (any, error) { return c.GetQueue(ctx, queue) },
		"list_queues": func(c *Client, _ json.RawMessage) (any, error) { return c.ListQueues(ctx, ListOptions{Limit: 1}) },
		"configure_queue": func(c *Client, body json.RawMessage) (any, error) {
			return c.ConfigureQueue(ctx, queue, key, as[ConfigureQueueRequest](t, body))
		},
		"get_task": func(c *Client, _ json.RawMessage) (any, error) { return c.GetTask(ctx, task) },
		"cancel_task": func(c *Client, body json.RawMessage) (any, error) {
			return c.CancelTask(ctx, task, key, as[CancelTaskRequest](t, body))
		},
		"list_tasks": func(c *Client, _ json.RawMessage) (any, error) {
			return c.ListTasks(ctx, ListTasksRequest{QueueID: queue, State: "SUCCEEDED", Label: "tenant:blue"})
		},
		"list_attempts": func(c *Client, _ json.RawMessage) (any, error) { return c.ListTaskAttempts(ctx, task, ListOptions{}) },
		"create_subscription": func(c *Client, body json.RawMessage) (any, error) {
			return c.CreateSubscription(ctx, key, as[CreateSubscriptionRequest](t, body))
		},
		"get_subscription": func(c *Client, _ json.RawMessage) (any, error) { return c.GetSubscription(ctx, sub) },
		"configure_subscription": func(c *Client, body json.RawMessage) (any, error) {
			return c.ConfigureSubscription(ctx, sub, key, as[ConfigureSubscriptionRequest](t, body))
		},
		"list_event_deliveries": func(c *Client, _ json.RawMessage) (any, error) {
			return c.ListEventDeliveries(ctx, sub, ListEventDeliveriesRequest{State: "LEASED", Limit: 1})
		},
		"get_event_delivery": func(c *Client, _ json.RawMessage) (any, error) { return c.GetEventDelivery(ctx, sub, delivery) },
		"submit_task": func(c *Client, body json.RawMessage) (any, error) {
			return c.SubmitTask(ctx, key, asSubmit(t, body))
		},
		"submit_tasks": func(c *Client, body json.RawMessage) (any, error) {
			var requests []SubmitTaskRequest
			for _, item := range as[struct{ Tasks []json.RawMessage }](t, body).Tasks {
				requests = append(requests, asSubmit(t, item))
			}
			return c.SubmitTasks(ctx, key, requests)
		},
		"resolve_task": func(c *Client, body json.RawMessage) (any, error) {
			r := as[struct {
				ExpectedRevision Counter `json:"expected_revision"`
				Outcome          string
				Result           json.RawMessage
				Reason           string
			}](t, body)
			return c.ResolveTask(ctx, task, key, ResolveTaskRequest(r))
		},
		"create_subscription_repeated": func(c *Client, body json.RawMessage) (any, error) {
			return c.CreateSubscription(ctx, key, as[CreateSubscriptionRequest](t, body))
		},
		"list_subscriptions": func(c *Client, _ json.RawMessage) (any, error) {
			return c.ListSubscriptions(ctx, ListSubscriptionsRequest{QueueID: queue})
		},
		"list_audit": func(c *Client, _ json.RawMessage) (any, error) { return c.ListAudit(ctx, ListOptions{Limit: 4}) },
		"retire_queue": func(c *Client, body json.RawMessage) (any, error) {
			return c.RetireQueue(ctx, queue, key, as[RetireResourceRequest](t, body))
		},
		"retire_subscription": func(c *Client, body json.RawMessage) (any, error) {
			return c.RetireSubscription(ctx, sub, key, as[RetireResourceRequest](t, body))
		},
		"get_retired_queue":        func(c *Client, _ json.RawMessage) (any, error) { return c.GetQueue(ctx, queue) },
		"get_retired_subscription": func(c *Client, _ json.RawMessage) (any, error) { return c.GetSubscription(ctx, sub) },
		"retry_event_delivery": func(c *Client, body json.RawMessage) (any, error) {
			return c.RetryEventDelivery(ctx, sub, delivery, key, as[RetryEventDeliveryRequest](t, body))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exchange(t, name, call)
		})
	}
}

// exchange makes a recorded call: it must ask what was asked, and read the answer without losing a member.
func exchange(t *testing.T, name string, call func(c *Client, body json.RawMessage) (any, error)) {
	t.Helper()
	g := readGolden(t, name)
	client, method, path, body := replay(t, g)
	got, err := call(client, g.Request.Body)
	if err != nil {
		t.Fatal(err)
	}
	if *method != g.Request.Method || !samePath(*path, g.Request.Path) {
		t.Errorf("asked %s %s, recorded %s %s", *method, *path, g.Request.Method, g.Request.Path)
	}
	if g.Request.Body != nil && !reflect.DeepEqual(generic(t, *body), generic(t, g.Request.Body)) {
		t.Errorf("sent %s, recorded %s", *body, g.Request.Body)
	}
	var envelope struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(g.Response.Body, &envelope); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if want := generic(t, envelope.Data); !reflect.DeepEqual(generic(t, again), want) {
		t.Errorf("read back as %s, recorded %s", again, envelope.Data)
	}
}

// Every recorded error is the typed one that errors.Is knows.
func TestGoldenErrors(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(goldenDir, "error_*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 11 {
		t.Fatal(files)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		g := readGolden(t, name)
		client, _, _, _ := replay(t, g)
		_, err := client.GetQueue(context.Background(), "11111111111111111111111111111111")
		code := Code(strings.ToUpper(strings.TrimPrefix(name, "error_")))
		var typed *Error
		if !errors.Is(err, code) || !errors.As(err, &typed) || typed.HTTPStatus != g.Response.Status || typed.RequestID == "" || typed.Message == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func as[T any](t *testing.T, body json.RawMessage) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// asSubmit reads the wire form of a submit; the request's own form has no JSON names.
func asSubmit(t *testing.T, body json.RawMessage) SubmitTaskRequest {
	t.Helper()
	w := as[struct {
		QueueID     string `json:"queue_id"`
		Input       json.RawMessage
		RetrySafety string     `json:"retry_safety"`
		MaxAttempts int        `json:"max_attempts"`
		RunAt       *time.Time `json:"run_at"`
		Priority    int
		Labels      map[string]string
	}](t, body)
	r := SubmitTaskRequest{QueueID: w.QueueID, Input: w.Input, RetrySafety: w.RetrySafety, MaxAttempts: w.MaxAttempts, Priority: w.Priority, Labels: w.Labels}
	if w.RunAt != nil {
		r.RunAt = *w.RunAt
	}
	return r
}

// generic reads JSON for comparison; numbers keep their text.
func generic(t *testing.T, text []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// samePath compares paths whose query parameters may come in another order.
func samePath(a, b string) bool {
	pathA, queryA, _ := strings.Cut(a, "?")
	pathB, queryB, _ := strings.Cut(b, "?")
	split := func(q string) map[string]bool {
		set := map[string]bool{}
		for part := range strings.SplitSeq(strings.ReplaceAll(q, "%3A", ":"), "&") {
			set[part] = true
		}
		return set
	}
	return pathA == pathB && reflect.DeepEqual(split(queryA), split(queryB))
}
