package workers

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// How often the queues with free workers are looked at, in one query for all; while tasks flow,
// more often.
const (
	idleScan    = 20 * time.Millisecond
	activeScan  = 3 * time.Millisecond
	activeFor   = time.Second
	scanTimeout = 5 * time.Second
	turnTimeout = 10 * time.Second
	maxPerTurn  = 256
	minPause    = 20 * time.Millisecond // after a turn that found work and got none: paused, or at max_running
	maxPause    = 500 * time.Millisecond
)

// Pool claims tasks for the workers of this node: per queue one turn at a time, a few at once.
type Pool struct {
	store *store.Store
	log   *zap.Logger
	slots chan struct{}

	mu       sync.Mutex
	queues   map[store.ReadyQueue]*line
	draining bool
	moved    time.Time
	poke     chan struct{}
	turns    sync.WaitGroup
}

// line is a queue with its workers here.
type line struct {
	key    store.ReadyQueue
	places []*place // rotated each turn
	busy   bool
	rest   time.Time
	pause  time.Duration
	gather time.Time // until then, a turn is worthwhile only for half of the capacity
}

// place is one worker connection: what it runs, by attempt, until when.
type place struct {
	session  *session
	held     map[ids.ID]time.Time
	told     map[ids.ID]bool // of a requested cancel
	claiming bool            // a turn in flight may bring it tasks
	draining bool            // it asked for no more
	drained  []func()        // to call after that turn
}

// NewPool lets inFlight queues claim at once.
func NewPool(s *store.Store, inFlight int, log *zap.Logger) *Pool {
	return &Pool{store: s, log: log, slots: make(chan struct{}, inFlight), queues: map[store.ReadyQueue]*line{}, poke: make(chan struct{}, 1)}
}

// Attach adds a connection.
func (p *Pool) Attach(s *session) *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.queues[s.queue]
	if l == nil {
		l = &line{key: s.queue}
		p.queues[s.queue] = l
	}
	pl := &place{session: s, held: map[ids.ID]time.Time{}, told: map[ids.ID]bool{}}
	l.places = append(l.places, pl)
	p.Look()
	return pl
}

// Detach removes a connection; its attempts go on under their leases.
func (p *Pool) Detach(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.queues[s.queue]
	for i, pl := range l.places {
		if pl.session == s {
			l.places = append(l.places[:i:i], l.places[i+1:]...)
			break
		}
	}
	if len(l.places) == 0 {
		delete(p.queues, s.queue)
	}
}

// Settled frees the places of decided attempts. A queue that rested because it was at max_running may
// have room now.
func (p *Pool) Settled(pl *place, attempts ...ids.ID) {
	p.mu.Lock()
	if l := p.queues[pl.session.queue]; l != nil {
		l.rest, l.pause = time.Time{}, 0
	}
	for _, id := range attempts {
		delete(pl.held, id)
		delete(pl.told, id)
	}
	p.mu.Unlock()
}

// Renewed moves the end of a lease.
func (p *Pool) Renewed(pl *place, attempt ids.ID, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := pl.held[attempt]; ok {
		pl.held[attempt] = until
	}
}

// Look has the pool look for work at once.
func (p *Pool) Look() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// free is how many more tasks the connection can take.
func (pl *place) free(now time.Time) int {
	for id, until := range pl.held {
		if now.After(until.Add(time.Minute)) { // the worker forgot it; others have long had it
			delete(pl.held, id)
			delete(pl.told, id)
		}
	}
	if pl.draining || pl.session.conn.Congested() {
		return 0
	}
	return pl.session.capacity - len(pl.held)
}

// Run looks and claims until ctx ends or Drain.
func (p *Pool) Run(ctx context.Context) error {
	timer := time.NewTimer(idleScan)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.poke:
		case <-timer.C:
		}
		p.scan(ctx)
		p.mu.Lock()
		active, nobody := time.Since(p.moved) < activeFor, len(p.queues) == 0
		p.mu.Unlock()
		switch {
		case nobody:
			timer.Stop() // until Attach pokes
		case active:
			timer.Reset(activeScan)
		default:
			timer.Reset(idleScan)
		}
	}
}

// scan asks which of the queues with free workers have ready tasks; none with free workers, no query.
func (p *Pool) scan(ctx context.Context) {
	now := time.Now()
	var hungry []store.ReadyQueue
	p.mu.Lock()
	for key, l := range p.queues {
		if !p.draining && !l.busy && now.After(l.rest) && l.worthwhile(now) {
			hungry = append(hungry, key)
		}
	}
	p.mu.Unlock()
	if len(hungry) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	found, err := p.store.QueuesWithWork(ctx, hungry)
	if err != nil {
		if !errs.Is(err, errs.Unavailable) {
			p.log.Error("looking for ready tasks failed", zap.Error(err))
		}
		return
	}
	for _, key := range found {
		p.start(key)
	}
}

