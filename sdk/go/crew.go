package orbit

import (
	"context"
	"slices"
	"sync"
	"time"
)

// job is one delivery or attempt that this process holds, waiting or running.
type job struct {
	run    func(ctx context.Context, j *job) // the handler and its report, in its own goroutine
	lapsed func()                            // the lease ran out before the job could start
	link   int                               // the number of the connection that brought it
	leased time.Duration                     // the lease's length
	since  time.Time                         // when the lease was last known to be whole, by the local monotonic clock

	// guarded by crew.mu
	lease   lease
	cancel  context.CancelCauseFunc // nil until started
	started bool                    // then it stays so
}

// crew runs jobs, at most size at a time, in order of arrival, and knows each until it has finished. It
// never starts a job whose lease has surely run out, nor a second one of the same id.
type crew struct {
	size    int
	working context.Context // once it has ended nothing more is started
	base    context.Context // parent of every handler's context
	changed *changes

	mu      sync.Mutex
	jobs    map[string]*job
	waiting []*job
	running int
	holding bool // as if working had ended
	wg      sync.WaitGroup
}

func newCrew(working, base context.Context, size int, changed *changes) *crew {
	return &crew{size: size, working: working, base: base, changed: changed, jobs: map[string]*job{}}
}

// add takes a job in. One that is known by id keeps running, or waiting, with the newer lease.
func (c *crew) add(j *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch old := c.jobs[j.lease.id]; {
	case old == nil:
		c.jobs[j.lease.id] = j
		c.waiting = append(c.waiting, j)
	case !newer(j.lease.epoch, old.lease.epoch):
	case old.started:
		old.lease = j.lease
	default:
		c.waiting[slices.Index(c.waiting, old)] = j
		c.jobs[j.lease.id] = j
	}
	c.dispatch()
}

// known reports whether the job is waiting or running.
func (c *crew) known(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jobs[id] != nil
}

// dispatch starts what there is room for.
func (c *crew) dispatch() {
	for !c.holding && c.working.Err() == nil && c.running < c.size && len(c.waiting) > 0 {
		j := c.waiting[0]
		c.waiting = c.waiting[1:]
		if time.Since(j.since) >= j.leased {
			delete(c.jobs, j.lease.id)
			c.wg.Add(1)
			go func() {
				defer c.wg.Done()
				j.lapsed()
			}()
			continue
		}
		ctx, cancel := context.WithCancelCause(c.base)
		j.started, j.cancel = true, cancel
		c.running++
		c.wg.Add(1)
		go func() {
			defer c.wg.Done()
			j.run(ctx, j)
			cancel(nil)
		}()
	}
}

// current returns the newest lease of a job.
func (c *crew) current(j *job) lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	return j.lease
}

// finish forgets a job that has reported and returns the newest lease it had.
func (c *crew) finish(j *job) lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.jobs, j.lease.id)
	c.running--
	c.dispatch()
	defer c.changed.notify()
	return j.lease
}

// stop cancels the handler of a running job; one that waits is forgotten. An epoch, unless "", must be the
// job's newest. It returns the job it stopped, or nil.
func (c *crew) stop(id string, epoch Counter, cause error) *job {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[id]
	if j == nil || epoch != "" && j.lease.epoch != epoch {
		return nil
	}
	if j.started {
		j.cancel(cause)
		return j
	}
	delete(c.jobs, id)
	c.waiting = slices.DeleteFunc(c.waiting, func(w *job) bool { return w == j })
	return j
}

// stopAll cancels every running handler.
func (c *crew) stopAll(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.jobs {
		if j.started {
			j.cancel(cause)
		}
	}
}

// hold starts nothing from now on.
func (c *crew) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holding = true
}

func (c *crew) held() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holding || c.working.Err() != nil
}

// rest returns when every handler that ctx and the drain have ended is gone; it does not wait for one
// that goes on.
func (c *crew) rest() {
	if c.busy() == 0 {
		c.wg.Wait()
	}
}

// takeWaiting forgets and returns the leases of the jobs that were not started.
func (c *crew) takeWaiting() []lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	var leases []lease
	for _, j := range c.waiting {
		leases = append(leases, j.lease)
		delete(c.jobs, j.lease.id)
	}
	c.waiting = nil
	return leases
}

// leases returns the newest lease of every job.
func (c *crew) leases() []lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []lease
	for _, j := range c.jobs {
		all = append(all, j.lease)
	}
	return all
}

// renewed notes that the job's lease was whole at a time.
func (c *crew) renewed(id string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if j := c.jobs[id]; j != nil {
		j.since = at
	}
}

// busy returns how many handlers run.
func (c *crew) busy() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// free returns how many jobs could be started now.
func (c *crew) free() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, c.size-len(c.jobs))
}

// idleBeside returns how many places neither a connection of this number and capacity can fill nor jobs
// of other connections hold.
func (c *crew) idleBeside(link, capacity int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	others := 0
	for _, j := range c.jobs {
		if j.link != link {
			others++
		}
	}
	return max(0, c.size-capacity-others)
}
