package orbittest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
	"git.yuntuo.hk/k2safe/orbit/sdk/go/orbittest"
)

// exact holds what a JSON library would rewrite: numbers, order, spaces, escapes (E2).
const exact = `{"z":1,"a":9007199254740993, "b":18446744073709551615,"c":1.0,"d":1e400,"e":"<&>\u2028\u0041","f":[ ]}`

// conformance is what a client may rely on, whatever stands behind the endpoint.
var conformance = map[string]func(t *testing.T, e orbittest.Endpoint){
	"queues":                  queues,
	"writes are idempotent":   idempotency,
	"tasks":                   tasks,
	"bad requests":            badRequests,
	"worker":                  worker,
	"outcomes":                outcomes,
	"lost attempts":           lostAttempts,
	"cancel of a running":     cancelRunning,
	"subscriptions":           subscriptions,
	"deliveries and proofs":   deliveries,
	"extensions of leases":    leaseExtensions,
	"pause":                   pause,
	"history and retry":       history,
	"doors":                   doors,
	"consumer, byte for byte": consumer,
	"retirement":              retirement,
}

func TestFakeConforms(t *testing.T) {
	t.Parallel()
	for name, check := range conformance {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, orbittest.NewFake(t, orbittest.FakeOptions{}).Endpoint)
		})
	}
}

func TestStackConforms(t *testing.T) {
	t.Parallel()
	for name, check := range conformance {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, stack.Namespace(t))
		})
	}
}

// want fails unless err is of a code (nil: none).
func want(t *testing.T, what string, err error, code error) {
	t.Helper()
	if code == nil && err != nil || code != nil && !errors.Is(err, code) {
		t.Errorf("%s: got %v, want %v", what, err, code)
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func dial(t *testing.T, e orbittest.Endpoint, sub string, capacity int, extensions ...string) *orbit.EventConn {
	t.Helper()
	c := must[*orbit.EventConn](t)(orbit.DialEvents(t.Context(), orbit.EventOptions{URL: e.GatewayURL, Token: e.Token, SubscriptionID: sub, Capacity: capacity, Extensions: extensions}))
	t.Cleanup(c.Close)
	return c
}

func dialWorker(t *testing.T, e orbittest.Endpoint, queue string, capacity int) *orbit.WorkerConn {
	t.Helper()
	c := must[*orbit.WorkerConn](t)(orbit.DialWorker(t.Context(), orbit.WorkerOptions{URL: e.GatewayURL, Token: e.Token, QueueID: queue, Name: "conformance", Capacity: capacity}))
	t.Cleanup(c.Close)
	return c
}

// soon bounds a receive.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func queues(t *testing.T, e orbittest.Endpoint) {
	c, ctx := e.Client(t), t.Context()
	name := "q-" + orbit.NewID()
	made := must[*orbit.QueueResult](t)(c.CreateQueue(ctx, orbit.NewKey(), orbit.CreateQueueRequest{Name: name}))
	q := made.Queue
	if q.Name != name || q.Revision != "1" || q.Paused || q.MaxRunning != 0 || q.LeaseDurationMS != 30000 || made.Deduplicated {
		t.Errorf("created %+v", made)
	}
	_, err := c.CreateQueue(ctx, orbit.NewKey(), orbit.CreateQueueRequest{Name: name})
	want(t, "a name in use", err, orbit.ErrStateConflict)
	changed := must[*orbit.QueueResult](t)(c.ConfigureQueue(ctx, q.ID, orbit.NewKey(), orbit.ConfigureQueueRequest{ExpectedRevision: "1", Reason: "r", Paused: orbit.Ptr(true), MaxRunning: orbit.Ptr(3)}))
	if got := changed.Queue; got.Revision != "2" || !got.Paused || got.MaxRunning != 3 || got.LeaseDurationMS != 30000 {
		t.Errorf("configured %+v", got)
	}
	_, err = c.ConfigureQueue(ctx, q.ID, orbit.NewKey(), orbit.ConfigureQueueRequest{ExpectedRevision: "1", Reason: "r", Paused: orbit.Ptr(false)})
	want(t, "an old revision", err, orbit.ErrStateConflict)
	if got := must[*orbit.Queue](t)(c.GetQueue(ctx, q.ID)); *got != changed.Queue {
		t.Errorf("read %+v, want %+v", got, changed.Queue)
	}
	_, err = c.GetQueue(ctx, orbit.NewID())
	want(t, "a missing queue", err, orbit.ErrNotFound)
	other := e.NewQueue(t)
	first := must[*orbit.Page[orbit.Queue]](t)(c.ListQueues(ctx, orbit.ListOptions{Limit: 1}))
	if len(first.Items) != 1 || first.NextCursor == "" {
		t.Errorf("a page of one: %+v", first)
	}
	_, err = c.ListTasks(ctx, orbit.ListTasksRequest{QueueID: q.ID, Cursor: first.NextCursor})
	want(t, "another list's cursor", err, orbit.ErrInvalidArgument)
	var seen []string
	for item, err := range c.AllQueues(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, item.ID)
	}
	if !slices.Contains(seen, q.ID) || !slices.Contains(seen, other) || slices.Index(seen, other) > slices.Index(seen, q.ID) {
		t.Errorf("listed %v without %s before %s", seen, other, q.ID)
	}
}

