package background

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/logging"
)

// play runs a loop in a bubble of fake time and returns what it logged.
func play(t *testing.T, how time.Duration, every time.Duration, batch int, step func(call int) (int, error)) (calls int, log string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		logger, err := logging.NewTo(&buf, "debug", "json")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(context.Background(), how)
		defer stop()
		var n atomic.Int64
		l := &loop{name: "test", every: every, batch: batch, log: logger, step: func(context.Context) (int, error) { return step(int(n.Add(1))) }}
		l.run(ctx) // returns only when it has stopped
		calls, log = int(n.Load()), buf.String()
	})
	return calls, log
}

func TestALoopRunsAtItsIntervalAndNoOther(t *testing.T) {
	t.Parallel()
	calls, log := play(t, 100*time.Second, time.Second, 10, func(int) (int, error) { return 0, nil })
	if calls < 80 || calls > 126 { // ± 20 %
		t.Errorf("%d steps in 100 s", calls)
	}
	if log != "" {
		t.Errorf("an idle loop logs %s", log)
	}
}

func TestALoopDrainsWhatItFinds(t *testing.T) {
	t.Parallel()
	calls, _ := play(t, 500*time.Millisecond, time.Second, 10, func(call int) (int, error) {
		if call <= 7 {
			return 10, nil
		}
		return 3, nil
	})
	if calls != 8 {
		t.Errorf("%d steps; seven full batches and what was left, without a pause", calls)
	}
}

// TestAFailureIsLoggedOncePerChange, a panic like any other, and never ends the loop.
func TestAFailureIsLoggedOncePerChange(t *testing.T) {
	t.Parallel()
	calls, log := play(t, 60*time.Second, time.Second, 10, func(call int) (int, error) {
		switch {
		case call <= 10 || call > 30 && call <= 35:
			return 0, errors.New("away")
		case call > 20 && call <= 25:
			panic("inside")
		}
		return 0, nil
	})
	if calls < 40 {
		t.Errorf("only %d steps", calls)
	}
	if fails, back := strings.Count(log, "fails and is tried again"), strings.Count(log, "is back"); fails != 3 || back != 3 {
		t.Errorf("%d failures and %d returns are logged: %s", fails, back, log)
	}
	if !strings.Contains(log, "panic: inside") {
		t.Errorf("the panic is not logged: %s", log)
	}
}

func TestAStepHasADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logger, err := logging.NewTo(&bytes.Buffer{}, "error", "json")
		if err != nil {
			t.Fatal(err)
		}
		l := &loop{log: logger, step: func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }}
		begun := time.Now()
		if _, err := l.once(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != stepTimeout {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
	})
}
