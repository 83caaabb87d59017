package orbittest

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// workerSession is a worker's connection.
type workerSession struct {
	*conn
	queue    *queue
	name     string
	capacity int
	draining bool
}

func greetWorker(c *conn, f *frame) (session, []byte, error) {
	var body struct {
		QueueID  string `json:"queue_id"`
		Name     string `json:"name"`
		Capacity int    `json:"capacity"`
	}
	if err := firstOf(decode(f.Body, &body), checkName("name", body.Name), checkRange("capacity", body.Capacity, 1, 256)); err != nil {
		return nil, nil, err
	}
	q, err := c.fake.openQueue(body.QueueID)
	if err != nil {
		return nil, nil, err
	}
	w := &workerSession{conn: c, queue: q, name: body.Name, capacity: body.Capacity}
	q.workers = append(q.workers, w)
	return w, encode(struct {
		SessionID           string    `json:"session_id"`
		QueueID             string    `json:"queue_id"`
		Capacity            int       `json:"capacity"`
		LeaseDurationMS     int64     `json:"lease_duration_ms"`
		HeartbeatIntervalMS int64     `json:"heartbeat_interval_ms"`
		ServerTime          time.Time `json:"server_time"`
		Paused              bool      `json:"paused"`
	}{c.id, q.ID, w.capacity, q.LeaseDurationMS, c.fake.options.Heartbeat.Milliseconds(), now(), q.Paused}), nil
}

func (w *workerSession) gone() {
	w.queue.workers = slices.DeleteFunc(w.queue.workers, func(other *workerSession) bool { return other == w })
	for _, a := range w.queue.running {
		if a.session == w {
			a.session = nil
		}
	}
}

// assign starts what workers have room for.
func (f *Fake) assign(q *queue, at time.Time) {
	if q.Paused || len(q.workers) == 0 {
		return
	}
	for i := 0; i < len(q.waiting) && (q.MaxRunning == 0 || len(q.running) < q.MaxRunning); {
		t := q.waiting[i]
		if t.due.After(at) {
			i++
			continue
		}
		w := q.place()
		if w == nil {
			return
		}
		q.waiting = slices.Delete(q.waiting, i, i+1)
		f.start(q, t, w, at)
	}
}

func (q *queue) place() *workerSession {
	held := map[*workerSession]int{}
	for _, a := range q.running {
		held[a.session]++
	}
	for range q.workers {
		q.turn = (q.turn + 1) % len(q.workers)
		if w := q.workers[q.turn]; !w.closing && !w.draining && held[w] < w.capacity {
			return w
		}
	}
	return nil
}

func (f *Fake) start(q *queue, t *task, w *workerSession, at time.Time) {
	t.epoch++
	t.Attempts++
	t.State, t.Revision, t.UpdatedAt = orbit.TaskStateRunning, next(t.Revision), at
	until := at.Add(time.Duration(q.LeaseDurationMS) * time.Millisecond)
	a := &attempt{task: t, queue: q, session: w, secret: newSecret(), until: until, TaskAttempt: orbit.TaskAttempt{ID: orbit.NewID(), TaskID: t.ID,
		Number: t.Attempts, Epoch: strconv.FormatUint(t.epoch, 10), State: "RUNNING", Worker: w.name, StartedAt: at, LeaseUntil: &until}}
	t.CurrentAttemptID = a.ID
	f.state.attempts[a.ID], q.running[a.ID] = a, a
	head := encode(orbit.AssignedTask{ID: t.ID, QueueID: t.QueueID, Revision: t.Revision, RetrySafety: t.RetrySafety, Priority: t.Priority,
		Attempts: t.Attempts, MaxAttempts: t.MaxAttempts, Labels: t.Labels, RunAt: t.RunAt, CreatedAt: t.CreatedAt, Input: json.RawMessage("null")})
	fields := map[string]json.RawMessage{}
	_ = json.Unmarshal(head, &fields) // our own text
	delete(fields, "input")
	body := with([]byte("{}"), "task", with(encode(fields), "input", t.Input))
	body = with(body, "attempt", encode(orbit.Attempt{ID: a.ID, TaskID: t.ID, Number: a.Number, Epoch: a.Epoch, LeaseUntil: until, StartedAt: at}))
	w.send("task.assign", "", with(body, "lease_secret", encode(a.secret)))
}

// lapse decides attempts whose lease ran out (R8.4, R8.5).
func (f *Fake) lapse(q *queue, at time.Time) {
	for _, a := range q.running {
		if a.until.After(at) {
			continue
		}
		t := a.task
		a.end("LOST", nil)
		switch {
		case t.RetrySafety != orbit.Safe:
			t.EffectUncertain = true
			f.state.move(t, orbit.TaskStateNeedsReview, orbit.TaskNeedsReview, "LEASE_LOST", nil, nil)
		case t.CancelRequested:
			f.state.move(t, orbit.TaskStateCancelled, orbit.TaskCancelled, "LEASE_LOST", nil, nil)
		case t.Attempts < t.MaxAttempts:
			f.state.move(t, orbit.TaskStateQueued, requeued, "LEASE_LOST", nil, nil)
			q.enqueue(t)
		default:
			f.state.move(t, orbit.TaskStateFailed, orbit.TaskFailed, "LEASE_LOST", nil, nil)
		}
	}
}

// tell asks workers to stop what was cancelled.
func (f *Fake) tell(q *queue) {
	for _, a := range q.running {
		if a.task.CancelRequested && !a.told && a.session != nil {
			a.told = true
			a.session.send("attempt.cancel", "", encode(map[string]string{"attempt_id": a.ID, "task_id": a.TaskID, "reason": "CANCEL_REQUESTED"}))
		}
	}
}

func (a *attempt) end(state string, failure *orbit.TaskFailure) {
	at := now()
	a.State, a.LeaseUntil, a.EndedAt, a.Error, a.outcome = state, nil, &at, failure, state
	delete(a.queue.running, a.ID)
}

// backoff before the next try of a task that failed n times.
func backoff(n int) time.Duration {
	d := min(time.Second<<min(n-1, 10), 10*time.Minute)
	return d - time.Duration(rand.Float64()*float64(d)/2)
}
