package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

const shortLease = 5 * time.Second // the least that a queue may have

func (f *fleet) shortQueue(ctx context.Context, name string) string {
	f.t.Helper()
	q, err := f.client.CreateQueue(ctx, orbit.NewKey(), orbit.CreateQueueRequest{Name: name, LeaseDurationMS: shortLease.Milliseconds()})
	if err != nil {
		f.t.Fatal(err)
	}
	return q.Queue.ID
}

func (f *fleet) submit(ctx context.Context, queue string, n int, safety orbit.RetrySafety) {
	f.t.Helper()
	for ; n > 0; n -= 100 {
		tasks := make([]orbit.SubmitTaskRequest, min(n, 100))
		for i := range tasks {
			tasks[i] = orbit.SubmitTaskRequest{QueueID: queue, Input: json.RawMessage(`1`), RetrySafety: safety, MaxAttempts: 50}
		}
		if _, err := f.client.SubmitTasks(ctx, orbit.NewKey(), tasks); err != nil {
			f.t.Fatal(err)
		}
	}
}

// drop claims tasks of a queue and walks away, again and again: the sweepers have work.
func (f *fleet) drop(ctx context.Context, gateway, queue string) error {
	for ctx.Err() == nil {
		conn, err := orbit.DialWorker(ctx, orbit.WorkerOptions{URL: gateway, Token: f.vars["ORBIT_TOKEN"], QueueID: queue, Name: "dropper", Capacity: 8})
		if err != nil {
			if end, ok := ctx.Deadline(); ctx.Err() != nil || ok && !time.Now().Before(end) { // the socket's timer may be the first
				return nil
			}
			return err
		}
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		for err == nil {
			_, err = conn.Receive(short)
		}
		cancel()
		conn.Close()
	}
	return nil
}

// F3: a management replica that sweeps, and a gateway, are frozen in the middle of a transaction for longer
// than the leases. The others go on without them: everything succeeds while they are frozen. Thawed, they
// change nothing that was decided, and then do their share again.
func TestAFrozenReplicaIsFenced(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	queue := f.shortQueue(ctx, "frozen")
	sweeper := f.management("frozen_sweeper", "ORBIT_SWEEP_INTERVAL=10ms")
	gateway := f.gateway("frozen_gateway")

	var running sync.WaitGroup
	defer running.Wait()
	work, stopWork := context.WithCancel(ctx)
	defer stopWork()
	for i, url := range []string{f.vars["ORBIT_GATEWAY_URL"], gateway.url} {
		w := orbit.Worker{
			URL: url, Token: f.vars["ORBIT_TOKEN"], QueueID: queue, Name: fmt.Sprintf("w%d", i), Concurrency: 16, DrainTimeout: time.Second,
			Handler: func(context.Context, *orbit.Assignment) (json.RawMessage, error) {
				time.Sleep(20 * time.Millisecond)
				return json.RawMessage(`1`), nil
			},
		}
		running.Go(func() { _ = w.Run(work) }) // the frozen gateway's worker may run out of its drain
	}
	dropping, stopDropping := context.WithCancel(ctx)
	defer stopDropping()
	dropped := make(chan error, 1)
	go func() { dropped <- f.drop(dropping, f.vars["ORBIT_GATEWAY_URL"], queue) }()
	f.submit(ctx, queue, 600, orbit.Safe)
	total := 600
	lost := func() int { return f.count("SELECT COUNT(*) FROM attempts WHERE outcome = 'LOST'") }
	for _, victim := range []struct {
		name string
		p    *process
		user string
	}{{"management", sweeper.process, "frozen_sweeper"}, {"gateway", gateway.process, "frozen_gateway"}} {
		eventually(t, "attempts to be lost", func() bool { return lost() > 0 })
		f.submit(ctx, queue, 200, orbit.Safe)
		total += 200
		f.freezeIn(victim.p, victim.user)
		frozen, swept := time.Now(), lost()
		f.submit(ctx, queue, 50, orbit.Safe)
		total += 50
		eventually(t, "others to sweep", func() bool { return lost() > swept && time.Since(frozen) > shortLease+2*time.Second })
		if victim.name == "gateway" {
			stopDropping()
			if err := <-dropped; err != nil {
				t.Error(err)
			}
			eventually(t, "everything to succeed without it", func() bool { return f.count("SELECT COUNT(*) FROM tasks WHERE state = 'SUCCEEDED'") == total })
		}
		t.Logf("%s was frozen for %s", victim.name, time.Since(frozen).Round(time.Millisecond))
		victim.p.signal(syscall.SIGCONT)
	}
	for _, s := range []*service{sweeper, gateway} {
		s.awaitReady()
	}
	f.submit(ctx, queue, 100, orbit.Safe)
	total += 100
	eventually(t, "everything to succeed", func() bool { return f.count("SELECT COUNT(*) FROM tasks WHERE state = 'SUCCEEDED'") == total })
	stopWork()
	running.Wait()
	sweeper.stop()
	gateway.stop()
	if lost() == 0 || f.count("SELECT COUNT(*) FROM tasks") != total {
		t.Error("nothing was lost, or there are more tasks than were submitted")
	}
	f.checkAtRest()
	t.Logf("%d tasks, %d attempts lost", total, lost())
}

