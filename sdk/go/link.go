package orbit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrDrainTimeout is why Run ended when handlers or answers outlasted DrainTimeout; it is also the cause
// with which handlers that still run at that time are cancelled.
var ErrDrainTimeout = errors.New("orbit: the drain took longer than its limit")

// ErrDraining is the cause with which DrainRelease cancels running handlers.
var ErrDraining = errors.New("orbit: the consumer is stopping")

// StopError is why a Run ended otherwise than by a complete drain. Cause is a *CloseError or *Error that
// another connection cannot change, or ErrDrainTimeout.
type StopError struct {
	Cause   error
	Unacked []Proof // Consumer only: handled, but not known to be acknowledged; save them for Consumer.Proofs
}

// Error names the cause.
func (e *StopError) Error() string {
	if len(e.Unacked) > 0 {
		return fmt.Sprintf("orbit: stopped with %d unacknowledged: %v", len(e.Unacked), e.Cause)
	}
	return fmt.Sprintf("orbit: stopped: %v", e.Cause)
}

// Unwrap returns the cause.
func (e *StopError) Unwrap() error { return e.Cause }

var (
	errDrained = errors.New("drained")
	errResize  = errors.New("reconnecting with the full capacity")
)

const (
	lasting    = 5 * time.Second // a connection that lived so long starts the back-off anew
	flushGrace = time.Second     // for cancelled handlers to report after DrainTimeout
)

// session is one connection of a link.
type session struct {
	sock      *socket
	number    int
	capacity  int
	heartbeat time.Duration
	close     func()                // says goodbye; returns when the connection has ended
	receive   func(context.Context) // adds what arrives to the crew until the connection has ended
	renew     func()                // renews leases until the connection has ended
	release   func(leases []lease) (wait func())
	drain     func(context.Context) error // nil is returned when nothing more comes; nil: not to be said
}

// link keeps one connection up for a crew and its outbox: it dials with what the crew can start, dials
// again with back-off, sends again what was not answered, and drains.
type link struct {
	crew    *crew
	outbox  *outbox
	changed *changes
	backoff Backoff
	drain   time.Duration
	// interrupt cancels running handlers as soon as the drain begins.
	interrupt bool
	dial      func(ctx context.Context, number, capacity int) (*session, error)
	lost      func(err error) // a connection ended or was refused

	drained chan struct{} // closed when ctx was done and nothing runs or is unanswered
}

// run returns nil after a complete drain, or why it ended.
func (l *link) run(ctx context.Context) error {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	l.drained = make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		l.watchDrain(ctx, life, end)
	}()
	err := l.connect(ctx, life)
	if err != nil && life.Err() == nil {
		l.letFinish(life)
	}
	end(nil)
	<-watched
	l.crew.rest()
	return err
}

// connect dials until it is drained, refused for good, or out of time.
func (l *link) connect(ctx, life context.Context) error {
	dialing, cancel := context.WithCancel(life)
	defer cancel()
	go func() {
		select {
		case <-l.drained:
			cancel()
		case <-dialing.Done():
		}
	}()
	for tries, number := 0, 1; ; number++ {
		s, err := l.dial(dialing, number, max(1, l.crew.free()))
		if err == nil {
			began := time.Now()
			err = l.session(life, s)
			if time.Since(began) >= lasting {
				tries = 0
			}
		}
		switch {
		case errors.Is(err, errDrained) || l.isDrained():
			return nil
		case life.Err() != nil:
			return context.Cause(life)
		case errors.Is(err, errResize):
			l.awaitIdle(life, time.Second) // so that the next can ask for every place
			continue
		}
		l.lost(err)
		if final(err) {
			return err
		}
		_ = sleep(dialing, l.backoff.afterClose(err, tries))
		tries++
	}
}

