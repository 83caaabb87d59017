package orbit

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"
)

// extend renews the leases of what earlier connections left here at once, and then of everything at a
// third of their length, until the connection ends or the server says that it cannot.
func (r *consumerRun) extend(conn *EventConn, leases []lease) {
	interval := conn.Welcome.LeaseDuration / 3
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for r.extendAll(conn, leases, interval) {
		select {
		case <-tick.C:
		case <-conn.Done():
			return
		}
		leases = r.crew.leases()
	}
}

// extendAll sends one event.extend per lease and waits for the answers; false: the server has no such
// command.
func (r *consumerRun) extendAll(conn *EventConn, leases []lease, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	supported := true
	for _, l := range leases {
		asked := time.Now()
		wait, err := conn.sock.send("event.extend", l.body("delivery_id"))
		if err != nil {
			break
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			switch _, err := wait(ctx); {
			case err == nil:
				r.crew.renewed(l.id, asked)
			case isClose(err):
			case errors.Is(err, ErrDeliveryLeaseLost):
				r.leaseLost(l, err)
			case errors.Is(err, ErrInvalidArgument):
				mu.Lock()
				supported = false
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return supported
}

// leaseLost stops a handler whose delivery has a newer lease elsewhere.
func (r *consumerRun) leaseLost(l lease, err error) {
	if r.crew.stop(l.id, l.epoch, ErrDeliveryLeaseLost) != nil {
		r.failed(l.id, err)
	}
}

// ackBatch sends acknowledgements in frames of up to 32. It returns false, and nothing is settled, when
// they are not all acknowledgements or the server has no such command.
func (r *consumerRun) ackBatch(ctx context.Context, s *socket, reports []*report) bool {
	if r.noBatch.Load() || slices.ContainsFunc(reports, func(o *report) bool { return o.typ != ackType }) {
		return false
	}
	for part := range slices.Chunk(reports, 32) {
		leases := make([]lease, len(part))
		for i, o := range part {
			leases[i] = o.lease
		}
		reply, err := s.call(ctx, "event.ack_batch", list("acks", "delivery_id", leases))
		if errors.Is(err, ErrInvalidArgument) && !isClose(err) {
			r.noBatch.Store(true)
			return false
		}
		r.settleBatch(ctx, s, part, reply, err)
	}
	return true
}

func (r *consumerRun) settleBatch(ctx context.Context, s *socket, part []*report, reply json.RawMessage, err error) {
	var body struct {
		Results []json.RawMessage `json:"results"`
	}
	if err == nil {
		err = json.Unmarshal(reply, &body)
	}
	if err == nil && len(body.Results) != len(part) {
		err = &Error{Code: ErrInternal, Message: "the batch was answered with another number of results"}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, o := range part {
		answer, failure := json.RawMessage(nil), err
		if err == nil {
			var item struct {
				Error *wireError `json:"error"`
			}
			answer, failure = body.Results[i], json.Unmarshal(body.Results[i], &item)
			if failure == nil {
				failure = item.Error.err()
			}
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			r.outbox.settle(ctx, s, o, answer, failure)
		}()
	}
}
