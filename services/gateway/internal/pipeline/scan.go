package pipeline

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/hub"
)

// How often the heads are read: R6.9 allows no slower when idle; while events flow, more often.
const (
	idleScan    = 20 * time.Millisecond
	activeScan  = 3 * time.Millisecond
	activeFor   = time.Second
	watchEvery  = time.Second // credentials, and heads while nobody could take a delivery
	scanTimeout = 5 * time.Second
)

// Scanner reads the heads of all namespaces that have connections here, in one query a scan, and
// answers pings by it: a ping is answered by a scan that began after it arrived.
type Scanner struct {
	store  *store.Store
	hub    *hub.Hub
	claims *Claims
	watch  *Watch
	log    *zap.Logger

	mu    sync.Mutex
	asked []func(now time.Time, err error)
	poke  chan struct{}
}

// NewScanner wires the scan to what it drives.
func NewScanner(s *store.Store, h *hub.Hub, claims *Claims, watch *Watch, log *zap.Logger) *Scanner {
	return &Scanner{store: s, hub: h, claims: claims, watch: watch, log: log, poke: make(chan struct{}, 1)}
}

// Ask calls answer, which must not block, after a scan that begins from now on.
func (s *Scanner) Ask(answer func(now time.Time, err error)) {
	s.mu.Lock()
	s.asked = append(s.asked, answer)
	s.mu.Unlock()
	s.Poke()
}

// Poke has the scanner look at once.
func (s *Scanner) Poke() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// Run scans until ctx ends.
func (s *Scanner) Run(ctx context.Context) error {
	var lastScan, lastMove, lastWatch time.Time
	timer := time.NewTimer(idleScan)
	defer timer.Stop()
	for {
		poked := false
		select {
		case <-ctx.Done():
			return nil
		case <-s.poke:
			poked = true
		case <-timer.C:
		}
		namespaces, hungry := s.hub.Namespaces()
		asked := s.take()
		now := time.Now()
		if len(namespaces) > 0 && (hungry || len(asked) > 0 || poked || now.Sub(lastScan) >= watchEvery) {
			if s.scan(ctx, namespaces, asked) {
				lastMove = now
			}
			lastScan = now
		} else {
			for _, answer := range asked {
				answer(s.hub.Now(), nil)
			}
		}
		if now.Sub(lastWatch) >= watchEvery {
			s.watch.CheckAll(ctx)
			lastWatch = now
		}
		if time.Since(lastMove) < activeFor {
			timer.Reset(activeScan)
		} else {
			timer.Reset(idleScan)
		}
	}
}

func (s *Scanner) take() []func(time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// scan reports whether any head moved.
func (s *Scanner) scan(ctx context.Context, namespaces []ids.ID, asked []func(time.Time, error)) bool {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	streams, now, err := s.store.Streams(ctx, namespaces)
	moved := false
	if err == nil {
		s.hub.SetClock(now)
		var changed []ids.ID
		if changed, moved = s.hub.Observe(streams); len(changed) > 0 {
			s.watch.CheckAll(ctx)
			err = s.refresh(ctx, changed)
		}
		s.claims.Scan()
	}
	if err != nil && !errs.Is(err, errs.Unavailable) {
		s.log.Error("scan failed", zap.Error(err))
	}
	for _, answer := range asked {
		answer(now, err)
	}
	return moved
}

// refresh reads again the subscriptions of namespaces where something changed.
func (s *Scanner) refresh(ctx context.Context, namespaces []ids.ID) error {
	subs := s.hub.Subs(namespaces)
	keys := make([]store.SubscriptionKey, len(subs))
	for i, sub := range subs {
		keys[i] = store.SubscriptionKey(sub.Key)
	}
	standings, err := s.store.Standings(ctx, keys)
	if err != nil {
		return err
	}
	for _, sub := range subs {
		if now := standings[store.SubscriptionKey(sub.Key)]; now.Retired != nil {
			sub.Retire(now.Retired)
		} else {
			sub.Changed(now.Enabled)
		}
	}
	return nil
}

// Hint says that this process has just committed events up to head: their subscriptions are
// claimed for at once, without waiting for a scan.
func (s *Scanner) Hint(namespace ids.ID, head uint64) {
	s.hub.Hint(namespace, head)
	s.claims.Scan()
}
