package orbit

import (
	"context"
	"sync"
)

// mailbox holds what the reader received until somebody takes it. It never blocks the reader, so that a
// slow receiver does not delay answers; its size is bounded by the capacity that hello asked for.
type mailbox[T any] struct {
	mu    sync.Mutex
	items []T
	ready chan struct{} // holds a token while items may be there
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{ready: make(chan struct{}, 1)} }

// put adds an item, in the place of one that same says it replaces.
func (m *mailbox[T]) put(item T, same func(T) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.items {
		if same(m.items[i]) {
			m.items[i] = item
			return
		}
	}
	m.items = append(m.items, item)
	m.signal()
}

// take returns the oldest item. After the socket ended it first returns what is left, then the socket's
// error.
func (m *mailbox[T]) take(ctx context.Context, s *socket) (T, error) {
	for {
		if item, ok := m.pop(); ok {
			return item, nil
		}
		select {
		case <-m.ready:
		case <-ctx.Done():
			var none T
			return none, context.Cause(ctx)
		case <-s.done:
			if item, ok := m.pop(); ok {
				return item, nil
			}
			var none T
			return none, s.err
		}
	}
}

func (m *mailbox[T]) pop() (T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.items) == 0 {
		var none T
		return none, false
	}
	item := m.items[0]
	m.items = m.items[1:]
	if len(m.items) > 0 {
		m.signal()
	}
	return item, true
}

func (m *mailbox[T]) signal() {
	select {
	case m.ready <- struct{}{}:
	default:
	}
}
