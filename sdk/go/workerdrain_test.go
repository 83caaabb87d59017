package orbit

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
)

// A drain begins by asking for no more; what came up to the answer and was not started is given back at
// once, while the handler still runs.
func TestWorkerDrains(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	started, finish := make(chan string, 4), make(chan struct{})
	var count atomic.Int32
	stop, ended := g.background(t, worker(g, func(_ context.Context, a *Assignment) (json.RawMessage, error) {
		count.Add(1)
		started <- a.Attempt.ID
		<-finish
		return nil, nil
	}).Run)
	p := g.open(t, testLease, testInterval)
	p.push("task.assign", assignBody(1, "1"))
	must(t, "start", started)
	p.push("task.assign", assignBody(2, "1"))
	stop()
	drain := p.next("worker.drain")
	p.push("task.assign", assignBody(3, "1")) // the last instant
	p.reply(drain, "ack", `{"draining":true}`)
	back := map[string]bool{}
	for range 2 {
		f := p.next("attempt.release")
		back[string(f.Body)] = true
		p.reply(f, "ack", outcomeBody(2, "QUEUED"))
	}
	for _, n := range []int{2, 3} {
		if !back[`{`+attemptMembers(n)+`}`] {
			t.Errorf("attempt %d was not given back: %v", n, back)
		}
	}
	p.bye(1012, "service restart") // the next connection is drained too, before anything else
	p = g.open(t, testLease, testInterval)
	for range 2 {
		switch f := p.read(); f.Type {
		case "worker.drain":
			p.reply(f, "ack", `{"draining":true}`)
		case "attempts.renew":
			p.reply(f, "ack", `{"attempts":[]}`)
		default:
			t.Errorf("got %s %s", f.Type, f.Body)
		}
	}
	close(finish)
	p.outcome(`attempt.complete {` + attemptMembers(1) + `}`)
	if code := p.closed(); code != 1000 {
		t.Errorf("close code %d", code)
	}
	if err := must(t, "end", ended); err != nil {
		t.Error(err)
	}
	if n := count.Load(); n != 1 {
		t.Errorf("%d were started", n)
	}
}