// A worker frozen past its leases comes back and completes all that it held: what was leased again answers
// ATTEMPT_LEASE_LOST and changes nothing, what was not is accepted.
func TestAFrozenWorkerIsFenced(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	queue := f.shortQueue(ctx, "late")
	const held, again = 20, 12
	f.submit(ctx, queue, held, orbit.Safe)
	p := f.worker("late", f.vars["ORBIT_GATEWAY_URL"], queue, fmt.Sprintf("ORBIT_E2E_HOLD=%d", held))
	eventually(t, "the worker to hold its tasks", func() bool { return len(p.said("holding")) == held && len(p.said("drained")) > 0 })
	p.signal(syscall.SIGSTOP)
	eventually(t, "its leases to be swept", func() bool { return f.count("SELECT COUNT(*) FROM attempts WHERE outcome = 'LOST'") == held })

	options := orbit.WorkerOptions{URL: f.vars["ORBIT_GATEWAY_URL"], Token: f.vars["ORBIT_TOKEN"], QueueID: queue, Name: "second", Capacity: again}
	conn, err := orbit.DialWorker(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var second []*orbit.Assignment
	for range again {
		a, err := conn.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		second = append(second, a)
	}
	if err := conn.Drain(ctx); err != nil { // its places become free, and the rest must stay
		t.Fatal(err)
	}
	var leased []string
	for i, a := range second {
		leased = append(leased, a.Task.ID)
		if i%2 == 0 { // half were decided before the thaw, half are running
			if _, err := conn.Complete(ctx, a.Proof(), json.RawMessage(`"second"`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.signal(syscall.SIGCONT)
	if _, err := io.WriteString(p.stdin, "go on\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("the late worker did not end")
	}
	if p.err != nil {
		t.Error(p.err)
	}
	for i, a := range second {
		if i%2 == 1 {
			if _, err := conn.Complete(ctx, a.Proof(), json.RawMessage(`"second"`)); err != nil {
				t.Errorf("the newer attempt: %v", err)
			}
		}
	}
	lost, accepted := p.said("lost"), p.said("accepted")
	slices.Sort(lost)
	slices.Sort(leased)
	if !slices.Equal(lost, leased) || len(accepted) != held-again {
		t.Errorf("lost %d, want the %d that were leased again; accepted %d", len(lost), again, len(accepted))
	}
	for _, id := range accepted {
		if task, err := f.client.GetTask(ctx, id); err != nil || task.State != "SUCCEEDED" || string(task.Result) != `"late"` || task.Attempts != 1 {
			t.Errorf("accepted late: %+v, %v", task, err)
		}
	}
	for _, id := range lost {
		if task, err := f.client.GetTask(ctx, id); err != nil || task.State != "SUCCEEDED" || string(task.Result) != `"second"` || task.Attempts != 2 {
			t.Errorf("leased again: %+v, %v", task, err)
		}
	}
	f.checkAtRest()
}
