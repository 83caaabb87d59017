// Package hub knows which connections of this node read which subscription, what each still holds,
// and which subscription is worth a claim turn now. It holds no SQL and starts no goroutine.
package hub

import (
	"slices"
	"sync"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// Key names a subscription.
type Key struct{ Namespace, Subscription ids.ID }

// Member is one connection; its functions never block.
type Member struct {
	SessionID ids.ID
	Capacity  int
	Deliver   func([]store.Claimed)
	Congested func() bool // reads too slowly: give it nothing more
	Fail      func(error)
}

// Hub is safe for concurrent use.
type Hub struct {
	mu       sync.Mutex
	subs     map[Key]*Sub
	order    []*Sub // rotation of Due
	turn     int
	streams  map[ids.ID]store.Stream // as last seen
	clock    time.Duration           // database clock − local clock
	draining bool
}

// New returns an empty hub.
func New() *Hub { return &Hub{subs: map[Key]*Sub{}, streams: map[ids.ID]store.Stream{}} }

// Attach adds a connection to its subscription and makes a turn worthwhile.
func (h *Hub) Attach(key Key, application ids.ID, enabled bool, m *Member) *Sub {
	h.mu.Lock()
	defer h.mu.Unlock()
	sub := h.subs[key]
	if sub == nil {
		sub = &Sub{hub: h, Key: key, Application: application, members: map[ids.ID]*Member{}, held: map[ids.ID]hold{}}
		h.subs[key] = sub
		h.order = append(h.order, sub)
	}
	sub.members[m.SessionID] = m
	sub.rotation = append(sub.rotation, m)
	sub.enabled, sub.dirty = enabled, true
	return sub
}

// Detach removes a connection. Its leases stay in the database (R6.8).
func (h *Hub) Detach(key Key, session ids.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sub := h.subs[key]
	if sub == nil {
		return
	}
	delete(sub.members, session)
	for i, m := range sub.rotation {
		if m.SessionID == session {
			sub.rotation = append(sub.rotation[:i:i], sub.rotation[i+1:]...)
			break
		}
	}
	for id, held := range sub.held {
		if held.session == session {
			delete(sub.held, id)
			sub.notBefore(held.until) // the turn after it recovers the lease
		}
	}
	if len(sub.members) == 0 {
		delete(h.subs, key)
		for i, s := range h.order {
			if s == sub {
				h.order = append(h.order[:i:i], h.order[i+1:]...)
				break
			}
		}
	}
}

// Namespaces lists the namespaces that have connections here; hungry tells whether any connection
// could take a delivery.
func (h *Hub) Namespaces() (all []ids.ID, hungry bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := make(map[ids.ID]bool, 8)
	now := h.now()
	for _, sub := range h.order {
		if !seen[sub.Key.Namespace] {
			seen[sub.Key.Namespace] = true
			all = append(all, sub.Key.Namespace)
		}
		hungry = hungry || sub.enabled && sub.hungry(now)
	}
	return all, hungry
}

// Observe takes the heads that a scan read. It returns the namespaces whose subscriptions or
// credentials changed, and whether any head moved.
func (h *Hub) Observe(streams []store.Stream) (changed []ids.ID, moved bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range streams {
		last, known := h.streams[s.NamespaceID]
		if known && s.Head < last.Head { // a scan that began before a hint
			s.Head = last.Head
		}
		moved = moved || known && s.Head > last.Head
		if known && s.WakeVersion != last.WakeVersion {
			changed = append(changed, s.NamespaceID)
		}
		h.streams[s.NamespaceID] = s
	}
	return changed, moved
}

// Introduce makes a namespace known before its first scan, so that the scan can tell what moved. What
// is known stays: read before a connection's subscription was, it makes the scan see any later change.
func (h *Hub) Introduce(stream store.Stream, database time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock = time.Until(database)
	if _, known := h.streams[stream.NamespaceID]; !known {
		h.streams[stream.NamespaceID] = stream
	}
}

// Subs lists the subscriptions of these namespaces that have connections here.
func (h *Hub) Subs(namespaces []ids.ID) []*Sub {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*Sub
	for _, sub := range h.order {
		if slices.Contains(namespaces, sub.Key.Namespace) {
			out = append(out, sub)
		}
	}
	return out
}

// Hint says that this process has just committed events up to head.
func (h *Hub) Hint(namespace ids.ID, head uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.streams[namespace]; ok && head > s.Head {
		s.Head = head
		h.streams[namespace] = s
	}
}

// SetClock takes the database clock as read just now.
func (h *Hub) SetClock(database time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock = time.Until(database)
}

// Now is the database clock, as far as this node knows.
func (h *Hub) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now()
}

func (h *Hub) now() time.Time { return time.Now().Add(h.clock) }

// Due lists up to limit subscriptions that are worth a turn now and are neither queued nor in one,
// beginning after the one where the last call ended, and marks them queued.
func (h *Hub) Due(limit int) []*Sub {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return nil
	}
	now := h.now()
	var out []*Sub
	n := len(h.order)
	for i := 0; i < n && len(out) < limit; i++ {
		sub := h.order[(h.turn+i)%n]
		if sub.due(now) {
			sub.busy = true
			out = append(out, sub)
			if len(out) == limit {
				h.turn = (h.turn + i + 1) % n
			}
		}
	}
	return out
}

// Drain ends claiming on this node.
func (h *Hub) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
}
