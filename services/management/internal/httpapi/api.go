// Package httpapi is the management API over HTTP: strict at the door, one envelope, one place where
// a kind becomes a status. Handlers are two hops from a table: domain function, then store method.
package httpapi

import (
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/httpserver"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
)

// Defaults of Options.
const (
	DefaultTimeout     = 8 * time.Second // R2.4
	DefaultMaxInFlight = 256
)

// Options are what may differ between installations and in tests.
type Options struct {
	Timeout     time.Duration // of one request, DefaultTimeout when 0
	MaxInFlight int           // requests at once on this node, DefaultMaxInFlight when 0
	Admit       func() bool   // false refuses calls as UNAVAILABLE; nil admits all
	RunMoved    func()        // hears that a flow's run was started or moved; may be nil
}

// API serves the routes. It is safe for concurrent use.
type API struct {
	store   *store.Store
	log     *zap.Logger
	timeout time.Duration
	admit   func() bool
	moved   func()
	places  chan struct{}
	table   []route
	public  map[string]http.HandlerFunc // without credential or envelope
}

// New returns the handler of the whole listener: the API, its description and the health checks.
func New(s *store.Store, health *httpserver.Health, log *zap.Logger, o Options) http.Handler {
	return newAPI(s, log, o, routes()).engine(health)
}

func newAPI(s *store.Store, log *zap.Logger, o Options, table []route) *API {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = DefaultMaxInFlight
	}
	if o.Admit == nil {
		o.Admit = func() bool { return true }
	}
	if o.RunMoved == nil {
		o.RunMoved = func() {}
	}
	return &API{store: s, log: log, timeout: o.Timeout, admit: o.Admit, moved: o.RunMoved, places: make(chan struct{}, o.MaxInFlight), table: table}
}

func (a *API) engine(health *httpserver.Health) *gin.Engine {
	gin.SetMode(gin.ReleaseMode) // in debug mode it prints every route
	engine := gin.New()
	engine.RedirectTrailingSlash = false // a path has one spelling
	engine.HandleMethodNotAllowed = true
	engine.UseRawPath = true // %2F is not a slash
	a.register(engine)
	a.public = map[string]http.HandlerFunc{"/livez": health.Live, "/readyz": health.Ready, "/openapi.yaml": description, "/docs": docsHandler()}
	for path, handler := range a.public {
		engine.GET(path, gin.WrapF(handler))
		engine.HEAD(path, gin.WrapF(handler))
	}
	engine.NoRoute(a.unrouted)
	engine.NoMethod(a.unrouted)
	return engine
}

// register adds one gin route per method and pattern; routes that differ by verb share it.
func (a *API) register(engine *gin.Engine) {
	type key struct{ method, pattern string }
	byVerb := map[key]map[string]route{}
	for _, rt := range a.table {
		k := key{rt.method, rt.pattern()}
		if byVerb[k] == nil {
			byVerb[k] = map[string]route{}
		}
		byVerb[k][rt.verb()] = rt
	}
	for k, verbs := range byVerb {
		handler := a.byVerb(verbs)
		engine.Handle(k.method, k.pattern, handler)
		if k.method == http.MethodGet {
			engine.HEAD(k.pattern, handler) // net/http leaves the body out
		}
	}
}

// byVerb takes the verb off the last parameter, where the path ends in one, and serves its route.
func (a *API) byVerb(verbs map[string]route) gin.HandlerFunc {
	return func(g *gin.Context) {
		values := make([]string, len(g.Params))
		for i, p := range g.Params {
			values[i] = p.Value
		}
		verb := ""
		if last := len(values) - 1; strings.HasPrefix(path.Base(g.FullPath()), ":") {
			values[last], verb = cutVerb(values[last])
		} else if strings.HasSuffix(g.FullPath(), ":verb") {
			if rest, v := cutVerb(values[last]); rest == "" {
				verb = v
			}
			values = values[:last]
		}
		rt, ok := verbs[verb]
		if !ok {
			a.unrouted(g)
			return
		}
		a.serve(g, rt, values)
	}
}

// serve runs a call and writes exactly one answer and one log line for it, whatever happens.
func (a *API) serve(g *gin.Context, rt route, values []string) {
	c := &call{requestID: ids.New()}
	started := time.Now()
	var ans answer
	var err error
	var stack []byte
	func() {
		defer func() {
			if p := recover(); p != nil {
				stack = debug.Stack()
				err = errs.New(errs.Internal, "panic: %v", p)
			}
		}()
		ans, err = a.run(c, rt, values, g.Writer, g.Request)
	}()
	if err != nil {
		ans = answer{status: writeError(g.Writer, c.requestID, err)}
	} else {
		writeJSON(g.Writer, c.requestID, ans.status, envelope(c.requestID, ans.data))
	}
	a.logCall(g.Request.Method, rt.template, c, ans.status, time.Since(started), err, stack)
}

// unrouted answers a path or method that no route takes: OPTIONS tells the methods of a known path,
// another method there is 405 with Allow, and an unknown path is 404.
func (a *API) unrouted(g *gin.Context) {
	c, started := &call{requestID: ids.New()}, time.Now()
	status := a.answerUnrouted(g, c.requestID)
	a.logCall(g.Request.Method, "unmatched", c, status, time.Since(started), nil, nil)
}

func (a *API) answerUnrouted(g *gin.Context, request ids.ID) (status int) {
	methods := allowed(a.table, g.Request.URL.EscapedPath())
	if methods == nil && a.public[g.Request.URL.Path] != nil {
		methods = []string{http.MethodGet, http.MethodHead, http.MethodOptions}
	}
	switch {
	case methods == nil:
		return writeError(g.Writer, request, errs.New(errs.NotFound, "no such path in this API"))
	case g.Request.Method == http.MethodOptions:
		g.Writer.Header().Set("Allow", strings.Join(methods, ", "))
		g.Writer.Header().Set("Cache-Control", "no-store")
		g.Writer.Header().Set("X-Request-ID", request.String())
		g.Writer.WriteHeader(http.StatusNoContent)
		g.Writer.WriteHeaderNow()
		return http.StatusNoContent
	}
	g.Writer.Header().Set("Allow", strings.Join(methods, ", "))
	err := errs.New(errs.InvalidArgument, "method: this path takes %s", strings.Join(methods, ", "))
	writeJSON(g.Writer, request, http.StatusMethodNotAllowed, errorEnvelope(request, err))
	return http.StatusMethodNotAllowed
}

// writeError returns the status it wrote.
func writeError(w http.ResponseWriter, request ids.ID, err error) int {
	kind := errs.KindOf(err)
	if seconds, ok := retryAfter[kind]; ok {
		w.Header().Set("Retry-After", seconds)
	}
	if kind == errs.Unauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, request, statuses[kind], errorEnvelope(request, err))
	return statuses[kind]
}

func writeJSON(w http.ResponseWriter, request ids.ID, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Request-ID", request.String())
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that has gone is not a fault of ours
}
