package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"git.yuntuo.hk/k2safe/orbit/pkg/access"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/httpserver"
	"git.yuntuo.hk/k2safe/orbit/pkg/logging"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/hub"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/pipeline"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/session"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/upgrade"
	"git.yuntuo.hk/k2safe/orbit/services/gateway/internal/workers"
)

// gateway is the wired service.
type gateway struct {
	cfg       config
	log       *zap.Logger
	store     *store.Store
	hub       *hub.Hub
	claims    *pipeline.Claims
	settle    *pipeline.Settlements
	watch     *pipeline.Watch
	scanner   *pipeline.Scanner
	pool      *workers.Pool
	events    *session.Server
	workers   *workers.Server
	eventDoor *upgrade.Endpoint
	workDoor  *upgrade.Endpoint
	ready     atomic.Bool
}

// run serves until ctx ends, then drains (R6.11).
func run(ctx context.Context, cfg config) error {
	log, err := logging.New(cfg.LogLevel, cfg.LogFormat)
	if err != nil {
		return err
	}
	defer log.Sync() //nolint:errcheck // standard error cannot always be synced
	db, err := store.Open(cfg.DSN, store.Pool{MaxOpen: cfg.DBConns})
	if err != nil {
		return err
	}
	defer db.Close()
	listener, err := httpserver.Listen(ctx, cfg.Addr)
	if err != nil {
		return err
	}
	return newGateway(cfg, db, log).serve(ctx, listener)
}

func newGateway(cfg config, db *store.Store, log *zap.Logger) *gateway {
	g := &gateway{cfg: cfg, log: log, store: db, hub: hub.New()}
	g.claims = pipeline.NewClaims(cfg.claimLimits(), db, g.hub, log)
	g.settle = pipeline.NewSettlements(db, g.claims, cfg.AckCommits, log)
	g.watch = pipeline.NewWatch(db, log)
	g.scanner = pipeline.NewScanner(db, g.hub, g.claims, g.watch, log)
	g.pool = workers.NewPool(db, cfg.TaskClaims, log)
	outcomes := workers.NewOutcomes(db, g.pool, cfg.TaskCommits, g.scanner.Hint, log)
	g.events = &session.Server{Store: db, Hub: g.hub, Claims: g.claims, Settle: g.settle, Scanner: g.scanner, Watch: g.watch, Log: log}
	g.workers = &workers.Server{Store: db, Pool: g.pool, Outcomes: outcomes, Watch: g.watch, Log: log}
	g.eventDoor = g.door("orbit.events.v1", access.EventsConsume, cfg.EventConns, g.events.Serve)
	g.workDoor = g.door("orbit.workers.v1", access.WorkersExecute, cfg.WorkerConns, g.workers.Serve)
	return g
}

func (g *gateway) door(protocol string, action access.Action, conns int, serve func(context.Context, *upgrade.Conn, upgrade.Peer)) *upgrade.Endpoint {
	return &upgrade.Endpoint{
		Protocol: protocol, Action: action, MaxConns: conns, Limits: g.cfg.limits(), Authenticate: g.store.Authenticate, Serve: serve, Log: g.log,
	}
}

func (g *gateway) routes(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/events/connect", g.eventDoor)
	mux.Handle("GET /v1/workers/connect", g.workDoor)
	httpserver.NewHealth(ctx, g.check).Register(mux)
	return mux
}

func (g *gateway) check(ctx context.Context) error {
	if !g.ready.Load() {
		return errs.New(errs.Unavailable, "this node is starting or shutting down")
	}
	return g.store.Ping(ctx)
}

// serve runs the loops and the listener; when ctx ends it stops claiming, lets acks land, closes
// the sockets, and only then the rest.
func (g *gateway) serve(ctx context.Context, listener net.Listener) error {
	loops, stopLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoops()
	var running sync.WaitGroup
	for _, loop := range []func(context.Context) error{g.scanner.Run, g.pool.Run, g.pool.RunCancels, g.pool.RunRetired} {
		running.Go(func() {
			if err := loop(loops); err != nil {
				g.log.Error("loop ended", zap.Error(err))
			}
		})
	}
	served := make(chan error, 1)
	go func() {
		served <- httpserver.Run(loops, upgrade.Listener{Listener: listener}, g.routes(ctx), httpserver.Options{Grace: time.Second})
	}()
	err := g.admit(ctx)
	if err == nil {
		g.log.Info("gateway ready", zap.Stringer("addr", listener.Addr()))
		select {
		case err = <-served: // the listener failed: nothing can be served any more
			served <- nil
		case <-ctx.Done():
		}
	}
	g.drain(ctx)
	stopLoops()
	err = errors.Join(err, <-served)
	running.Wait()
	g.log.Info("gateway stopped", zap.Int64("transactions_retried", g.store.Retries()))
	return err
}

// admit opens the doors once the schema is known to be this binary's (R7.4).
func (g *gateway) admit(ctx context.Context) error {
	if err := g.store.AwaitSchema(ctx, g.log); err != nil || ctx.Err() != nil {
		return err
	}
	g.eventDoor.Admit(true)
	g.workDoor.Admit(true)
	g.ready.Store(true)
	return nil
}

func (g *gateway) drain(ctx context.Context) {
	g.ready.Store(false)
	g.log.Info("draining", zap.Int("event_connections", g.eventDoor.Open()), zap.Int("worker_connections", g.workDoor.Open()))
	g.eventDoor.Admit(false)
	g.workDoor.Admit(false)
	g.hub.Drain()
	g.pool.Drain()
	g.claims.Close()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.DrainTimeout)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() { g.workers.Drain(limit) })
	both.Go(func() { g.events.Drain(limit) })
	both.Wait()
	g.eventDoor.Wait()
	g.workDoor.Wait()
	g.settle.Wait()
}
