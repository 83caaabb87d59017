// Package httpserver runs an HTTP server with limits on every wait, from its context's start to a
// graceful end, and answers the health checks of both services.
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Limits that hold for every connection. A connection that a handler has taken over (a WebSocket)
// is bound by none of them and keeps its own.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 20 * time.Second // header and body
	writeTimeout      = 30 * time.Second // from the end of the header to the end of the answer
	idleTimeout       = 75 * time.Second
	maxHeaderBytes    = 32 << 10
)

// Options are the parts that differ between servers.
type Options struct {
	// Grace is how long requests in flight may go on after ctx has ended; 0 means 10 s.
	Grace time.Duration
	// ErrorLog gets what net/http says about single connections; nil discards it.
	ErrorLog *log.Logger
}

// Run serves l until ctx ends, then takes no new connection and waits for requests in flight; what
// is left after the grace is cut off and reported. It returns once the server has stopped, nil
// after a clean end. Requests are not cancelled by ctx. Connections that handlers took over are
// theirs to close.
func Run(ctx context.Context, l net.Listener, h http.Handler, o Options) error {
	if o.Grace == 0 {
		o.Grace = 10 * time.Second
	}
	if o.ErrorLog == nil {
		o.ErrorLog = log.New(discard{}, "", 0)
	}
	var inFlight atomic.Int64
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inFlight.Add(1)
			defer inFlight.Add(-1)
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          o.ErrorLog,
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Grace)
	defer cancel()
	err := srv.Shutdown(grace)
	if err != nil {
		left := inFlight.Load()
		_ = srv.Close() // the reason is already in err
		err = fmt.Errorf("stop serving %s: %d requests were still in flight after %s: %w", l.Addr(), left, o.Grace, err)
		if left == 0 { // connections that never sent a whole request are nobody's loss
			err = nil
		}
	}
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		return errors.Join(err, end)
	}
	return err
}

// Listen opens a TCP address such as 127.0.0.1:8080; port 0 takes a free one.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return l, nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
