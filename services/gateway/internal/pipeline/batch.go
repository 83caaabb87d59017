package pipeline

import "sync"

// Batcher commits what has arrived, per key one batch at a time: a single item waits for nobody,
// and what arrives during a commit shares the next one.
type Batcher[K comparable, T any] struct {
	slots  chan struct{}
	size   func(waiting []T) int // how many of them make the next batch, at least 1
	commit func(key K, batch []T)

	mu      sync.Mutex
	waiting map[K][]T // a key is here exactly while a goroutine works for it
	idle    sync.Cond // waiting has become empty
}

// NewBatcher lets inFlight keys commit at once.
func NewBatcher[K comparable, T any](inFlight int, size func([]T) int, commit func(K, []T)) *Batcher[K, T] {
	b := &Batcher[K, T]{slots: make(chan struct{}, inFlight), size: size, commit: commit, waiting: map[K][]T{}}
	b.idle.L = &b.mu
	return b
}

// Add queues items and returns at once. Callers bound what one connection has outstanding.
func (b *Batcher[K, T]) Add(key K, items ...T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting, working := b.waiting[key]
	b.waiting[key] = append(waiting, items...)
	if !working {
		go b.work(key)
	}
}

func (b *Batcher[K, T]) work(key K) {
	for {
		b.slots <- struct{}{} // taken per batch, so that a busy key does not keep others out
		batch := b.take(key)
		if len(batch) > 0 {
			b.commit(key, batch)
		}
		<-b.slots
		if len(batch) == 0 {
			return
		}
	}
}

func (b *Batcher[K, T]) take(key K) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := b.waiting[key]
	if len(waiting) == 0 {
		delete(b.waiting, key)
		if len(b.waiting) == 0 {
			b.idle.Broadcast()
		}
		return nil
	}
	n := b.size(waiting)
	b.waiting[key] = waiting[n:]
	return waiting[:n:n]
}

// Wait returns at a moment when nothing is waiting or being committed. More may be added meanwhile,
// which a sync.WaitGroup would not allow.
func (b *Batcher[K, T]) Wait() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.waiting) > 0 {
		b.idle.Wait()
	}
}
