package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func worker(g *gateway, h TaskHandler) Worker {
	return Worker{URL: g.URL, Token: testToken, QueueID: testQueue, Name: "w1", Handler: h, Backoff: quick, DrainTimeout: patience}
}

func assignBody(n int, input string) string {
	return fmt.Sprintf(`{"task":{"id":%q,"queue_id":%q,"revision":"2","input":%s,"retry_safety":"safe","priority":5,"attempts":1,"max_attempts":3,`+
		`"labels":{"k":"v"},"run_at":"2026-09-17T10:00:00Z","created_at":"2026-09-17T10:00:00Z"},"attempt":{"id":%q,"task_id":%q,"number":1,"epoch":"1",`+
		`"lease_until":"2026-09-17T10:00:30Z","started_at":"2026-09-17T10:00:00Z"},"lease_secret":%q}`, id(n+100), testQueue, input, id(n), id(n+100), testSecret)
}

func attemptMembers(n int) string {
	return fmt.Sprintf(`"attempt_id":%q,"epoch":"1","lease_secret":%q`, id(n), testSecret)
}

func outcomeBody(n int, state string) string {
	return fmt.Sprintf(`{"attempt_id":%q,"task_id":%q,"state":%q,"revision":"3","deduplicated":false}`, id(n), id(n+100), state)
}

// outcome reads frames, answering renewals, until an outcome comes; it answers that too.
func (p *peer) outcome(want string) {
	p.t.Helper()
	f := p.unanswered()
	if got := f.Type + " " + string(f.Body); got != want {
		p.t.Errorf("\n got %s\nwant %s", got, want)
	}
	p.reply(f, "ack", outcomeBody(1, "SUCCEEDED"))
}

func (p *peer) unanswered() frame {
	p.t.Helper()
	for {
		f := p.read()
		if f.Type != "attempts.renew" {
			return f
		}
		p.reply(f, "ack", `{"attempts":[]}`)
	}
}