// session serves one connection until it ends, the drain is complete, or a better one can be had.
func (l *link) session(life context.Context, s *session) error {
	var wg sync.WaitGroup
	receiving, cancel := context.WithCancel(life)
	received, retired := make(chan struct{}), make(chan struct{})
	parts := []func(){
		func() { defer close(received); s.receive(receiving) },
		func() { defer close(retired); l.retire(s, func() { cancel(); <-received }) },
		s.renew,
		func() { l.outbox.serve(s.sock) },
	}
	for _, part := range parts {
		wg.Add(1)
		go func() {
			defer wg.Done()
			part()
		}()
	}
	defer func() {
		s.close()
		wg.Wait()
		cancel()
	}()
	tick := time.NewTicker(s.heartbeat)
	defer tick.Stop()
	for {
		changed := l.changed.wait()
		idle := l.crew.idleBeside(s.number, s.capacity) > 0 && !l.crew.held()
		if idle && l.crew.busy() == 0 && l.outbox.empty() {
			return errResize
		}
		select {
		case <-s.sock.done:
			return s.sock.err
		case <-l.drained:
			<-retired // in writeLimit
			l.giveBack(s)
			return errDrained
		case <-life.Done():
			l.giveBack(s)
			return context.Cause(life)
		case <-tick.C:
			if idle {
				return errResize
			}
		case <-changed:
		}
	}
}

// retire has the server send nothing more once nothing more is started here, and then gives back at once
// what waits: others can run it while the handlers here finish. arrived returns when all that came before
// the server's answer is in the crew. An older server refuses, and giveBack does what can be done.
func (l *link) retire(s *session, arrived func()) {
	if s.drain == nil {
		return
	}
	select {
	case <-l.crew.working.Done():
	case <-s.sock.done:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeLimit)
	defer cancel()
	if s.drain(ctx) != nil {
		return
	}
	arrived()
	if s.release != nil {
		if leases := l.crew.takeWaiting(); len(leases) > 0 {
			s.release(leases)()
		}
	}
}

// giveBack releases what was never started. A server that was not drained may send more while it answers,
// so the second round's frames go out just before the close.
func (l *link) giveBack(s *session) {
	if s.release == nil {
		return
	}
	if leases := l.crew.takeWaiting(); len(leases) > 0 {
		s.release(leases)()
	}
	if leases := l.crew.takeWaiting(); len(leases) > 0 {
		s.release(leases)
	}
}

// watchDrain waits for ctx, then for quiet, and ends life when that takes too long.
func (l *link) watchDrain(ctx, life context.Context, end context.CancelCauseFunc) {
	select {
	case <-ctx.Done():
	case <-life.Done():
		return
	}
	if l.interrupt {
		l.crew.stopAll(ErrDraining)
	}
	limit := time.NewTimer(l.drain)
	defer limit.Stop()
	cancelled := false
	for {
		changed := l.changed.wait()
		if l.crew.busy() == 0 && l.outbox.empty() {
			close(l.drained)
			return
		}
		select {
		case <-changed:
		case <-life.Done():
			return
		case <-limit.C:
			if cancelled {
				end(ErrDrainTimeout)
				return
			}
			cancelled = true
			l.crew.stopAll(ErrDrainTimeout)
			limit.Reset(flushGrace)
		}
	}
}

// letFinish gives running handlers up to DrainTimeout after the connection was refused for good: they
// may still save what they do, though it cannot be reported.
func (l *link) letFinish(life context.Context) {
	l.crew.hold()
	l.awaitIdle(life, l.drain)
	if l.crew.busy() > 0 {
		l.crew.stopAll(ErrDrainTimeout)
		l.awaitIdle(life, flushGrace)
	}
}

// awaitIdle waits until no handler runs, for at most limit.
func (l *link) awaitIdle(life context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(life, limit)
	defer cancel()
	for {
		changed := l.changed.wait()
		if l.crew.busy() == 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (l *link) isDrained() bool {
	select {
	case <-l.drained:
		return true
	default:
		return false
	}
}
