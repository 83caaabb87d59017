package httpserver

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// checkTimeout bounds one readiness check, whatever the database does.
const checkTimeout = 2 * time.Second

// Health answers the probes of an orchestrator: Live at /livez, Ready at /readyz. They need no
// credential and tell nothing but whether.
type Health struct {
	stopping <-chan struct{}
	check    func(ctx context.Context) error
}

// NewHealth is ready while check returns nil within 2 s and until ctx, the service's own, ends.
func NewHealth(ctx context.Context, check func(ctx context.Context) error) *Health {
	return &Health{stopping: ctx.Done(), check: check}
}

// Live answers 200 as long as the process serves at all. It never asks the database, so that an
// outage of it restarts nothing.
func (h *Health) Live(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "live") }

// Ready answers 200, or 503 with Retry-After while the check fails or the service is stopping.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request) {
	select {
	case <-h.stopping:
		notReady(w, "stopping")
		return
	default:
	}
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- h.check(ctx) }()
	select {
	case err := <-result:
		if err != nil {
			notReady(w, "not ready")
			return
		}
		answer(w, http.StatusOK, "ready")
	case <-ctx.Done(): // a check that does not watch its context must not hold the probe
		notReady(w, "not ready")
	}
}

// Register adds both probes to a mux.
func (h *Health) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", h.Live)
	mux.HandleFunc("GET /readyz", h.Ready)
}

func notReady(w http.ResponseWriter, status string) {
	w.Header().Set("Retry-After", "1")
	answer(w, http.StatusServiceUnavailable, status)
}

func answer(w http.ResponseWriter, code int, status string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": status}) // the prober may be gone
}
