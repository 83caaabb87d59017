// Package console is the operator's page: what waits, runs and is behind, at a glance. It reads only;
// everything that changes something goes through the API.
package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"html/template"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// User is the name that goes with the console's password.
const User = "orbit"

// Path is where the console is served.
const Path = "/console"

//go:embed page.html
var source string

var page = template.Must(template.New("console").Funcs(template.FuncMap{
	"percent": func(n, of int) int { return min(100*n/max(of, 1), 100) },
	"count": func(n int) any {
		if n >= store.CountLimit {
			return "10 000+"
		}
		return n
	},
}).Parse(source))

// Console is an http.Handler behind HTTP Basic authentication.
type Console struct {
	store  *store.Store
	digest [32]byte
	log    *zap.Logger
}

// New serves to whoever knows the password.
func New(s *store.Store, password string, log *zap.Logger) *Console {
	return &Console{store: s, digest: sha256.Sum256([]byte(password)), log: log}
}

const timeout = 5 * time.Second

// ServeHTTP answers GET with the page, 401 without the password.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the console only reads", http.StatusMethodNotAllowed)
		return
	}
	if !c.knows(r) {
		h.Set("WWW-Authenticate", `Basic realm="Orbit console", charset="UTF-8"`)
		http.Error(w, "the user is orbit, the password ORBIT_CONSOLE_PASSWORD", http.StatusUnauthorized)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	var text []byte
	var err error
	if strings.HasPrefix(r.URL.Path, Path+"/") {
		text, err = c.renderRun(ctx, r.URL.Path)
	} else {
		text, err = c.render(ctx)
	}
	if errs.Is(err, errs.NotFound) {
		http.Error(w, errs.MessageOf(err), http.StatusNotFound)
		return
	}
	if err != nil {
		c.log.Warn("console page failed", zap.Error(err))
		http.Error(w, "the database did not answer; the server log has the reason", http.StatusServiceUnavailable)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(text) // the browser may have gone
}

// knows compares digests, so that the time taken tells nothing of the password.
func (c *Console) knows(r *http.Request) bool {
	user, password, ok := r.BasicAuth()
	digest := sha256.Sum256([]byte(password))
	return ok && user == User && subtle.ConstantTimeCompare(digest[:], c.digest[:]) == 1
}

func (c *Console) render(ctx context.Context) ([]byte, error) {
	queues, err := c.store.QueueOverviews(ctx)
	if err != nil {
		return nil, err
	}
	subscriptions, err := c.store.SubscriptionOverviews(ctx)
	if err != nil {
		return nil, err
	}
	runs, err := c.store.RunOverviews(ctx)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = page.Execute(&b, map[string]any{"Queues": queues, "Subscriptions": subscriptions, "Runs": runs, "Home": Path, "At": time.Now().UTC().Format(time.RFC3339)})
	return b.Bytes(), err
}
