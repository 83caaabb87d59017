package orbittest

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// state is everything a fake knows; Fake.mu guards it.
type state struct {
	queues        []*queue // in order of making, as all lists here
	tasks         []*task
	attempts      map[string]*attempt
	log           []*event
	subscriptions []*subscription
	audit         []orbit.AuditEntry
}

type queue struct {
	orbit.Queue
	waiting []*task // QUEUED, in the order of claiming
	running map[string]*attempt
	workers []*workerSession
	turn    int
}

type task struct {
	orbit.Task
	epoch uint64
	due   time.Time
}

type attempt struct {
	orbit.TaskAttempt
	task      *task
	queue     *queue
	secret    string
	until     time.Time
	session   *workerSession
	outcome   string // "" while it runs
	told      bool   // of a requested cancel
	taskState string // as the outcome left the task
	revision  string
}

type event struct {
	id, queueID, kind string
	sequence          uint64
	text              json.RawMessage
}

type subscription struct {
	orbit.Subscription
	cursor     uint64
	deliveries []*delivery
	open       []*delivery // not ACKED, by sequence
	sessions   []*eventSession
	turn       int
}

type delivery struct {
	orbit.EventDelivery
	event   *event
	secret  string
	session *eventSession
}

func newState() state { return state{attempts: map[string]*attempt{}} }

// now has the precision of the real one's database.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// next counts a decimal string up.
func next(c orbit.Counter) orbit.Counter {
	n, _ := orbit.ParseCounter(c) // our own counters are canonical
	return strconv.FormatUint(n+1, 10)
}

func (s *state) addQueue(q orbit.Queue, at time.Time) *queue {
	q.ID, q.Revision, q.CreatedAt, q.UpdatedAt = orbit.NewID(), "1", at, at
	made := &queue{Queue: q, running: map[string]*attempt{}}
	s.queues = append(s.queues, made)
	return made
}

func (s *state) queue(id string) *queue {
	i := slices.IndexFunc(s.queues, func(q *queue) bool { return q.ID == id })
	if i < 0 {
		return nil
	}
	return s.queues[i]
}

func (s *state) task(id string) *task {
	i := slices.IndexFunc(s.tasks, func(t *task) bool { return t.ID == id })
	if i < 0 {
		return nil
	}
	return s.tasks[i]
}

func (s *state) subscription(id string) *subscription {
	i := slices.IndexFunc(s.subscriptions, func(sub *subscription) bool { return sub.ID == id })
	if i < 0 {
		return nil
	}
	return s.subscriptions[i]
}

// enqueue puts a task in its queue's order: priority, then due time, then age.
func (q *queue) enqueue(t *task) {
	i, _ := slices.BinarySearchFunc(q.waiting, t, func(a, b *task) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.due.Compare(b.due), cmp.Compare(a.ID, b.ID))
	})
	q.waiting = slices.Insert(q.waiting, i, t)
}

func (q *queue) dequeue(t *task) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w *task) bool { return w == t })
}

// move changes a task's state, and appends its event unless kind is "".
func (s *state) move(t *task, to orbit.TaskState, kind, reason string, result json.RawMessage, failure *orbit.TaskFailure) {
	at := now()
	t.State, t.Revision, t.UpdatedAt, t.Error = to, next(t.Revision), at, failure
	switch to {
	case orbit.TaskStateSucceeded:
		t.Result, t.FinishedAt = result, &at
	case orbit.TaskStateFailed, orbit.TaskStateCancelled:
		t.FinishedAt = &at
	}
	if kind == "" {
		return
	}
	snapshot := encode(struct {
		SchemaVersion    int             `json:"schema_version"`
		TaskID           string          `json:"task_id"`
		QueueID          string          `json:"queue_id"`
		State            orbit.TaskState `json:"state"`
		Revision         orbit.Counter   `json:"revision"`
		EffectUncertain  bool            `json:"effect_uncertain"`
		CurrentAttemptID string          `json:"current_attempt_id,omitempty"`
	}{1, t.ID, t.QueueID, t.State, t.Revision, t.EffectUncertain, t.CurrentAttemptID})
	if result != nil {
		snapshot = with(snapshot, "result", result)
	}
	e := &event{id: orbit.NewID(), queueID: t.QueueID, kind: kind, sequence: uint64(len(s.log) + 1)}
	head := encode(struct {
		ID                string        `json:"id"`
		Sequence          orbit.Counter `json:"sequence"`
		Type              string        `json:"type"`
		AggregateKind     string        `json:"aggregate_kind"`
		AggregateID       string        `json:"aggregate_id"`
		AggregateRevision orbit.Counter `json:"aggregate_revision"`
		OccurredAt        time.Time     `json:"occurred_at"`
		Details           any           `json:"details"`
	}{e.id, strconv.FormatUint(e.sequence, 10), kind, "task", t.ID, t.Revision, at, struct {
		State  orbit.TaskState    `json:"state"`
		Reason string             `json:"reason,omitempty"`
		Error  *orbit.TaskFailure `json:"error,omitempty"`
	}{to, reason, failure}})
	e.text = with(head, "snapshot", snapshot)
	s.log = append(s.log, e)
}

// encode marshals what always can be.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("orbittest: " + err.Error())
	}
	return text
}

// with adds a last member to an object, byte for byte.
func with(object []byte, name string, raw []byte) []byte {
	out := append(slices.Clone(object[:len(object)-1]), `,"`+name+`":`...)
	if len(object) == 2 {
		out = append([]byte(`{"`), name+`":`...)
	}
	return append(append(out, raw...), '}')
}
