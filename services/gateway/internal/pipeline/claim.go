// Package pipeline is how work reaches the database in batches: claim turns, acks, the scan that
// finds what is due, and the watch over credentials.
package pipeline

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/delivery"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/hub"
)

// ClaimLimits guard the node and its database (R6.7).
type ClaimLimits struct {
	InFlight    int // turns at once
	PerApp      int // of one application
	Queued      int // waiting + in flight
	PerScan     int // queued by one scan
	TurnTimeout time.Duration
}

// Claims runs claim turns, rotating over applications and, within one, over subscriptions.
type Claims struct {
	limits ClaimLimits
	store  *store.Store
	hub    *hub.Hub
	log    *zap.Logger

	mu       sync.Mutex
	waiting  map[ids.ID][]*hub.Sub // by application
	ring     []ids.ID              // applications with something waiting, next first
	running  map[ids.ID]int
	inFlight int
	queued   int // waiting, without those in flight
	closed   bool
	turns    sync.WaitGroup
}

// NewClaims returns a pool with nothing in flight.
func NewClaims(limits ClaimLimits, s *store.Store, h *hub.Hub, log *zap.Logger) *Claims {
	return &Claims{limits: limits, store: s, hub: h, log: log, waiting: map[ids.ID][]*hub.Sub{}, running: map[ids.ID]int{}}
}

// Scan queues what the hub holds due, a few at a time so that one scan cannot flood the pool.
func (c *Claims) Scan() {
	c.mu.Lock()
	room := min(c.limits.PerScan, c.limits.Queued-c.queued-c.inFlight)
	c.mu.Unlock()
	if room <= 0 {
		return
	}
	for _, sub := range c.hub.Due(room) {
		c.enqueue(sub)
	}
}

// Offer queues one subscription at once if it is due.
func (c *Claims) Offer(sub *hub.Sub) {
	c.mu.Lock()
	full := c.queued+c.inFlight >= c.limits.Queued
	c.mu.Unlock()
	if !full && sub.Claim() { // a full pool leaves it to the next scan
		c.enqueue(sub)
	}
}

// enqueue takes a subscription that the hub has marked queued.
func (c *Claims) enqueue(sub *hub.Sub) {
	c.mu.Lock()
	defer c.mu.Unlock()
	app := sub.Application
	if len(c.waiting[app]) == 0 {
		c.ring = append(c.ring, app)
	}
	c.waiting[app] = append(c.waiting[app], sub)
	c.queued++
	c.dispatch()
}

// dispatch starts turns while there is room; called with the lock held.
func (c *Claims) dispatch() {
	for i := 0; i < len(c.ring) && c.inFlight < c.limits.InFlight && !c.closed; {
		app := c.ring[i]
		if c.running[app] >= c.limits.PerApp {
			i++
			continue
		}
		sub := c.waiting[app][0]
		c.waiting[app] = c.waiting[app][1:]
		c.ring = append(c.ring[:i], c.ring[i+1:]...)
		if len(c.waiting[app]) > 0 {
			c.ring = append(c.ring, app) // to the end: the others come first
		} else {
			delete(c.waiting, app)
		}
		c.queued--
		c.begin(app)
		go func() { c.end(sub, c.turn(sub)) }()
	}
}

// begin counts a turn; called with the lock held.
func (c *Claims) begin(app ids.ID) {
	c.inFlight++
	c.running[app]++
	c.turns.Add(1)
}

// end lets others begin, and offers the subscription again, once more after the time it has to gather.
func (c *Claims) end(sub *hub.Sub, gather time.Duration) {
	defer c.turns.Done()
	c.mu.Lock()
	c.inFlight--
	if c.running[sub.Application]--; c.running[sub.Application] == 0 {
		delete(c.running, sub.Application)
	}
	c.dispatch()
	c.mu.Unlock()
	c.Offer(sub)
	if gather > 0 {
		time.AfterFunc(gather, func() { c.Offer(sub) })
	}
}

func (c *Claims) turn(sub *hub.Sub) (gather time.Duration) {
	wants := sub.BeginTurn()
	if len(wants) == 0 {
		sub.SkipTurn()
		return 0
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), c.limits.TurnTimeout)
	defer cancel()
	turn, err := c.store.ClaimDeliveries(ctx, sub.Key.Namespace, sub.Key.Subscription, wants)
	if err == nil {
		return sub.EndTurn(turn, time.Since(began))
	}
	if errs.Is(err, errs.Internal) {
		c.log.Error("claim turn failed; its connections are closed and may come back",
			zap.Stringer("namespace_id", sub.Key.Namespace), zap.Stringer("subscription_id", sub.Key.Subscription), zap.Error(err))
	}
	sub.AbortTurn(err)
	return 0
}

// Join begins a turn that shares the transaction of a settlement, if one is due once those commands are
// committed and the pool has room; nil if not. Its connections' wants go into the settlement, its end is Joined.
func (c *Claims) Join(sub *hub.Sub, settling []delivery.Command) []store.SessionWant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.inFlight >= c.limits.InFlight || c.running[sub.Application] >= c.limits.PerApp {
		return nil
	}
	wants := sub.Join(settling)
	if wants != nil {
		c.begin(sub.Application)
	}
	return wants
}

// Joined ends it; nil says that the settlement has to do without, and a turn of its own is to find out why.
func (c *Claims) Joined(sub *hub.Sub, turn *store.Turn, took time.Duration) {
	if turn == nil {
		sub.SkipTurn()
		c.end(sub, 0)
		return
	}
	c.end(sub, sub.EndTurn(*turn, took))
}

// Close begins no further turn and returns when none is in flight.
func (c *Claims) Close() {
	c.mu.Lock()
	c.closed = true // a scan may have found something due just before the hub was drained
	c.mu.Unlock()
	c.turns.Wait()
}
