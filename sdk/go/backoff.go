package orbit

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Backoff is exponential back-off with full jitter: the wait before retry n (from 0) is uniform in
// [0, min(Max, Min·2ⁿ)), so that many clients that lost the same server do not return together.
// The zero value means the default of the place it is used in.
type Backoff struct {
	Min time.Duration
	Max time.Duration
}

// Delay draws the wait before retry n.
func (b Backoff) Delay(n int) time.Duration { return jitter(b.ceiling(n)) }

func (b Backoff) ceiling(n int) time.Duration {
	limit := b.Min
	for ; n > 0 && limit < b.Max; n-- {
		limit *= 2
	}
	return min(limit, b.Max)
}

func (b Backoff) orDefault(d Backoff) Backoff {
	if b.Min <= 0 {
		b.Min = d.Min
	}
	if b.Max <= 0 {
		b.Max = max(d.Max, b.Min)
	}
	return b
}

// afterClose draws the wait before connecting again when the connection ended, or was refused, with err;
// tries counts the connections that did not last. A node that restarts sends its clients elsewhere at
// once, spread over four times Min.
func (b Backoff) afterClose(err error, tries int) time.Duration {
	var closed *CloseError
	if tries == 0 && errors.As(err, &closed) && closed.Code == CloseServiceRestart {
		return jitter(min(4*b.Min, b.Max))
	}
	var refused *Error
	if errors.As(err, &refused) && refused.RetryAfter > 0 {
		return min(refused.RetryAfter, maxRetryAfter) + b.Delay(tries)
	}
	return b.Delay(tries)
}

// maxRetryAfter bounds what a server may ask of a client.
const maxRetryAfter = 60 * time.Second

func jitter(limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	return time.Duration(rand.Int64N(int64(limit)))
}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