func idempotency(t *testing.T, e orbittest.Endpoint) {
	c, ctx, key := e.Client(t), t.Context(), orbit.NewKey()
	request := orbit.SubmitTaskRequest{QueueID: e.NewQueue(t), Input: json.RawMessage(`1`)}
	first := must[*orbit.TaskResult](t)(c.SubmitTask(ctx, key, request))
	_ = must[*orbit.TaskResult](t)(c.CancelTask(ctx, first.Task.ID, orbit.NewKey(), orbit.CancelTaskRequest{ExpectedRevision: "1", Reason: "r"}))
	again := must[*orbit.TaskResult](t)(c.SubmitTask(ctx, key, request))
	if !again.Deduplicated || again.Task.ID != first.Task.ID || again.Task.State != orbit.TaskStateQueued {
		t.Errorf("the same key answered %+v", again)
	}
	request.Input = json.RawMessage(`2`)
	_, err := c.SubmitTask(ctx, key, request)
	want(t, "another body", err, orbit.ErrIdempotencyConflict)
	var typed *orbit.Error
	if !errors.As(err, &typed) || typed.HTTPStatus != 409 || typed.RequestID == "" || typed.Message == "" {
		t.Errorf("the error is %+v", typed)
	}
	var actions []string
	for entry, err := range c.AllAudit(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if entry.ResourceID == first.Task.ID {
			actions = append(actions, entry.Action)
		}
	}
	if !slices.Equal(actions, []string{"task.cancel", "task.submit"}) {
		t.Errorf("audited %v", actions)
	}
}

