package orbittest

import (
	"encoding/json"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

type attemptProof struct {
	AttemptID   string        `json:"attempt_id"`
	Epoch       orbit.Counter `json:"epoch"`
	LeaseSecret string        `json:"lease_secret"`
}

// outcome is what a worker reports of an attempt; ends is the attempt's state by it, "" for a release.
type outcome struct {
	proof      attemptProof
	ends       string
	result     json.RawMessage
	failure    *orbit.TaskFailure
	retryable  bool
	retryAfter *time.Duration
}

func (w *workerSession) handle(f *frame) error {
	switch f.Type {
	case "attempt.complete":
		var body struct {
			attemptProof
			Result json.RawMessage `json:"result"`
		}
		if err := decode(f.Body, &body); err != nil {
			return err
		}
		if len(body.Result) > orbit.MaxResult {
			return refuse(orbit.ErrInvalidArgument, "result: must be at most %d bytes, has %d; fail the attempt as not retryable", orbit.MaxResult, len(body.Result))
		}
		return w.report(f, outcome{proof: body.attemptProof, ends: "SUCCEEDED", result: body.Result})
	case "attempt.fail":
		return w.fail(f)
	case "attempt.cancelled", "attempt.release":
		var p attemptProof
		if err := decode(f.Body, &p); err != nil {
			return err
		}
		return w.report(f, outcome{proof: p, ends: map[string]string{"attempt.cancelled": "CANCELLED"}[f.Type]})
	case "attempts.renew":
		return w.renew(f)
	case "worker.drain":
		w.draining = true
		w.send("ack", f.MessageID, []byte(`{"draining":true}`))
		return decode(f.Body, &struct{}{})
	case "worker.ping":
		if err := decode(f.Body, &struct{}{}); err != nil {
			return err
		}
		w.send("ack", f.MessageID, encode(struct {
			ServerTime time.Time `json:"server_time"`
			Paused     bool      `json:"paused"`
		}{now(), w.queue.Paused}))
		return nil
	}
	return refuse(orbit.ErrInvalidArgument, "type: %.40s is not a command of this socket", f.Type)
}

func (w *workerSession) fail(f *frame) error {
	var body struct {
		attemptProof
		Error        *orbit.TaskFailure `json:"error"`
		Retryable    *bool              `json:"retryable"`
		RetryAfterMS *int               `json:"retry_after_ms"`
	}
	if err := decode(f.Body, &body); err != nil {
		return err
	}
	if body.Error == nil || body.Error.Code == "" || body.Retryable == nil {
		return refuse(orbit.ErrInvalidArgument, "error and retryable are required")
	}
	o := outcome{proof: body.attemptProof, ends: "FAILED", failure: body.Error, retryable: *body.Retryable}
	if body.RetryAfterMS != nil {
		wait := time.Duration(*body.RetryAfterMS) * time.Millisecond
		o.retryAfter = &wait
	}
	return w.report(f, o)
}

func (w *workerSession) prove(p attemptProof) (*attempt, error) {
	a := w.fake.state.attempts[p.AttemptID]
	if a == nil || a.Epoch != p.Epoch || a.secret != p.LeaseSecret || a.queue != w.queue {
		return nil, refuse(orbit.ErrAttemptLeaseLost, "attempt %s: its lease was lost, released or given to a newer attempt", p.AttemptID)
	}
	return a, nil
}

// report decides one outcome, once, and answers it.
func (w *workerSession) report(f *frame, o outcome) error {
	a, err := w.prove(o.proof)
	if err != nil {
		return err
	}
	again := o.ends != "" && a.outcome == o.ends
	if !again {
		if err := w.apply(a, o); err != nil {
			return err
		}
		a.taskState, a.revision = a.task.State, a.task.Revision
	}
	w.send("ack", f.MessageID, encode(orbit.OutcomeResult{AttemptID: a.ID, TaskID: a.TaskID, State: a.taskState, Revision: a.revision, Deduplicated: again}))
	return nil
}

// apply moves the task. A lost attempt may still decide a task that nobody has taken since (R8.4).
func (w *workerSession) apply(a *attempt, o outcome) error {
	t, s := a.task, &w.fake.state
	retry := o.retryable && t.Attempts < t.MaxAttempts && !t.CancelRequested
	late := a.outcome == "LOST" && t.State == orbit.TaskStateQueued && t.CurrentAttemptID == a.ID && (o.ends == "SUCCEEDED" || o.ends == "FAILED" && !retry)
	if a.outcome != "" && !late {
		return refuse(orbit.ErrAttemptLeaseLost, "attempt %s: its lease was lost, released or given to a newer attempt", a.ID)
	}
	if late {
		a.queue.dequeue(t)
	}
	if o.ends == "" { // what never started leaves no attempt
		delete(a.queue.running, a.ID)
		delete(s.attempts, a.ID)
		t.Attempts--
		s.move(t, orbit.TaskStateQueued, "", "", nil, nil)
		a.queue.enqueue(t)
		return nil
	}
	a.end(o.ends, o.failure)
	switch {
	case o.ends == "SUCCEEDED":
		s.move(t, orbit.TaskStateSucceeded, orbit.TaskSucceeded, "COMPLETED", o.result, nil)
	case o.ends == "CANCELLED":
		s.move(t, orbit.TaskStateCancelled, orbit.TaskCancelled, "CANCEL_REQUESTED", nil, nil)
	case retry:
		wait := backoff(t.Attempts)
		if o.retryAfter != nil {
			wait = *o.retryAfter
		}
		t.RunAt = now().Add(wait)
		t.due = t.RunAt
		s.move(t, orbit.TaskStateQueued, requeued, "ATTEMPT_FAILED", nil, o.failure)
		a.queue.enqueue(t)
	default:
		s.move(t, orbit.TaskStateFailed, orbit.TaskFailed, "ATTEMPT_FAILED", nil, o.failure)
	}
	return nil
}

func (w *workerSession) renew(f *frame) error {
	var body struct {
		Attempts []attemptProof `json:"attempts"`
	}
	if err := firstOf(decode(f.Body, &body), checkRange("attempts", len(body.Attempts), 1, 256)); err != nil {
		return err
	}
	type item struct {
		AttemptID       string          `json:"attempt_id"`
		LeaseUntil      *time.Time      `json:"lease_until,omitempty"`
		CancelRequested *bool           `json:"cancel_requested,omitempty"`
		Error           json.RawMessage `json:"error,omitempty"`
	}
	items := make([]item, len(body.Attempts))
	for i, p := range body.Attempts {
		items[i].AttemptID = p.AttemptID
		a, err := w.prove(p)
		if err == nil && a.outcome != "" {
			err = refuse(orbit.ErrAttemptLeaseLost, "attempt %s has ended", a.ID)
		}
		if err != nil {
			items[i].Error = errorText(err)
			continue
		}
		a.until = now().Add(time.Duration(w.queue.LeaseDurationMS) * time.Millisecond)
		until := a.until
		a.LeaseUntil, a.session = &until, w
		items[i].LeaseUntil, items[i].CancelRequested = &until, &a.task.CancelRequested
	}
	w.send("ack", f.MessageID, encode(map[string]any{"attempts": items}))
	return nil
}
