package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
)

// workerRun is one Run of a Worker.
type workerRun struct {
	Worker
	handler TaskHandler
	cancel  context.CancelCauseFunc
	changed changes
	crew    *crew
	outbox  *outbox
	link    *link

	mu    sync.Mutex
	early map[string]bool // attempts whose cancel overtook their assignment, on this connection
}

func newWorkerRun(ctx context.Context, w Worker) (*workerRun, error) {
	r := &workerRun{Worker: w, handler: w.Handler}
	if w.Handler == nil {
		return nil, invalid("handler: is required")
	}
	if w.Concurrency < 0 || w.Concurrency > 256 {
		return nil, invalid("concurrency: must be 1–256")
	}
	r.Concurrency = max(1, w.Concurrency)
	if r.Name == "" {
		r.Name = hostName()
	}
	for _, wrap := range slices.Backward(w.Middleware) {
		r.handler = wrap(r.handler)
	}
	var base context.Context
	base, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	r.crew = newCrew(ctx, base, r.Concurrency, &r.changed)
	r.outbox = newOutbox(&r.changed)
	r.link = &link{crew: r.crew, outbox: r.outbox, changed: &r.changed, dial: r.dial, lost: r.lost,
		backoff: w.Backoff.orDefault(defaultBackoff), drain: drainOf(w.DrainTimeout)}
	return r, nil
}

// hostName is the host's name as R1.6 allows it.
func hostName() string {
	name, _ := os.Hostname()
	name = strings.Map(func(c rune) rune {
		if c == '.' || c == '-' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' {
			return c
		}
		return '-'
	}, name)
	name = strings.TrimLeft(name, ".-")
	return orElse(name[:min(len(name), 128)], "worker")
}

// dial opens a connection for as many attempts as can be started.
func (r *workerRun) dial(ctx context.Context, number, capacity int) (*session, error) {
	r.mu.Lock()
	r.early = map[string]bool{}
	r.mu.Unlock()
	conn, err := DialWorker(ctx, WorkerOptions{URL: r.URL, Token: r.Token, QueueID: r.QueueID, Name: r.Name,
		Capacity: capacity, InsecureHTTP: r.InsecureHTTP, Transport: r.Transport, OnCancel: r.cancelAsked})
	if err != nil {
		return nil, err
	}
	if r.OnConnect != nil {
		r.OnConnect(conn.Welcome)
	}
	carried := r.crew.leases()
	s := &session{sock: conn.sock, number: number, capacity: capacity, heartbeat: conn.Welcome.HeartbeatInterval,
		close: conn.Close, renew: func() { r.renew(conn, carried) }, drain: conn.Drain}
	s.receive = func(ctx context.Context) {
		for a, err := conn.Receive(ctx); err == nil; a, err = conn.Receive(ctx) {
			r.take(a, number, conn)
		}
	}
	s.release = func(leases []lease) func() {
		return sendAll(s.sock, "attempt.release", leases, func(l lease) []byte { return l.body("attempt_id") })
	}
	return s, nil
}

func (r *workerRun) lost(err error) {
	if r.OnDisconnect != nil {
		r.OnDisconnect(err)
	}
}

// take starts an attempt when there is room.
func (r *workerRun) take(a *Assignment, number int, conn *WorkerConn) {
	if r.OnAssign != nil && !r.crew.known(a.Attempt.ID) {
		r.OnAssign(a)
	}
	r.crew.add(&job{lease: a.Proof().lease(), link: number, leased: conn.Welcome.LeaseDuration, since: a.received,
		run:    func(ctx context.Context, j *job) { r.handle(ctx, j, a) },
		lapsed: func() { r.failed(a.Attempt.ID, a.Task.ID, ErrLeaseLapsed) }})
	r.mu.Lock()
	early := r.early[a.Attempt.ID]
	r.mu.Unlock()
	if early {
		r.cancelAsked(CancelNotice{AttemptID: a.Attempt.ID, TaskID: a.Task.ID})
	}
}

// cancelAsked cancels the handler of an attempt; one that was not started is cancelled at once.
func (r *workerRun) cancelAsked(n CancelNotice) {
	j := r.crew.stop(n.AttemptID, "", ErrCancelRequested)
	switch {
	case j == nil:
		r.mu.Lock()
		r.early[n.AttemptID] = true
		r.mu.Unlock()
	case !j.started:
		r.outbox.put(r.outcome("attempt.cancelled", j.lease, n.TaskID, j.lease.body("attempt_id")))
	}
}

// handle runs the handler and reports its outcome.
func (r *workerRun) handle(ctx context.Context, j *job, a *Assignment) {
	result, err := r.call(ctx, a)
	if err != nil {
		r.failed(a.Attempt.ID, a.Task.ID, err)
	}
	if !errors.Is(context.Cause(ctx), ErrAttemptLeaseLost) {
		r.outbox.put(r.outcomeOf(ctx, r.crew.current(j), a.Task.ID, result, err))
	}
	r.crew.finish(j)
}

func (r *workerRun) call(ctx context.Context, a *Assignment) (result json.RawMessage, err error) {
	defer recovered(&err)
	return r.handler(ctx, a)
}

// outcomeOf turns what a handler returned into the report of it.
func (r *workerRun) outcomeOf(ctx context.Context, l lease, taskID string, result json.RawMessage, err error) *report {
	if err != nil && errors.Is(context.Cause(ctx), ErrCancelRequested) && !wishes(err).permanent {
		return r.outcome("attempt.cancelled", l, taskID, l.body("attempt_id"))
	}
	if err != nil {
		return r.outcome("attempt.fail", l, taskID, failBody(l, failureOf(err)))
	}
	body, err := completeBody(l, result)
	if err != nil {
		r.failed(l.id, taskID, err)
		return r.refusedResult(l, taskID, len(result), err)
	}
	o := r.outcome("attempt.complete", l, taskID, body)
	record := o.answered
	o.answered = func(reply json.RawMessage, err error) {
		record(reply, err)
		if errors.Is(err, ErrInvalidArgument) {
			r.outbox.put(r.refusedResult(l, taskID, len(result), err))
		}
	}
	return o
}

// refusedResult fails an attempt whose result Orbit does not take: the same handler would give the same.
func (r *workerRun) refusedResult(l lease, taskID string, size int, err error) *report {
	f := Failure{Code: codeInvalidResult, Message: err.Error()}
	if size > MaxResult {
		f.Code = codeTooLarge
	}
	return r.outcome("attempt.fail", l, taskID, failBody(l, f))
}

func (r *workerRun) outcome(typ string, l lease, taskID string, body []byte) *report {
	return &report{lease: l, typ: typ, body: body, answered: func(reply json.RawMessage, err error) {
		var o OutcomeResult
		if err == nil {
			err = json.Unmarshal(reply, &o)
		}
		if err != nil {
			r.failed(l.id, taskID, err)
		} else if r.OnOutcome != nil {
			r.OnOutcome(o)
		}
	}}
}

func (r *workerRun) failed(attemptID, taskID string, err error) {
	if r.OnError != nil {
		r.OnError(AttemptError{AttemptID: attemptID, TaskID: taskID, Err: err})
	}
}
