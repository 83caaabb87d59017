package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// pings is how long other connections' pings take beside 10 000 acks/s on one. The acks repeat one
// good proof, which costs a transaction like the first.
func pings(ctx context.Context, s *stack, scale int) ([]metric, error) {
	const rate, others = 10_000, 20
	t, err := s.tenant(ctx)
	if err != nil {
		return nil, err
	}
	queue, subs, err := t.queue(ctx, 2)
	if err != nil {
		return nil, err
	}
	flooder, err := s.open(t, subs[0], 1)
	if err != nil {
		return nil, err
	}
	defer flooder.ws.Close()
	if err := s.appendEvents(ctx, t, queue, 1); err != nil {
		return nil, err
	}
	got := make(chan proof, 8)
	var answered atomic.Int64
	failed := make(chan error, 2)
	go func() { failed <- flooder.read(func(p proof) { got <- p }, func() { answered.Add(1) }) }()
	p := <-got
	var neighbours []*socket
	for range others {
		c, err := s.open(t, subs[1], 1)
		if err != nil {
			return nil, err
		}
		defer c.ws.Close()
		go c.read(func(proof) {}, nil) //nolint:errcheck // a ping on it says so
		neighbours = append(neighbours, c)
	}
	length := time.Duration(max(20*scale/100, 3)) * time.Second
	alone, err := pingAll(ctx, length/2, neighbours)
	if err != nil {
		return nil, err
	}
	flood, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		if err := flooder.ackAtRate(flood, p, rate); err != nil {
			failed <- err
		}
	}()
	began := time.Now()
	beside, err := pingAll(ctx, length, neighbours)
	if err != nil {
		return nil, err
	}
	acks := perSecond("acks on one connection", int(answered.Load()), time.Since(began))
	select {
	case err := <-failed:
		return nil, err
	default:
	}
	out := append([]metric{acks}, percentiles("ping of others before", alone)...)
	return append(append(out, percentiles("ping of others meanwhile", beside)...), loadAverage()), nil
}

// ackAtRate repeats an ack, as far as the gateway takes them, until ctx ends.
func (c *socket) ackAtRate(ctx context.Context, p proof, rate float64) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	began, sent := time.Now(), 0
	for ctx.Err() == nil {
		<-tick.C
		for due := int(time.Since(began).Seconds() * rate); sent < due && ctx.Err() == nil; sent++ {
			if _, err := c.ack(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// pingAll pings on all these connections for a while and returns how long each ping took.
func pingAll(ctx context.Context, length time.Duration, sockets []*socket) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var late timings
	failed := make(chan error, len(sockets))
	var running sync.WaitGroup
	for _, c := range sockets {
		running.Go(func() { c.pingUntil(ctx, 50*time.Millisecond, &late, failed) })
	}
	running.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
		return late.all, nil
	}
}

// timings are gathered from several goroutines.
type timings struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *timings) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, d)
}

func (c *socket) pingUntil(ctx context.Context, every time.Duration, late *timings, failed chan<- error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		took, err := c.timed("events.ping", "{}")
		if err != nil {
			failed <- err
			return
		}
		late.add(took)
	}
}

// fairness is how long a quiet application waits beside a busy one, and what a claim that is blocked by
// a lock from outside does to the others.
func fairness(ctx context.Context, s *stack, scale int) ([]metric, error) {
	quiet, err := s.newQuiet(ctx)
	if err != nil {
		return nil, err
	}
	defer quiet.c.ws.Close()
	for range 20 {
		if err := quiet.event(ctx); err != nil {
			return nil, err
		}
	}
	alone := percentiles("commit to delivery before", quiet.late.all)
	quiet.late.all = nil
	busy, drained, err := s.busyTenant(ctx, scaled(100_000, scale))
	if err != nil {
		return nil, err
	}
	defer busy()
	began, before := time.Now(), drained.Load()
	for range max(60*scale/100, 3) {
		time.Sleep(time.Second)
		if err := quiet.event(ctx); err != nil {
			return nil, err
		}
	}
	rate := perSecond("deliveries of the busy one", int(drained.Load()-before), time.Since(began))
	busy()
	out := append(append([]metric{rate}, alone...), percentiles("commit to delivery meanwhile", quiet.late.all)...)
	load := loadAverage()
	blocked, err := s.blockedClaim(ctx, quiet)
	if err != nil {
		return nil, err
	}
	return append(append(out, load), blocked...), nil
}

// quietTenant has one connection and measures from each commit to its receipt.
type quietTenant struct {
	s     *stack
	t     *tenant
	queue string
	sub   string
	c     *socket
	got   chan proof
	late  timings
	acks  timings
}

func (s *stack) newQuiet(ctx context.Context) (*quietTenant, error) {
	t, err := s.tenant(ctx)
	if err != nil {
		return nil, err
	}
	queue, subs, err := t.queue(ctx, 2)
	if err != nil {
		return nil, err
	}
	c, err := s.open(t, subs[0], 1)
	if err != nil {
		return nil, err
	}
	q := &quietTenant{s: s, t: t, queue: queue, sub: subs[1], c: c, got: make(chan proof, 8)}
	go c.read(func(p proof) { q.got <- p }, nil) //nolint:errcheck // its events would not arrive
	return q, nil
}

