package orbit

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestBackoffIsFullJitterUnderACap(t *testing.T) {
	t.Parallel()
	b := Backoff{Min: 100 * time.Millisecond, Max: 3 * time.Second}
	ms := time.Millisecond
	for n, limit := range []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3000 * ms, 3000 * ms} {
		var low, high int
		for range 2000 {
			d := b.Delay(n)
			if d < 0 || d >= limit {
				t.Fatalf("retry %d waits %v, limit %v", n, d, limit)
			}
			if d < limit/4 {
				low++
			}
			if d >= limit*3/4 {
				high++
			}
		}
		if low < 300 || high < 300 { // 500 each are expected
			t.Errorf("retry %d is not spread evenly: %d in the lowest quarter, %d in the highest", n, low, high)
		}
	}
	if d := b.Delay(1 << 30); d >= b.Max {
		t.Errorf("a late retry waits %v", d)
	}
}

func TestHowSoonToComeBack(t *testing.T) {
	t.Parallel()
	b := Backoff{Min: time.Second, Max: 15 * time.Second}
	for name, c := range map[string]struct {
		err      error
		tries    int
		from, to time.Duration
	}{
		"a restart":            {&CloseError{Code: 1012}, 0, 0, 4 * time.Second},
		"one after the other":  {&CloseError{Code: 1012}, 5, 0, 15 * time.Second},
		"a first fault":        {&CloseError{Code: 1006}, 0, 0, time.Second},
		"a refusal with words": {&Error{Code: ErrUnavailable, RetryAfter: 5 * time.Second}, 0, 5 * time.Second, 6 * time.Second},
		"an absurd one":        {&Error{Code: ErrUnavailable, RetryAfter: time.Hour}, 0, time.Minute, time.Minute + time.Second},
		"any error":            {errors.New("refused"), 3, 0, 8 * time.Second},
	} {
		for range 1000 {
			if d := b.afterClose(c.err, c.tries); d < c.from || d >= c.to {
				t.Fatalf("%s: %v is outside %v…%v", name, d, c.from, c.to)
			}
		}
	}
}

func TestCounters(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint64{"0": 0, "9007199254740993": 9007199254740993, "18446744073709551615": 1<<64 - 1} {
		if n, err := ParseCounter(text); err != nil || n != want {
			t.Errorf("%s: %d %v", text, n, err)
		}
	}
	for _, text := range []string{"", "-1", "+1", "01", "1.0", "1e3", " 1", "18446744073709551616", "0x1", "1_000"} {
		if _, err := ParseCounter(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
	for _, c := range []struct {
		a, b Counter
		want bool
	}{{"10", "9", true}, {"9", "10", false}, {"7", "7", false}, {"18446744073709551615", "18446744073709551614", true}} {
		if newer(c.a, c.b) != c.want {
			t.Errorf("newer(%s, %s)", c.a, c.b)
		}
	}
}

func TestIDsAndKeys(t *testing.T) {
	t.Parallel()
	a := NewID()
	if !isID(a) || a[12] != '7' || !strings.ContainsRune("89ab", rune(a[16])) {
		t.Errorf("id %s", a)
	}
	if k := NewKey(); !isKey(k) || k == NewKey() {
		t.Errorf("key %s", k)
	}
}

func TestCloseCodes(t *testing.T) {
	t.Parallel()
	for code, is := range map[int]Code{4401: ErrUnauthenticated, 4403: ErrPermissionDenied, 4404: ErrNotFound} {
		if err := error(&CloseError{Code: code}); !errors.Is(err, is) || errors.Is(err, ErrInternal) {
			t.Errorf("%v is not %s", err, is)
		}
	}
	if err := error(&CloseError{Code: 4410, Reason: "EVENT_HISTORY_EXPIRED"}); !errors.Is(err, ErrEventHistoryExpired) || !final(err) {
		t.Error(err)
	}
}
