package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"
)

// report is something that the server must be told: an acknowledgement or an outcome.
type report struct {
	lease    lease
	typ      string
	body     []byte
	answered func(reply json.RawMessage, err error) // once, with the server's final word
	sent     bool                                   // on the current connection
}

// outbox holds every report until the server has answered it, over any number of connections.
type outbox struct {
	changed *changes
	batch   func(ctx context.Context, s *socket, reports []*report) bool // sends several at once; nil or false: one by one

	mu      sync.Mutex
	reports []*report // unanswered, oldest first; at most one per id
	wake    chan struct{}
}

// resendAfter is the wait before a report that was refused for a passing reason is sent again on a
// connection that stayed.
const resendAfter = time.Second

func newOutbox(changed *changes) *outbox {
	return &outbox{changed: changed, wake: make(chan struct{}, 1)}
}

// put adds a report, in the place of an older one of the same id.
func (o *outbox) put(r *report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reports = slices.DeleteFunc(o.reports, func(old *report) bool { return old.lease.id == r.lease.id })
	o.reports = append(o.reports, r)
	o.signal()
}

// holds reports whether a report of this id and type is unanswered.
func (o *outbox) holds(id, typ string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.reports, func(r *report) bool { return r.lease.id == id && r.typ == typ })
}

// unanswered returns the leases of all reports of a type.
func (o *outbox) unanswered(typ string) []lease {
	o.mu.Lock()
	defer o.mu.Unlock()
	var leases []lease
	for _, r := range o.reports {
		if r.typ == typ {
			leases = append(leases, r.lease)
		}
	}
	return leases
}

// empty reports whether everything was answered.
func (o *outbox) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.reports) == 0
}

// serve sends what is and becomes unanswered until the connection ends, and returns when every goroutine
// it started has ended.
func (o *outbox) serve(s *socket) {
	o.restart()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for {
		if ready := o.takeUnsent(); len(ready) > 0 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				o.send(ctx, s, ready)
			}()
		}
		select {
		case <-o.wake:
		case <-s.done:
			return
		}
	}
}

func (o *outbox) send(ctx context.Context, s *socket, ready []*report) {
	if len(ready) > 1 && o.batch != nil && o.batch(ctx, s, ready) {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, r := range ready {
		wait, err := s.send(r.typ, r.body)
		if err != nil {
			o.settle(ctx, s, r, nil, err)
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			reply, err := wait(ctx)
			o.settle(ctx, s, r, reply, err)
		}()
	}
}

// settle takes the answer of one report: a final word removes it, a passing refusal sends it again later,
// the end of the connection leaves it for the next.
func (o *outbox) settle(ctx context.Context, s *socket, r *report, reply json.RawMessage, err error) {
	var refused *Error
	switch {
	case err == nil || errors.As(err, &refused) && refused.settled() && !isClose(err):
		if o.wants(r, err == nil) {
			r.answered(reply, err) // before the removal: it may put another report in r's place
			o.remove(r, err == nil)
			o.changed.notify()
		}
	case refused != nil && !isClose(err):
		t := time.NewTimer(resendAfter)
		defer t.Stop()
		select {
		case <-t.C:
			o.again(r)
		case <-s.done:
		case <-ctx.Done():
		}
	}
}

// wants reports whether r's answer still matters: it was not replaced, or it settles what replaced it.
func (o *outbox) wants(r *report, success bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.reports, func(old *report) bool { return settles(r, old, success) })
}

func (o *outbox) remove(r *report, success bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reports = slices.DeleteFunc(o.reports, func(old *report) bool { return settles(r, old, success) })
}

// settles reports whether the answer of r is the last word on other: a success is, for every lease of the
// same id.
func settles(r, other *report, success bool) bool {
	return other == r || success && other.lease.id == r.lease.id && other.typ == r.typ
}

func (o *outbox) takeUnsent() []*report {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ready []*report
	for _, r := range o.reports {
		if !r.sent {
			r.sent = true
			ready = append(ready, r)
		}
	}
	return ready
}

// restart marks everything unsent, for a new connection.
func (o *outbox) restart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.reports {
		r.sent = false
	}
}

func (o *outbox) again(r *report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.sent = false
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// settled reports whether the server's refusal of a report is its final word.
func (e *Error) settled() bool {
	switch e.Code {
	case ErrInvalidArgument, ErrNotFound, ErrStateConflict, ErrDeliveryLeaseLost, ErrAttemptLeaseLost:
		return true
	}
	return false
}

func isClose(err error) bool {
	var closed *CloseError
	return errors.As(err, &closed)
}
