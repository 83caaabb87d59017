package orbittest

import (
	"slices"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

func (f *Fake) hasQueue(r *request) error {
	if f.state.queue(r.ids[0]) == nil {
		return missing("queue", r.ids[0])
	}
	return nil
}

func queueData(q *queue) []byte { return with([]byte("{}"), "queue", encode(q.Queue)) }

func (f *Fake) createQueue(r *request) ([]byte, error) {
	var body orbit.CreateQueueRequest
	if err := decode(r.body, &body); err != nil {
		return nil, err
	}
	if body.LeaseDurationMS == 0 {
		body.LeaseDurationMS = 30000
	}
	err := firstOf(checkName("name", body.Name), checkRange("max_running", body.MaxRunning, 0, 1_000_000),
		checkRange("lease_duration_ms", int(body.LeaseDurationMS), 5000, 3_600_000))
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(f.state.queues, func(q *queue) bool { return q.Name == body.Name }) {
		return nil, refuse(orbit.ErrStateConflict, "name: a queue named %q exists or existed in this namespace", body.Name)
	}
	q := f.state.addQueue(orbit.Queue{Name: body.Name, MaxRunning: body.MaxRunning, LeaseDurationMS: body.LeaseDurationMS}, now())
	f.note(r, "queue.create", q.ID, map[string]string{"name": q.Name})
	return queueData(q), nil
}

func (f *Fake) getQueue(r *request) ([]byte, error) {
	if err := f.hasQueue(r); err != nil {
		return nil, err
	}
	return encode(f.state.queue(r.ids[0]).Queue), nil
}

func (f *Fake) listQueues(r *request) ([]byte, error) {
	return page(r, "queues", reversed(f.state.queues), func(q *queue) []byte { return encode(q.Queue) })
}

func (f *Fake) configureQueue(r *request) ([]byte, error) {
	var body struct {
		ExpectedRevision *orbit.Counter `json:"expected_revision"`
		Reason           string         `json:"reason"`
		Paused           *bool          `json:"paused"`
		MaxRunning       *int           `json:"max_running"`
		LeaseDurationMS  *int           `json:"lease_duration_ms"`
	}
	if err := firstOf(decode(r.body, &body), checkCounter("expected_revision", body.ExpectedRevision), checkReason(body.Reason)); err != nil {
		return nil, err
	}
	if body.Paused == nil && body.MaxRunning == nil && body.LeaseDurationMS == nil {
		return nil, refuse(orbit.ErrInvalidArgument, "body: must change at least one of paused, max_running, lease_duration_ms")
	}
	q := f.state.queue(r.ids[0])
	changed := q.Queue
	if body.Paused != nil {
		changed.Paused = *body.Paused
	}
	if body.MaxRunning != nil {
		changed.MaxRunning = *body.MaxRunning
	}
	if body.LeaseDurationMS != nil {
		changed.LeaseDurationMS = int64(*body.LeaseDurationMS)
	}
	err := firstOf(checkRange("max_running", changed.MaxRunning, 0, 1_000_000), checkRange("lease_duration_ms", int(changed.LeaseDurationMS), 5000, 3_600_000),
		live("queue", q.ID, q.RetiredAt != nil), checkRevision("queue", q.ID, q.Revision, body.ExpectedRevision))
	if err != nil {
		return nil, err
	}
	changed.Revision, changed.UpdatedAt = next(q.Revision), now()
	q.Queue = changed
	f.note(r, "queue.configure", q.ID, map[string]string{"reason": body.Reason})
	return queueData(q), nil
}

func live(kind, id string, retired bool) error {
	if retired {
		return refuse(orbit.ErrResourceRetired, "%s %s was retired", kind, id)
	}
	return nil
}

type retirement struct {
	ExpectedRevision *orbit.Counter `json:"expected_revision"`
	Reason           string         `json:"reason"`
}

func (b *retirement) read(r *request) error {
	if err := decode(r.body, b); err != nil {
		return err
	}
	return firstOf(checkCounter("expected_revision", b.ExpectedRevision), checkReason(b.Reason))
}

// retireQueue is R7.2, as far as the fake has what can be in the way.
func (f *Fake) retireQueue(r *request) ([]byte, error) {
	var body retirement
	if err := body.read(r); err != nil {
		return nil, err
	}
	q := f.state.queue(r.ids[0])
	if err := firstOf(live("queue", q.ID, q.RetiredAt != nil), checkRevision("queue", q.ID, q.Revision, body.ExpectedRevision)); err != nil {
		return nil, err
	}
	tasks, subscriptions := 0, 0
	for _, t := range f.state.tasks {
		if t.QueueID == q.ID && t.FinishedAt == nil {
			tasks++
		}
	}
	for _, s := range f.state.subscriptions {
		if s.QueueID == q.ID && s.RetiredAt == nil {
			subscriptions++
		}
	}
	if tasks > 0 || subscriptions > 0 {
		return nil, refuse(orbit.ErrResourceBusy, "queue %s has %d tasks not finished and %d subscriptions not retired", q.ID, tasks, subscriptions)
	}
	at := now()
	q.Paused, q.RetiredAt, q.Revision, q.UpdatedAt = true, &at, next(q.Revision), at
	f.note(r, "queue.retire", q.ID, map[string]string{"reason": body.Reason})
	return queueData(q), nil
}
