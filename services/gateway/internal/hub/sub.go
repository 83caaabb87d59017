package hub

import (
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// Sub is one subscription with connections on this node. Its fields are guarded by the hub's lock.
type Sub struct {
	Key         Key
	Application ids.ID

	hub      *Hub
	members  map[ids.ID]*Member
	rotation []*Member       // who is served first in the next turn
	held     map[ids.ID]hold // un-acked deliveries of this node's connections

	enabled bool
	busy    bool       // queued for a turn or in one
	served  []*Member  // who may get deliveries from the turn in flight
	dirty   bool       // something happened that a turn may act on
	seen    uint64     // head of the log as of the last turn
	more    bool       // the last turn left work behind for lack of room or capacity
	next    *time.Time // a lease ends or a delayed delivery becomes available
	pause   time.Duration
	rest    time.Time // no turn before this: the last one failed or could serve nobody
	gather  time.Time // until then, a turn is worthwhile only for half of the capacity
}

type hold struct {
	session ids.ID
	until   time.Time
}

// How long to wait before looking again for room that only others can make.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

func (s *Sub) due(now time.Time) bool {
	if s.busy || !s.enabled || now.Before(s.rest) || !s.hungry(now) || now.Before(s.gather) && !s.halfFree(s.counts(now)) {
		return false
	}
	return s.dirty || s.hub.streams[s.Key.Namespace].Head > s.seen || s.next != nil && !now.Before(*s.next)
}

// hungry reports that some connection could take a delivery.
func (s *Sub) hungry(now time.Time) bool {
	counts := s.counts(now)
	for _, m := range s.rotation {
		if !m.draining && counts[m.SessionID] < m.Capacity {
			return true
		}
	}
	return false
}

// halfFree reports that the connections could take at least half of what they may hold.
func (s *Sub) halfFree(counts map[ids.ID]int) bool {
	capacity, held := 0, 0
	for _, m := range s.rotation {
		if !m.draining {
			capacity += m.Capacity
			held += counts[m.SessionID]
		}
	}
	return 2*held <= capacity
}

func (s *Sub) counts(now time.Time) map[ids.ID]int {
	if len(s.held) == 0 {
		return nil
	}
	counts := make(map[ids.ID]int, len(s.members))
	for id, h := range s.held {
		if now.Before(h.until) {
			counts[h.session]++
		} else {
			delete(s.held, id)
		}
	}
	return counts
}

func (s *Sub) notBefore(at time.Time) {
	if s.next == nil || at.Before(*s.next) {
		s.next = &at
	}
}

// BeginTurn returns the connections that can take deliveries, fairest first. Their full capacity is
// given: what they hold is counted in the transaction (R6.3).
func (s *Sub) BeginTurn() []store.SessionWant {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	wants := s.begin(s.counts(s.hub.now()))
	if len(wants) == 0 {
		s.dirty = true
		s.rest = s.wait() // every hungry connection is congested
	}
	return wants
}

// Join is BeginTurn for a turn that shares the transaction of these commands; nil unless one will be due.
func (s *Sub) Join(settling []delivery.Command) []store.SessionWant {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	now := s.hub.now()
	if s.busy || !s.enabled || s.hub.draining || now.Before(s.rest) || !s.dirty && !s.more && s.hub.streams[s.Key.Namespace].Head <= s.seen {
		return nil
	}
	counts := s.counts(now)
	for _, c := range settling {
		if h, held := s.held[c.Proof.DeliveryID]; held && c.Kind != delivery.Extend {
			counts[h.session]--
		}
	}
	if now.Before(s.gather) && !s.halfFree(counts) {
		return nil
	}
	wants := s.begin(counts)
	s.busy, s.dirty = len(wants) > 0, len(wants) == 0
	return wants
}

// begin picks who is served by a turn that begins now.
func (s *Sub) begin(counts map[ids.ID]int) (wants []store.SessionWant) {
	s.dirty, s.next = false, nil
	for _, m := range s.rotation {
		if !m.draining && counts[m.SessionID] < m.Capacity && !m.Congested() {
			m.claims++
			s.served = append(s.served, m)
			wants = append(wants, store.SessionWant{SessionID: m.SessionID, Capacity: m.Capacity})
		}
	}
	if len(s.rotation) > 1 {
		s.rotation = append(s.rotation[1:], s.rotation[0])
	}
	return wants
}

// wait schedules another look, later each time.
func (s *Sub) wait() time.Time {
	s.pause = min(max(2*s.pause, minPause), maxPause)
	at := s.hub.now().Add(s.pause)
	s.notBefore(at)
	return at
}

// EndTurn takes a committed turn: hands out the deliveries and decides when to look again. Where more
// is waiting than was taken, freed places gather for as long as the turn took, so that a loaded
// database gets fewer and larger turns; it returns how long that is.
func (s *Sub) EndTurn(turn store.Turn, took time.Duration) (gather time.Duration) {
	byMember, served := s.settle(turn)
	for m, claimed := range byMember {
		m.Deliver(claimed)
	}
	s.sent(served)
	if len(turn.Claimed) == 0 {
		return 0
	}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if !s.more {
		return 0
	}
	s.gather = s.hub.now().Add(took)
	return took
}

// sent lets the connections of a turn, whose deliveries are all sent, end their drain.
func (s *Sub) sent(served []*Member) {
	var drained []func()
	s.hub.mu.Lock()
	for _, m := range served {
		if m.claims--; m.claims == 0 {
			drained = append(drained, m.drained...)
			m.drained = nil
		}
	}
	s.hub.mu.Unlock()
	for _, call := range drained {
		call()
	}
}

// DrainMember gives a connection no more deliveries. It calls drained, which must not block, when the
// last one that can still come to it has been sent.
func (s *Sub) DrainMember(session ids.ID, drained func()) {
	s.hub.mu.Lock()
	m := s.members[session]
	if m != nil {
		m.draining = true
		if m.claims > 0 {
			m.drained = append(m.drained, drained)
			s.hub.mu.Unlock()
			return
		}
	}
	s.hub.mu.Unlock()
	drained()
}

func (s *Sub) settle(turn store.Turn) (out map[*Member][]store.Claimed, served []*Member) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.clock = time.Until(turn.Now)
	s.busy, s.enabled, s.seen = false, turn.Enabled, max(s.seen, turn.Head)
	served, s.served = s.served, nil
	s.more = turn.Cursor < turn.Head || turn.Waiting
	if turn.NextDue != nil {
		s.notBefore(*turn.NextDue)
	}
	out = make(map[*Member][]store.Claimed, len(s.members))
	for _, c := range turn.Claimed {
		if m := s.members[c.SessionID]; m != nil { // else it closed meanwhile; the lease runs out
			s.held[c.Delivery.ID] = hold{c.SessionID, *c.Delivery.LeaseUntil}
			out[m] = append(out[m], c)
		}
	}
	switch {
	case len(turn.Claimed) > 0:
		s.pause = 0
	case s.more && s.hungry(s.hub.now()): // the backlog is full of others' deliveries
		s.wait()
	}
	return out, served
}

