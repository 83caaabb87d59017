package pipeline

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// Watched is a connection that lives as long as its credential lets it.
type Watched struct {
	Secret store.SecretKey
	// Check gets the credential as it is now, nil when it is revoked. It must not block.
	Check func(caller *access.Caller)
}

// Watch re-checks the credentials of all connections, in one query for all (§4: within 2 s).
type Watch struct {
	store *store.Store
	log   *zap.Logger

	mu      sync.Mutex
	watched map[ids.ID]Watched // by session
}

// NewWatch watches nobody yet.
func NewWatch(s *store.Store, log *zap.Logger) *Watch {
	return &Watch{store: s, log: log, watched: map[ids.ID]Watched{}}
}

// Add begins watching a session.
func (w *Watch) Add(session ids.ID, watched Watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched[session] = watched
}

// Remove ends it.
func (w *Watch) Remove(session ids.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watched, session)
}

// Run checks once a watchEvery until ctx ends; for sockets that have no scanner to do it.
func (w *Watch) Run(ctx context.Context) error {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			w.CheckAll(ctx)
		}
	}
}

// CheckAll asks for every watched credential and tells its connections. While the database is away
// nothing is known and nobody is closed for it.
func (w *Watch) CheckAll(ctx context.Context) {
	w.mu.Lock()
	watched := make([]Watched, 0, len(w.watched))
	secrets := make(map[store.SecretKey]bool, len(w.watched))
	for _, one := range w.watched {
		watched = append(watched, one)
		secrets[one.Secret] = true
	}
	w.mu.Unlock()
	if len(watched) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	callers, err := w.store.CallersOf(ctx, secrets)
	if err != nil {
		if !errs.Is(err, errs.Unavailable) {
			w.log.Error("credentials could not be re-checked", zap.Error(err))
		}
		return
	}
	for _, one := range watched {
		one.Check(callers[one.Secret])
	}
}