// worthwhile reports that the workers could take a task; right after a turn that left some waiting,
// that they could take half of what they may run.
func (l *line) worthwhile(now time.Time) bool {
	capacity, free := 0, 0
	for _, pl := range l.places {
		capacity += pl.session.capacity
		free += pl.free(now)
	}
	return free > 0 && (2*free >= capacity || now.After(l.gather))
}

// start begins a turn unless the queue has one.
func (p *Pool) start(key store.ReadyQueue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.queues[key]
	if l == nil || l.busy || p.draining {
		return
	}
	l.busy = true
	p.turns.Add(1)
	go func() {
		defer p.turns.Done()
		p.slots <- struct{}{}
		p.turn(l)
		<-p.slots
	}()
}

// turn claims until the queue has no more or its workers no room.
func (p *Pool) turn(l *line) {
	var took time.Duration
	wanted := false
	for {
		wants, places := p.begin(l)
		if len(wants) == 0 {
			break
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), turnTimeout)
		out, err := p.store.ClaimTasks(ctx, l.key.NamespaceID, l.key.QueueID, wants)
		cancel()
		if err != nil && !errs.Is(err, errs.Unavailable) {
			p.log.Error("task claim failed", zap.Stringer("queue_id", l.key.QueueID), zap.Error(err))
		}
		took = time.Since(began)
		wanted = len(out) == store.TotalFree(wants)
		if full := p.hand(l, places, out, err); !full {
			break
		}
	}
	p.mu.Lock()
	l.busy = false
	if wanted { // more is probably waiting: let freed places gather, so that a loaded database gets fewer and larger turns
		l.gather = time.Now().Add(took)
	}
	p.mu.Unlock()
	p.Look()
}

func (p *Pool) begin(l *line) ([]store.WorkerWant, map[ids.ID]*place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return nil, nil
	}
	now := time.Now()
	wants, places, left := []store.WorkerWant(nil), map[ids.ID]*place{}, maxPerTurn
	for _, pl := range l.places {
		if n := min(pl.free(now), left); n > 0 {
			wants = append(wants, store.WorkerWant{SessionID: pl.session.id, Worker: pl.session.name, Free: n})
			places[pl.session.id] = pl
			pl.claiming = true
			left -= n
		}
	}
	if len(l.places) > 1 {
		l.places = append(l.places[1:len(l.places):len(l.places)], l.places[0])
	}
	return wants, places
}

// hand sends committed assignments and reports whether the turn took all it could.
func (p *Pool) hand(l *line, places map[ids.ID]*place, out []store.Assignment, err error) (full bool) {
	p.mu.Lock()
	now := time.Now()
	for _, a := range out {
		places[a.SessionID].held[a.Attempt.ID] = now.Add(a.Attempt.LeaseUntil.Sub(a.Attempt.StartedAt))
	}
	if len(out) > 0 {
		l.pause, p.moved = 0, now
	} else {
		l.pause = min(max(2*l.pause, minPause), maxPause)
		l.rest = now.Add(l.pause)
	}
	p.mu.Unlock()
	for _, a := range out {
		places[a.SessionID].session.assign(a)
	}
	p.settleTurn(places)
	return err == nil && len(out) == maxPerTurn
}

// settleTurn lets the connections of a turn whose assignments are all sent end their drain.
func (p *Pool) settleTurn(places map[ids.ID]*place) {
	var drained []func()
	p.mu.Lock()
	for _, pl := range places {
		pl.claiming = false
		drained = append(drained, pl.drained...)
		pl.drained = nil
	}
	p.mu.Unlock()
	for _, call := range drained {
		call()
	}
}

// DrainPlace gives a connection no more tasks. It calls drained, which must not block, when the last
// assignment that can still come to it has been sent.
func (p *Pool) DrainPlace(pl *place, drained func()) {
	p.mu.Lock()
	pl.draining = true
	if pl.claiming {
		pl.drained = append(pl.drained, drained)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	drained()
}

// Drain ends claiming and waits for the turns in flight; what they claimed is sent.
func (p *Pool) Drain() {
	p.mu.Lock()
	p.draining = true
	p.mu.Unlock()
	p.turns.Wait()
}
