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
	running sync.WaitGroup
}

// NewBatcher lets inFlight keys commit at once.
func NewBatcher[K comparable, T any](inFlight int, size func([]T) int, commit func(K, []T)) *Batcher[K, T] {
	return &Batcher[K, T]{slots: make(chan struct{}, inFlight), size: size, commit: commit, waiting: map[K][]T{}}
}

// Add queues items and returns at once. Callers bound what one connection has outstanding.
func (b *Batcher[K, T]) Add(key K, items ...T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting, working := b.waiting[key]
	b.waiting[key] = append(waiting, items...)
	if !working {
		b.running.Add(1)
		go b.work(key)
	}
}

func (b *Batcher[K, T]) work(key K) {
	defer b.running.Done()
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
		return nil
	}
	n := b.size(waiting)
	b.waiting[key] = waiting[n:]
	return waiting[:n:n]
}

// Wait returns when nothing is waiting; callers first see to it that nothing is added.
func (b *Batcher[K, T]) Wait() { b.running.Wait() }
