// Command orbit-management is Orbit's management service: the HTTP API, the background work, and
// the commands that set an installation up.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"git.yuntuo.hk/k2safe/orbit/services/management/internal/admin"
)

// ballast is never touched and so takes no memory; the collector counts it, and then does not run
// dozens of times a second over a heap of a few MiB.
var ballast = make([]byte, 32<<20)

func main() {
	code := start(os.Args[1:])
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

func start(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "orbit-management:", err)
		return 1
	}
	return 0
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "orbit-management",
		Short:         "Orbit's management API, background work and administration",
		Long:          "orbit-management is configured by its environment.\n\n" + envHelp(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newServe())
	root.AddCommand(admin.Commands(func() (string, error) {
		cfg, err := loadConfig(os.Environ())
		return string(cfg.DSN), err
	})...)
	return root
}

func newServe() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Serve the API and run the background work until SIGINT or SIGTERM",
		Long:  "Serve the API and run the background work until SIGINT or SIGTERM.\n\n" + envHelp(),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(os.Environ())
			if err != nil {
				return err
			}
			return run(cmd.Context(), cfg)
		},
	}
}