func tasks(t *testing.T, e orbittest.Endpoint) {
	c, ctx, queue := e.Client(t), t.Context(), e.NewQueue(t)
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	made := must[*orbit.TaskResult](t)(c.SubmitTask(ctx, orbit.NewKey(), orbit.SubmitTaskRequest{QueueID: queue, Input: json.RawMessage(exact),
		RetrySafety: orbit.Safe, MaxAttempts: 7, RunAt: at, Priority: -5, Labels: map[string]string{"tenant": "blue"}})).Task
	if made.Input != nil || made.Revision != "1" || made.State != orbit.TaskStateQueued || made.MaxAttempts != 7 || made.Priority != -5 || made.Attempts != 0 || !made.RunAt.Equal(at) {
		t.Errorf("made %+v", made)
	}
	got := must[*orbit.Task](t)(c.GetTask(ctx, made.ID))
	if string(got.Input) != exact || got.RetrySafety != orbit.Safe || got.Labels["tenant"] != "blue" || got.Result != nil || got.EffectUncertain || got.CancelRequested {
		t.Errorf("read %+v", got)
	}
	many := must[*orbit.TasksResult](t)(c.SubmitTasks(ctx, orbit.NewKey(), []orbit.SubmitTaskRequest{
		{QueueID: queue, Input: json.RawMessage(`1`)}, {QueueID: queue, Input: json.RawMessage(`2`)}}))
	if len(many.Tasks) != 2 || many.Tasks[0].RetrySafety != orbit.Unsafe || many.Tasks[0].MaxAttempts != 3 {
		t.Errorf("batch %+v", many)
	}
	cancelled := must[*orbit.TaskResult](t)(c.CancelTask(ctx, many.Tasks[1].ID, orbit.NewKey(), orbit.CancelTaskRequest{ExpectedRevision: "1", Reason: "r"})).Task
	if cancelled.State != orbit.TaskStateCancelled || cancelled.Revision != "2" || cancelled.FinishedAt == nil || !cancelled.CancelRequested {
		t.Errorf("cancelled %+v", cancelled)
	}
	_, err := c.CancelTask(ctx, cancelled.ID, orbit.NewKey(), orbit.CancelTaskRequest{ExpectedRevision: "2", Reason: "r"})
	want(t, "cancel of a cancelled task", err, orbit.ErrStateConflict)
	_, err = c.ResolveTask(ctx, made.ID, orbit.NewKey(), orbit.ResolveTaskRequest{ExpectedRevision: "1", Outcome: orbit.ResolveFailed, Reason: "r"})
	want(t, "resolve of a queued task", err, orbit.ErrStateConflict)
	for _, c2 := range []struct {
		filter orbit.ListTasksRequest
		want   []string
	}{
		{orbit.ListTasksRequest{Limit: 1}, []string{many.Tasks[1].ID, many.Tasks[0].ID, made.ID}},
		{orbit.ListTasksRequest{State: orbit.TaskStateCancelled}, []string{cancelled.ID}},
		{orbit.ListTasksRequest{Label: "tenant:blue"}, []string{made.ID}},
		{orbit.ListTasksRequest{Label: "tenant:red"}, nil},
	} {
		c2.filter.QueueID = queue
		var ids []string
		for task, err := range c.AllTasks(ctx, c2.filter) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, task.ID)
		}
		if c2.filter.Limit == 1 { // a batch's tasks have ids of one moment
			slices.Sort(ids)
			slices.Sort(c2.want)
		}
		if !slices.Equal(ids, c2.want) {
			t.Errorf("list %+v: %v, want %v", c2.filter, ids, c2.want)
		}
	}
}