func TestWorkerReportsWhatTheHandlerReturned(t *testing.T) {
	t.Parallel()
	big := json.RawMessage(`"` + strings.Repeat("x", MaxResult) + `"`)
	fail := func(code, message string, rest string) string {
		return `attempt.fail {` + attemptMembers(1) + `,"error":{"code":"` + code + `","message":"` + message + `"},` + rest + `}`
	}
	for name, c := range map[string]struct {
		handler TaskHandler
		want    string
	}{
		"a result, byte for byte": {func(_ context.Context, a *Assignment) (json.RawMessage, error) { return a.Task.Input, nil },
			`attempt.complete {` + attemptMembers(1) + `,"result":` + exact + `}`},
		"no result": {func(context.Context, *Assignment) (json.RawMessage, error) { return nil, nil },
			`attempt.complete {` + attemptMembers(1) + `}`},
		"an error": {func(context.Context, *Assignment) (json.RawMessage, error) { return nil, errors.New("boom") },
			fail("HANDLER_ERROR", "boom", `"retryable":true`)},
		"a permanent error": {func(context.Context, *Assignment) (json.RawMessage, error) {
			return nil, fmt.Errorf("w: %w", Permanent(WithCode("NO_SUCH_USER", errors.New("boom"))))
		}, fail("NO_SUCH_USER", "w: boom", `"retryable":false`)},
		"an error with a wait": {func(context.Context, *Assignment) (json.RawMessage, error) {
			return nil, RetryAfter(1500*time.Millisecond, errors.New("boom"))
		}, fail("HANDLER_ERROR", "boom", `"retryable":true,"retry_after_ms":1500`)},
		"a panic": {func(context.Context, *Assignment) (json.RawMessage, error) { panic("nil map") },
			fail("HANDLER_PANIC", "panic: nil map", `"retryable":true`)},
		"a long error": {func(context.Context, *Assignment) (json.RawMessage, error) {
			return nil, WithCode(strings.Repeat("c", 200), errors.New(strings.Repeat("é", 5000)))
		}, fail(strings.Repeat("c", 128), strings.Repeat("é", 4096), `"retryable":true`)},
		"too large a result": {func(context.Context, *Assignment) (json.RawMessage, error) { return big, nil },
			fail("RESULT_TOO_LARGE", "orbit: INVALID_ARGUMENT: result: has 262146 bytes, the limit is 262144", `"retryable":false`)},
		"no JSON": {func(context.Context, *Assignment) (json.RawMessage, error) {
			return json.RawMessage(`1},"retryable":true,"x":{`), nil
		}, fail("RESULT_INVALID", "orbit: INVALID_ARGUMENT: result: is not valid JSON in UTF-8", `"retryable":false`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			outcomes := make(chan OutcomeResult, 1)
			w := worker(g, c.handler)
			w.OnOutcome = func(o OutcomeResult) { outcomes <- o }
			stop, ended := g.background(t, w.Run)
			p := g.open(t, testLease, testInterval)
			if want := `{"queue_id":"` + testQueue + `","name":"w1","capacity":1}`; p.path != "/v1/workers/connect" || string(p.hello.Body) != want {
				t.Errorf("hello %s at %s", p.hello.Body, p.path)
			}
			p.push("task.assign", assignBody(1, exact))
			p.outcome(c.want)
			if o := must(t, "OnOutcome", outcomes); o.AttemptID != id(1) || o.Revision != "3" {
				t.Errorf("OnOutcome %+v", o)
			}
			stop()
			p.reply(p.next("worker.drain"), "ack", `{"draining":true}`)
			if code := p.closed(); code != 1000 {
				t.Errorf("close code %d", code)
			}
			if err := must(t, "end", ended); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWorkerFailsWhatTheServerRefuses(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.background(t, worker(g, func(context.Context, *Assignment) (json.RawMessage, error) {
		return json.RawMessage(`{"a":1,"a":2}`), nil
	}).Run)
	p := g.open(t, testLease, testInterval)
	p.push("task.assign", assignBody(1, "1"))
	p.refuse(p.next("attempt.complete"), ErrInvalidArgument)
	p.outcome(`attempt.fail {` + attemptMembers(1) + `,"error":{"code":"RESULT_INVALID","message":"orbit: INVALID_ARGUMENT: no"},"retryable":false}`)
}

func TestWorkerDropsALostOutcome(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	failures := make(chan AttemptError, 1)
	w := worker(g, func(context.Context, *Assignment) (json.RawMessage, error) { return nil, nil })
	w.OnError = func(e AttemptError) { failures <- e }
	g.background(t, w.Run)
	p := g.open(t, testLease, testInterval)
	p.push("task.assign", assignBody(1, "1"))
	p.refuse(p.next("attempt.complete"), ErrAttemptLeaseLost)
	if e := must(t, "error", failures); e.AttemptID != id(1) || e.TaskID != id(101) || !errors.Is(e, ErrAttemptLeaseLost) {
		t.Errorf("got %v", e)
	}
	p.push("task.assign", assignBody(2, "1"))
	p.outcome(`attempt.complete {` + attemptMembers(2) + `}`)
}

func TestWorkerCancels(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		returns func(ctx context.Context) (json.RawMessage, error)
		want    string
	}{
		"its context's error": {func(ctx context.Context) (json.RawMessage, error) { return nil, ctx.Err() }, `attempt.cancelled {` + attemptMembers(1) + `}`},
		"its cause":           {func(ctx context.Context) (json.RawMessage, error) { return nil, context.Cause(ctx) }, `attempt.cancelled {` + attemptMembers(1) + `}`},
		"a result after all":  {func(context.Context) (json.RawMessage, error) { return json.RawMessage("7"), nil }, `attempt.complete {` + attemptMembers(1) + `,"result":7}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			cause := make(chan error, 1)
			g.background(t, worker(g, func(ctx context.Context, _ *Assignment) (json.RawMessage, error) {
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return c.returns(ctx)
			}).Run)
			p := g.open(t, testLease, testInterval)
			p.push("task.assign", assignBody(1, "1"))
			p.push("attempt.cancel", `{"attempt_id":"`+id(1)+`","task_id":"`+id(101)+`","reason":"asked"}`)
			if err := must(t, "cause", cause); !errors.Is(err, ErrCancelRequested) {
				t.Errorf("cancelled by %v", err)
			}
			p.outcome(c.want)
		})
	}
}

func TestWorkerOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	started, finish := make(chan string, 2), make(chan struct{})
	g.background(t, worker(g, func(_ context.Context, a *Assignment) (json.RawMessage, error) {
		started <- a.Attempt.ID
		<-finish
		return json.RawMessage("1"), nil
	}).Run)
	p := g.open(t, testLease, testInterval)
	p.push("task.assign", assignBody(1, "1"))
	must(t, "start", started)
	p.bye(1012, "service restart")

	p = g.open(t, testLease, testInterval)
	f := p.next("attempts.renew") // at once: the lease may be near its end
	if want := `{"attempts":[{` + attemptMembers(1) + `}]}`; string(f.Body) != want {
		t.Errorf("renew %s", f.Body)
	}
	p.reply(f, "ack", `{"attempts":[{"attempt_id":"`+id(1)+`","lease_until":"2026-09-17T10:01:00Z"}]}`)
	close(finish)
	p.next("attempt.complete")
	p.bye(CloseAbnormal, "") // the answer is lost

	p = g.open(t, testLease, testInterval)
	p.outcome(`attempt.complete {` + attemptMembers(1) + `,"result":1}`)
}

func TestWorkerRenewsAllInOneFrame(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	started, causes := make(chan string, 3), make(chan string, 3)
	failures := make(chan AttemptError, 8)
	w := worker(g, func(ctx context.Context, a *Assignment) (json.RawMessage, error) {
		started <- a.Attempt.ID
		<-ctx.Done()
		causes <- a.Attempt.ID + " " + context.Cause(ctx).Error()
		return nil, ctx.Err()
	})
	w.Concurrency = 3
	w.OnError = func(e AttemptError) { failures <- e }
	g.background(t, w.Run)
	p := g.open(t, 900, testInterval)
	for n := 1; n <= 3; n++ {
		p.push("task.assign", assignBody(n, "1"))
		must(t, "start", started)
	}
	lost, asked := id(1), id(2)
	for {
		f := p.next("attempts.renew")
		var body struct{ Attempts []AttemptProof }
		p.into(f, &body)
		if len(body.Attempts) < 3 {
			p.reply(f, "ack", `{"attempts":[]}`) // it went out before all were assigned
			continue
		}
		var items []string
		for _, a := range body.Attempts {
			item := `{"attempt_id":"` + a.AttemptID + `","lease_until":"2026-09-17T10:01:00Z"}`
			switch a.AttemptID {
			case lost:
				item = `{"attempt_id":"` + a.AttemptID + `","error":{"code":"ATTEMPT_LEASE_LOST","message":"no"}}`
			case asked:
				item = `{"attempt_id":"` + a.AttemptID + `","lease_until":"2026-09-17T10:01:00Z","cancel_requested":true}`
			}
			items = append(items, item)
		}
		p.reply(f, "ack", `{"attempts":[`+strings.Join(items, ",")+`]}`)
		break
	}
	got := []string{must(t, "cause", causes), must(t, "cause", causes)}
	for _, want := range []string{lost + " orbit: ATTEMPT_LEASE_LOST", asked + " " + ErrCancelRequested.Error()} {
		if got[0] != want && got[1] != want {
			t.Errorf("cancelled %q, want %q", got, want)
		}
	}
	p.outcome(`attempt.cancelled {` + attemptMembers(2) + `}`) // and nothing of the lost one
	f := p.next("attempts.renew")
	for want := `{"attempts":[{` + attemptMembers(3) + `}]}`; string(f.Body) != want; f = p.next("attempts.renew") {
		p.reply(f, "ack", `{"attempts":[]}`) // it went out before the other two had finished
	}
	p.refuse(f, ErrInvalidArgument) // an older server: no more renewals, the work goes on
	p.push("attempt.cancel", `{"attempt_id":"`+id(3)+`","task_id":"`+id(103)+`","reason":"asked"}`)
	f = p.next("attempt.cancelled")
	p.reply(f, "ack", outcomeBody(3, "CANCELLED"))
}

// A gateway that does not know worker.drain may go on assigning.
func TestWorkerDrainsAtAnOlderGateway(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	started, finish := make(chan string, 4), make(chan struct{})
	var count atomic.Int32
	stop, ended := g.background(t, worker(g, func(_ context.Context, a *Assignment) (json.RawMessage, error) {
		count.Add(1)
		started <- a.Attempt.ID
		<-finish
		return nil, nil
	}).Run)
	p := g.open(t, testLease, testInterval)
	p.push("task.assign", assignBody(1, "1"))
	must(t, "start", started)
	p.push("task.assign", assignBody(2, "1")) // more than was asked for
	p.push("task.assign", assignBody(3, "1"))
	p.push("attempt.cancel", `{"attempt_id":"`+id(3)+`","task_id":"`+id(103)+`","reason":"asked"}`)
	p.outcome(`attempt.cancelled {` + attemptMembers(3) + `}`) // it was never started
	stop()
	p.refuse(p.next("worker.drain"), ErrInvalidArgument)
	close(finish)
	p.outcome(`attempt.complete {` + attemptMembers(1) + `}`)
	f := p.next("attempt.release")
	p.push("task.assign", assignBody(4, "1")) // a place became free
	p.reply(f, "ack", outcomeBody(2, "QUEUED"))
	for {
		f, err := p.tryRead()
		if err != nil {
			break
		}
		if want := `{` + attemptMembers(4) + `}`; f.Type != "attempt.release" || string(f.Body) != want {
			t.Errorf("got %s %s", f.Type, f.Body)
		}
	}
	if err := must(t, "end", ended); err != nil {
		t.Error(err)
	}
	if n := count.Load(); n != 1 {
		t.Errorf("%d were started", n)
	}
}

func TestWorkerStopsForGood(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	started, finish := make(chan string, 1), make(chan struct{})
	_, ended := g.background(t, worker(g, func(_ context.Context, a *Assignment) (json.RawMessage, error) {
		started <- a.Attempt.ID
		<-finish
		return nil, nil
	}).Run)
	p := g.open(t, testLease, testInterval)
	p.push("task.assign", assignBody(1, "1"))
	must(t, "start", started)
	p.write("error", "", "error", `{"code":"UNAUTHENTICATED","message":"revoked"}`)
	p.bye(4401, "UNAUTHENTICATED")
	select {
	case err := <-ended:
		t.Fatalf("ended with %v before the handler had finished", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(finish)
	var stopped *StopError
	if err := must(t, "end", ended); !errors.As(err, &stopped) || !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("ended with %v", err)
	}
}

func TestFailureOf(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		err  error
		want Failure
	}{
		"plain":           {boom, Failure{Message: "boom", Retryable: true}},
		"layers":          {WithCode("A", RetryAfter(time.Second, WithCode("B", RetryAfter(time.Minute, boom)))), Failure{Code: "A", Message: "boom", Retryable: true, RetryAfter: time.Second}},
		"panic":           {&PanicError{Value: boom}, Failure{Code: "HANDLER_PANIC", Message: "panic: boom", Retryable: true}},
		"permanent panic": {&PanicError{Value: Permanent(boom)}, Failure{Code: "HANDLER_PANIC", Message: "panic: boom"}},
	} {
		if got := failureOf(c.err); got != c.want {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if Permanent(nil) != nil || RetryAfter(1, nil) != nil || WithCode("A", nil) != nil {
		t.Error("nil must stay nil")
	}
}
