package background

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
)

// stepTimeout bounds one step, whatever the database does.
const stepTimeout = 15 * time.Second

// loop runs one step again and again: at once while it comes back with a full batch, else after its
// interval ± 20 %, so that replicas do not beat in time.
type loop struct {
	name  string
	every time.Duration
	batch int
	log   *zap.Logger
	step  func(ctx context.Context) (int, error)

	failing bool
}

// run returns when ctx has ended. A failure, a panic too, is logged when it begins and when it is
// over, and the loop goes on.
func (l *loop) run(ctx context.Context) {
	for {
		n, err := l.once(ctx)
		if ctx.Err() != nil {
			return
		}
		l.report(n, err)
		if n >= l.batch { // also when a part of it failed
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(jitter(l.every, rand.Float64())):
		}
	}
}

func (l *loop) once(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			n, err = 0, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return l.step(ctx)
}

func (l *loop) report(n int, err error) {
	switch {
	case err != nil && !l.failing:
		l.log.Error("background work fails and is tried again", zap.String("work", l.name), zap.Error(err))
	case err == nil && l.failing:
		l.log.Info("background work is back", zap.String("work", l.name))
	}
	l.failing = err != nil
	if n > 0 {
		l.log.Debug("background work", zap.String("work", l.name), zap.Int("rows", n))
	}
}

// jitter takes random in [0, 1).
func jitter(d time.Duration, random float64) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*random))
}