func badRequests(t *testing.T, e orbittest.Endpoint) {
	c, ctx, queue := e.Client(t), t.Context(), e.NewQueue(t)
	big := json.RawMessage(`"` + strings.Repeat("x", orbit.MaxResult-1) + `"`)
	submit := func(change func(*orbit.SubmitTaskRequest)) func() error {
		return func() error {
			r := orbit.SubmitTaskRequest{QueueID: queue, Input: json.RawMessage(`1`)}
			change(&r)
			_, err := c.SubmitTask(ctx, orbit.NewKey(), r)
			return err
		}
	}
	for name, c2 := range map[string]struct {
		call func() error
		code error
	}{
		"an input of the limit": {submit(func(r *orbit.SubmitTaskRequest) {
			r.Input = json.RawMessage(`"` + strings.Repeat("x", orbit.MaxResult-2) + `"`)
		}), nil},
		"one byte more":         {submit(func(r *orbit.SubmitTaskRequest) { r.Input = big }), orbit.ErrInvalidArgument},
		"a repeated key inside": {submit(func(r *orbit.SubmitTaskRequest) { r.Input = json.RawMessage(`{"a":[{"b":1,"b":2}]}`) }), orbit.ErrInvalidArgument},
		"no input":              {submit(func(r *orbit.SubmitTaskRequest) { r.Input = nil }), orbit.ErrInvalidArgument},
		"101 attempts":          {submit(func(r *orbit.SubmitTaskRequest) { r.MaxAttempts = 101 }), orbit.ErrInvalidArgument},
		"100 attempts":          {submit(func(r *orbit.SubmitTaskRequest) { r.MaxAttempts = 100 }), nil},
		"priority -101":         {submit(func(r *orbit.SubmitTaskRequest) { r.Priority = -101 }), orbit.ErrInvalidArgument},
		"an unknown safety":     {submit(func(r *orbit.SubmitTaskRequest) { r.RetrySafety = "perhaps" }), orbit.ErrInvalidArgument},
		"another namespace's":   {submit(func(r *orbit.SubmitTaskRequest) { r.QueueID = orbit.NewID() }), orbit.ErrNotFound},
		"an empty reason": {func() error {
			_, err := c.ConfigureQueue(ctx, queue, orbit.NewKey(), orbit.ConfigureQueueRequest{ExpectedRevision: "1", Paused: orbit.Ptr(true)})
			return err
		}, orbit.ErrInvalidArgument},
		"nothing to change": {func() error {
			_, err := c.ConfigureQueue(ctx, queue, orbit.NewKey(), orbit.ConfigureQueueRequest{ExpectedRevision: "1", Reason: "r"})
			return err
		}, orbit.ErrInvalidArgument},
		"a name with a blank": {func() error {
			_, err := c.CreateQueue(ctx, orbit.NewKey(), orbit.CreateQueueRequest{Name: "a b"})
			return err
		}, orbit.ErrInvalidArgument},
		"a lease of 4999 ms": {func() error {
			_, err := c.CreateQueue(ctx, orbit.NewKey(), orbit.CreateQueueRequest{Name: orbit.NewID(), LeaseDurationMS: 4999})
			return err
		}, orbit.ErrInvalidArgument},
		"a page of 101":          {func() error { _, err := c.ListQueues(ctx, orbit.ListOptions{Limit: 101}); return err }, orbit.ErrInvalidArgument},
		"a list without a queue": {func() error { _, err := c.ListTasks(ctx, orbit.ListTasksRequest{}); return err }, orbit.ErrInvalidArgument},
		"tasks of no such queue": {func() error { _, err := c.ListTasks(ctx, orbit.ListTasksRequest{QueueID: orbit.NewID()}); return err }, orbit.ErrNotFound},
		"an unknown state": {func() error {
			_, err := c.ListTasks(ctx, orbit.ListTasksRequest{QueueID: queue, State: "DONE"})
			return err
		}, orbit.ErrInvalidArgument},
		"a missing task": {func() error { _, err := c.GetTask(ctx, orbit.NewID()); return err }, orbit.ErrNotFound},
		"a revision with a sign": {func() error {
			_, err := c.ConfigureQueue(ctx, queue, orbit.NewKey(), orbit.ConfigureQueueRequest{ExpectedRevision: "+1", Reason: "r", Paused: orbit.Ptr(true)})
			return err
		}, orbit.ErrInvalidArgument},
		"a reason of 1025": {func() error {
			_, err := c.ConfigureQueue(ctx, queue, orbit.NewKey(), orbit.ConfigureQueueRequest{ExpectedRevision: "1", Reason: strings.Repeat("é", 1025), Paused: orbit.Ptr(true)})
			return err
		}, orbit.ErrInvalidArgument},
		"a reason of 1024": {func() error {
			_, err := c.ConfigureQueue(ctx, queue, orbit.NewKey(), orbit.ConfigureQueueRequest{ExpectedRevision: "1", Reason: strings.Repeat("é", 1024), MaxRunning: orbit.Ptr(9)})
			return err
		}, nil},
		"501 tasks": {func() error {
			_, err := c.SubmitTasks(ctx, orbit.NewKey(), make([]orbit.SubmitTaskRequest, 501))
			return err
		}, orbit.ErrInvalidArgument},
	} {
		want(t, name, c2.call(), c2.code)
	}
}