// event commits one, as another node would, receives it and acknowledges it.
func (q *quietTenant) event(ctx context.Context) error {
	if err := q.s.appendEvents(ctx, q.t, q.queue, 1); err != nil {
		return err
	}
	began := time.Now()
	select {
	case p := <-q.got:
		q.late.add(time.Since(began))
		took, err := q.c.timed("event.ack", p.body())
		q.acks.add(took)
		return err
	case <-time.After(frameLimit):
		return fmt.Errorf("the quiet application's event did not come within %s", frameLimit)
	}
}

// busyTenant has n ready events in four subscriptions and 20 connections that take all they can.
func (s *stack) busyTenant(ctx context.Context, n int) (stop func(), drained *atomic.Int64, err error) {
	t, err := s.tenant(ctx)
	if err != nil {
		return nil, nil, err
	}
	queue, subs, err := t.queue(ctx, 4)
	if err != nil {
		return nil, nil, err
	}
	if err := s.appendEvents(ctx, t, queue, n); err != nil {
		return nil, nil, err
	}
	drained = &atomic.Int64{}
	var open []*socket
	for i := range 20 {
		c, err := s.open(t, subs[i%len(subs)], 32)
		if err != nil {
			return nil, nil, err
		}
		open = append(open, c)
		go c.read(func(p proof) { drained.Add(1); _, _ = c.ack(p) }, nil) //nolint:errcheck // ends when stop closes it
	}
	return func() {
		for _, c := range open {
			_ = c.ws.Close() // again is no matter
		}
	}, drained, nil
}

// blockedClaim holds a subscription's row for 5 s while it has an event to claim.
func (s *stack) blockedClaim(ctx context.Context, quiet *quietTenant) ([]metric, error) {
	const length = 5 * time.Second
	victim, err := s.newQuiet(ctx)
	if err != nil {
		return nil, err
	}
	defer victim.c.ws.Close()
	pinger, err := s.open(quiet.t, quiet.sub, 1)
	if err != nil {
		return nil, err
	}
	defer pinger.ws.Close()
	go pinger.read(func(proof) {}, nil) //nolint:errcheck // a ping on it says so
	alone, err := pingAll(ctx, length, []*socket{pinger, victim.c})
	if err != nil {
		return nil, err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() //nolint:errcheck // ends the lock, whatever else
	if _, err := tx.ExecContext(ctx, "SELECT id FROM subscriptions WHERE namespace_id = UNHEX(?) FOR UPDATE", victim.t.namespace); err != nil {
		return nil, err
	}
	if err := s.appendEvents(ctx, victim.t, victim.queue, 1); err != nil {
		return nil, err
	}
	window, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	quiet.acks.all = nil
	var pinged []time.Duration
	failed := make(chan error, 1)
	go func() {
		var err error
		pinged, err = pingAll(ctx, length, []*socket{pinger, victim.c}) // also on the blocked one
		failed <- err
	}()
	for window.Err() == nil {
		if err := quiet.event(ctx); err != nil {
			return nil, err
		}
	}
	if err := <-failed; err != nil {
		return nil, err
	}
	select {
	case <-victim.got:
		return nil, errors.New("the blocked claim went through")
	default:
	}
	out := append(percentiles("ping before", alone), percentiles("ping beside a blocked claim", pinged)...)
	return append(out, percentiles("ack beside a blocked claim", quiet.acks.all)...), nil
}

// appendEvents commits n events straight into a namespace's log, a thousand a statement: a load for
// readers of the log, and a commit of which no gateway gets a hint.
func (s *stack) appendEvents(ctx context.Context, t *tenant, queue string, n int) error {
	const step = 1000
	for left := n; left > 0; left -= step {
		if err := s.appendSome(ctx, t, queue, min(left, step)); err != nil {
			return fmt.Errorf("append events: %w", err)
		}
	}
	return nil
}

func (s *stack) appendSome(ctx context.Context, t *tenant, queue string, n int) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	var head uint64
	if err := tx.QueryRowContext(ctx, "SELECT head FROM result_streams WHERE namespace_id = UNHEX(?) FOR UPDATE", t.namespace).Scan(&head); err != nil {
		return err
	}
	args := make([]any, 0, 6*n)
	for i := range n {
		args = append(args, t.namespace, head+uint64(i+1), orbit.NewID(), queue, orbit.NewID(), string(payload))
	}
	rows := strings.TrimSuffix(strings.Repeat(`(UNHEX(?), ?, UNHEX(?), UNHEX(?), 'task.succeeded', UNHEX(?), 3, UTC_TIMESTAMP(6), '{"state":"SUCCEEDED"}', ?),`, n), ",")
	if _, err := tx.ExecContext(ctx, `INSERT INTO result_events
  (namespace_id, sequence, id, queue_id, type, aggregate_id, aggregate_revision, occurred_at, details, snapshot) VALUES `+rows, args...); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE result_streams SET head = head + ? WHERE namespace_id = UNHEX(?)", n, t.namespace); err != nil {
		return err
	}
	return tx.Commit()
}
