package task

import (
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/result"
)

// The contract's rules about the table as a whole (R8.3).
func TestEveryCellOfTheTable(t *testing.T) {
	t.Parallel()
	arrivals := map[State]result.Type{
		Succeeded: result.TaskSucceeded, Failed: result.TaskFailed, Cancelled: result.TaskCancelled, NeedsReview: result.TaskNeedsReview,
	}
	allowed := 0
	for _, from := range States {
		for _, c := range Commands {
			m, ok := Next(from, c)
			if !ok {
				continue
			}
			allowed++
			if from.Final() {
				t.Errorf("%s leaves the final state %s", c, from)
			}
			if want, arrives := arrivals[m.To]; arrives && m.Event != want {
				t.Errorf("%s from %s arrives at %s with event %q, want %q", c, from, m.To, m.Event, want)
			}
			if m.To == Queued && c != Release && m.Event != result.TaskRequeued {
				t.Errorf("%s from %s goes back to the queue with event %q", c, from, m.Event)
			}
			if m.To == Running && m.Event != "" {
				t.Errorf("%s from %s appends %q without an outcome", c, from, m.Event)
			}
		}
	}
	if allowed != 4+10+3 {
		t.Errorf("%d cells are allowed, the drawing has 17", allowed)
	}
	if _, ok := Next(Queued, ConfirmCancel); ok {
		t.Error("a task that runs nowhere cannot be cancelled by a worker")
	}
}

func TestLostAttempts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		safety        RetrySafety
		attempts, max int
		cancel        bool
		want          Command
	}{
		{Safe, 1, 3, false, LoseRequeue},
		{Safe, 2, 3, false, LoseRequeue},
		{Safe, 3, 3, false, LoseFail},
		{Safe, 1, 3, true, LoseCancel},
		{Safe, 3, 3, true, LoseCancel},
		{Unsafe, 1, 3, false, LoseUncertain},
		{Unsafe, 3, 3, false, LoseUncertain},
		{Unsafe, 1, 3, true, LoseUncertain},
	} {
		if got := LoseCommand(c.safety, c.attempts, c.max, c.cancel); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestFailedAttempts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		retryable     bool
		attempts, max int
		cancel        bool
		want          Command
	}{
		{true, 1, 3, false, FailRetryable},
		{true, 3, 3, false, FailFinal},
		{false, 1, 3, false, FailFinal},
		{true, 1, 3, true, FailFinal},
	} {
		if got := FailCommand(c.retryable, c.attempts, c.max, c.cancel); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestBackoffGrowsWithinBounds(t *testing.T) {
	t.Parallel()
	for n, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 10: 512 * time.Second, 11: 10 * time.Minute, 1000: 10 * time.Minute} {
		if got := Backoff(n, 0); got != most {
			t.Errorf("attempt %d: at most %s, want %s", n, got, most)
		}
		if got := Backoff(n, 0.999999); got < most/2 || got > most/2+time.Second {
			t.Errorf("attempt %d: at least %s, want about %s", n, got, most/2)
		}
	}
}