func worker(t *testing.T, e orbittest.Endpoint) {
	queue := e.NewQueue(t)
	c, ctx := e.Client(t), t.Context()
	ids := e.Submit(t, queue, exact, `"fail"`, `"later"`, `"panic"`)
	byInput := func(_ context.Context, a *orbit.Assignment) (json.RawMessage, error) {
		switch string(a.Task.Input) {
		case `"fail"`:
			return nil, orbit.WithCode("BROKEN", orbit.Permanent(errors.New("for good")))
		case `"later"`:
			if a.Attempt.Number == 1 {
				return nil, orbit.RetryAfter(time.Millisecond, errors.New("not yet"))
			}
		case `"panic"`:
			if a.Attempt.Number == 1 {
				panic("once")
			}
		}
		return a.Task.Input, nil
	}
	e.Work(t, queue, len(ids)+2, byInput) // two of them twice
	first := must[*orbit.Task](t)(c.GetTask(ctx, ids[0]))
	if first.State != orbit.TaskStateSucceeded || string(first.Result) != exact || first.Attempts != 1 || first.Revision != "3" || first.FinishedAt == nil {
		t.Errorf("succeeded %+v", first)
	}
	failed := must[*orbit.Task](t)(c.GetTask(ctx, ids[1]))
	if failed.State != orbit.TaskStateFailed || failed.Error == nil || failed.Error.Code != "BROKEN" || failed.Error.Message != "for good" {
		t.Errorf("failed %+v", failed)
	}
	var history []string
	for a, err := range c.AllTaskAttempts(ctx, ids[2]) {
		if err != nil {
			t.Fatal(err)
		}
		history = append(history, fmt.Sprintf("%d %s %s %s %v %v", a.Number, a.Epoch, a.State, a.Worker, a.Error != nil, a.EndedAt != nil))
	}
	if !slices.Equal(history, []string{"1 1 FAILED orbittest true true", "2 2 SUCCEEDED orbittest false true"}) {
		t.Errorf("attempts %q", history)
	}
}

func outcomes(t *testing.T, e orbittest.Endpoint) {
	queue, ctx := e.NewQueue(t), soon(t)
	e.Submit(t, queue, `1`, `2`, `3`)
	w := dialWorker(t, e, queue, 2)
	if w.Welcome.LeaseDuration != 5*time.Second || w.Welcome.Capacity != 2 || w.Welcome.Paused {
		t.Errorf("welcome %+v", w.Welcome)
	}
	a, b := must[*orbit.Assignment](t)(w.Receive(ctx)), must[*orbit.Assignment](t)(w.Receive(ctx))
	if a.Attempt.Number != 1 || a.Attempt.Epoch != "1" || a.Task.Revision != "2" || a.Task.Attempts != 1 {
		t.Errorf("assigned %+v", a)
	}
	renewed := must[[]orbit.RenewItem](t)(w.Renew(ctx, []orbit.AttemptProof{a.Proof(), {AttemptID: orbit.NewID(), Epoch: "1", LeaseSecret: a.LeaseSecret}}))
	if renewed[0].Err != nil || renewed[0].CancelRequested || !renewed[0].LeaseUntil.After(a.Attempt.StartedAt) || !errors.Is(renewed[1].Err, orbit.ErrAttemptLeaseLost) {
		t.Errorf("renewed %+v", renewed)
	}
	released := must[orbit.OutcomeResult](t)(w.Release(ctx, b.Proof()))
	if released.State != orbit.TaskStateQueued {
		t.Errorf("released %+v", released)
	}
	_, err := w.Complete(ctx, b.Proof(), nil)
	want(t, "complete after release", err, orbit.ErrAttemptLeaseLost)
	for _, again := range []bool{false, true} {
		done := must[orbit.OutcomeResult](t)(w.Complete(ctx, a.Proof(), json.RawMessage(`1.0`)))
		if done.State != orbit.TaskStateSucceeded || done.Deduplicated != again || done.TaskID != a.Task.ID || done.Revision != "3" {
			t.Errorf("completed %+v", done)
		}
	}
	_, err = w.Fail(ctx, a.Proof(), orbit.Failure{Code: "X", Message: "m"})
	want(t, "failed after success", err, orbit.ErrAttemptLeaseLost)
	seen := map[string]int{}
	for range 2 {
		next := must[*orbit.Assignment](t)(w.Receive(ctx))
		seen[next.Task.ID] = next.Attempt.Number
		must[orbit.OutcomeResult](t)(w.Complete(ctx, next.Proof(), nil))
	}
	if seen[b.Task.ID] != 1 { // the released attempt was not counted
		t.Errorf("attempts by number %v", seen)
	}
	if _, err := w.Ping(ctx); err != nil {
		t.Error(err)
	}
}

