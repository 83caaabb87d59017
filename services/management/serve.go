package main

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"git.yuntuo.hk/k2safe/orbit/pkg/httpserver"
	"git.yuntuo.hk/k2safe/orbit/pkg/logging"
	"git.yuntuo.hk/k2safe/orbit/pkg/store"
	"git.yuntuo.hk/k2safe/orbit/services/management/internal/background"
	"git.yuntuo.hk/k2safe/orbit/services/management/internal/console"
	"git.yuntuo.hk/k2safe/orbit/services/management/internal/httpapi"
)

// run serves until ctx ends; then requests in flight and the background work come to their end, and
// the database is closed last. A schema of another version ends it with an error (R7.4); a database
// that is away does not, it only keeps the service from being ready.
func run(ctx context.Context, cfg config) error {
	log, err := logging.New(cfg.LogLevel, cfg.LogFormat)
	if err != nil {
		return err
	}
	db, err := store.Open(string(cfg.DSN), store.Pool{MaxOpen: cfg.DBMaxOpen, MaxLifetime: cfg.DBMaxLifetime})
	if err != nil {
		return err
	}
	defer db.Close()
	listener, err := httpserver.Listen(ctx, cfg.Addr)
	if err != nil {
		return err
	}
	log.Info("listening", zap.String("addr", listener.Addr().String()))

	var fits atomic.Bool
	ready := func(ctx context.Context) error {
		if !fits.Load() {
			return errors.New("the schema has not been checked yet")
		}
		return db.Ping(ctx)
	}
	sweeps := background.New(db, log, background.Config{Attempts: cfg.SweepInterval, ReceiptAge: cfg.ReceiptRetention})
	handler := httpapi.New(db, httpserver.NewHealth(ctx, ready), log, httpapi.Options{MaxInFlight: cfg.MaxInFlight, Admit: fits.Load, RunMoved: sweeps.RunMoved})
	if cfg.ConsolePassword != "" {
		handler = withConsole(handler, console.New(db, string(cfg.ConsolePassword), log))
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return httpserver.Run(ctx, listener, handler, httpserver.Options{Grace: cfg.ShutdownGrace, ErrorLog: zap.NewStdLog(log)})
	})
	group.Go(func() error {
		if err := db.AwaitSchema(ctx, log); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		fits.Store(true)
		log.Info("ready")
		return sweeps.Run(ctx)
	})
	err = group.Wait()
	log.Info("stopped", zap.Error(err))
	return err
}

// withConsole serves the console at its path and everything else as before.
func withConsole(api http.Handler, page *console.Console) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if console.Serves(r.URL.Path) {
			page.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}
