package background

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// How often the logs of flows are looked at, all of them in one query: often while events arrive, less
// while runs only wait, and seldom when no run is live, to find those that another replica has started.
const (
	flowActive    = 5 * time.Millisecond
	flowWaiting   = 20 * time.Millisecond
	flowIdle      = time.Second
	flowActiveFor = time.Second

	flowTurns   = 20 // windows of one namespace's log before the others have their turn
	quotaEvery  = 250 * time.Millisecond
	quotaBatch  = 200
	flowTimeout = 15 * time.Second
)

// flows moves runs forward as the log tells of their tasks.
type flows struct {
	store *store.Store
	log   *zap.Logger
	poke  chan struct{}

	moved   time.Time // when events last arrived
	rested  time.Time // when namespaces without live runs were last let go
	looked  time.Time // when runs that wait for room were last looked at
	failing bool
}

func newFlows(s *store.Store, log *zap.Logger) *flows {
	return &flows{store: s, log: log, poke: make(chan struct{}, 1)}
}

// hint has the loop look at once: this process has just started or moved a run.
func (f *flows) hint() {
	select {
	case f.poke <- struct{}{}:
	default:
	}
}

// run returns when ctx has ended. A failure is logged when it begins and when it is over.
func (f *flows) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause, err := f.once(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && !f.failing:
			f.log.Error("flows do not move and are tried again", zap.Error(err))
		case err == nil && f.failing:
			f.log.Info("flows move again")
		}
		if f.failing = err != nil; f.failing {
			pause = flowIdle
		}
		select {
		case <-ctx.Done():
		case <-f.poke:
		case <-time.After(pause):
		}
	}
}

// once looks at all logs and says how long to wait before the next time.
func (f *flows) once(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, flowTimeout)
	defer cancel()
	now := time.Now()
	lags, err := f.store.FlowLags(ctx)
	if err != nil {
		return 0, err
	}
	if len(lags) == 0 {
		return flowIdle, nil
	}
	passed, err := f.follow(ctx, lags)
	if passed > 0 {
		f.moved = now
	}
	if err != nil {
		return 0, err
	}
	if now.Sub(f.looked) >= quotaEvery {
		n, err := f.store.SubmitWaiting(ctx, quotaBatch)
		if err != nil {
			return 0, err
		}
		if n < quotaBatch {
			f.looked = now
		}
	}
	if now.Sub(f.rested) >= flowIdle {
		if _, err := f.store.RestFlows(ctx); err != nil {
			return 0, err
		}
		f.rested = now
	}
	if now.Sub(f.moved) < flowActiveFor {
		return flowActive, nil
	}
	return flowWaiting, nil
}

// follow lets every namespace that is behind catch up, several at a time; a failure of one does not
// hold the others.
func (f *flows) follow(ctx context.Context, lags []store.FlowLag) (passed int, err error) {
	var mu sync.Mutex
	var running sync.WaitGroup
	slots := make(chan struct{}, flowNamespaces)
	for _, lag := range lags {
		if lag.Head <= lag.Cursor {
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			n, failed := f.catchUp(ctx, lag)
			mu.Lock()
			defer mu.Unlock()
			passed += n
			if failed != nil {
				err = failed
			}
		})
	}
	running.Wait()
	return passed, err
}

// flowNamespaces is how many namespaces one process moves at once.
const flowNamespaces = 4

func (f *flows) catchUp(ctx context.Context, lag store.FlowLag) (passed int, err error) {
	for range flowTurns {
		n, err := f.store.FollowLog(ctx, lag)
		passed += n
		lag.Cursor += uint64(n)
		if err != nil || n == 0 || lag.Cursor >= lag.Head {
			return passed, err
		}
	}
	return passed, nil
}