func lostAttempts(t *testing.T, e orbittest.Endpoint) {
	queue, c, ctx := e.NewQueue(t), e.Client(t), soon(t)
	unsafe := must[*orbit.TaskResult](t)(c.SubmitTask(ctx, orbit.NewKey(), orbit.SubmitTaskRequest{QueueID: queue, Input: json.RawMessage(`1`)})).Task
	safe := must[*orbit.TaskResult](t)(c.SubmitTask(ctx, orbit.NewKey(), orbit.SubmitTaskRequest{QueueID: queue, Input: json.RawMessage(`2`), RetrySafety: orbit.Safe})).Task
	w := dialWorker(t, e, queue, 2)
	proofs := map[string]orbit.AttemptProof{}
	for range 2 {
		a := must[*orbit.Assignment](t)(w.Receive(ctx))
		proofs[a.Task.ID] = a.Proof()
	}
	w.Close()
	state := func(id, state string) func() bool {
		return func() bool { return must[*orbit.Task](t)(c.GetTask(ctx, id)).State == state }
	}
	orbittest.Await(t, "the unsafe one needs review", state(unsafe.ID, orbit.TaskStateNeedsReview))
	orbittest.Await(t, "the safe one is queued again", state(safe.ID, orbit.TaskStateQueued))
	late := dialWorker(t, e, queue, 1)
	again := must[*orbit.Assignment](t)(late.Receive(ctx))
	if again.Task.ID != safe.ID || again.Attempt.Epoch != "2" || again.Attempt.Number != 2 {
		t.Errorf("assigned again %+v", again)
	}
	_, err := late.Complete(ctx, proofs[safe.ID], nil)
	want(t, "the old attempt's outcome", err, orbit.ErrAttemptLeaseLost)
	must[orbit.OutcomeResult](t)(late.Complete(ctx, again.Proof(), nil))
	review := must[*orbit.Task](t)(c.GetTask(ctx, unsafe.ID))
	if !review.EffectUncertain || review.FinishedAt != nil {
		t.Errorf("review %+v", review)
	}
	resolved := must[*orbit.TaskResult](t)(c.ResolveTask(ctx, unsafe.ID, orbit.NewKey(), orbit.ResolveTaskRequest{
		ExpectedRevision: review.Revision, Outcome: orbit.ResolveSucceeded, Result: json.RawMessage(exact), Reason: "looked"})).Task
	if got := must[*orbit.Task](t)(c.GetTask(ctx, resolved.ID)); got.State != orbit.TaskStateSucceeded || string(got.Result) != exact || got.EffectUncertain {
		t.Errorf("resolved %+v", got)
	}
}

func cancelRunning(t *testing.T, e orbittest.Endpoint) {
	queue, c, ctx := e.NewQueue(t), e.Client(t), soon(t)
	id := e.Submit(t, queue, `1`)[0]
	e.Work(t, queue, 1, func(handler context.Context, a *orbit.Assignment) (json.RawMessage, error) {
		asked := must[*orbit.TaskResult](t)(c.CancelTask(ctx, id, orbit.NewKey(), orbit.CancelTaskRequest{ExpectedRevision: a.Task.Revision, Reason: "r"})).Task
		if asked.State != orbit.TaskStateRunning || !asked.CancelRequested {
			t.Errorf("asked %+v", asked)
		}
		<-handler.Done()
		want(t, "the handler's context", context.Cause(handler), orbit.ErrCancelRequested)
		return nil, handler.Err()
	})
	if got := must[*orbit.Task](t)(c.GetTask(ctx, id)); got.State != orbit.TaskStateCancelled {
		t.Errorf("cancelled %+v", got)
	}
}