// AbortTurn gives up a turn that failed; every connection of the subscription learns why.
func (s *Sub) AbortTurn(err error) {
	s.hub.mu.Lock()
	s.busy, s.dirty = false, true
	s.rest = s.wait()
	served := s.served
	s.served = nil
	members := append([]*Member(nil), s.rotation...)
	s.hub.mu.Unlock()
	for _, m := range members {
		m.Fail(err)
	}
	s.sent(served)
}

// SkipTurn ends a turn that served nobody; another is to look again.
func (s *Sub) SkipTurn() {
	s.hub.mu.Lock()
	s.busy, s.dirty = false, true
	served := s.served
	s.served = nil
	s.hub.mu.Unlock()
	s.sent(served)
}

// Settled takes a committed command, on whichever connection it came: at is when the delivery was
// acknowledged, becomes available, or its lease ends.
func (s *Sub) Settled(c delivery.Command, at time.Time) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	held, known := s.held[c.Proof.DeliveryID]
	switch c.Kind {
	case delivery.Extend:
		if known {
			held.until = at
			s.held[c.Proof.DeliveryID] = held
		}
		s.notBefore(at)
		return
	case delivery.Release:
		s.notBefore(at)
	}
	delete(s.held, c.Proof.DeliveryID)
	if s.more {
		s.dirty = true
	}
}

// Claim reports whether the subscription is worth a turn now, and marks it queued.
func (s *Sub) Claim() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.hub.draining || !s.due(s.hub.now()) {
		return false
	}
	s.busy = true
	return true
}

// Enabled is what the last turn or scan saw.
func (s *Sub) Enabled() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.enabled
}

// Changed takes the row as read just now, after something about it changed: a resume or a manual
// retry makes a turn worthwhile.
func (s *Sub) Changed(enabled bool) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.enabled, s.dirty = enabled, true
}

// Retire ends claiming for good; every connection of the subscription learns why and closes.
func (s *Sub) Retire(err error) {
	s.hub.mu.Lock()
	s.enabled = false
	members := append([]*Member(nil), s.rotation...)
	s.hub.mu.Unlock()
	for _, m := range members {
		m.Fail(err)
	}
}

// Holds is how many un-acked deliveries a connection has.
func (s *Sub) Holds(session ids.ID) int {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.counts(s.hub.now())[session]
}
