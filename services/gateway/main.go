// Orbit-gateway holds the sockets: events to consumers, tasks to workers. It meets the management
// service only in the database.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/caarlos0/env/v11"
)

// ballast is never touched and so takes no memory; the collector counts it, and then does not run
// dozens of times a second over a heap of a few MiB.
var ballast = make([]byte, 32<<20)

func main() {
	defer runtime.KeepAlive(ballast)

	if len(os.Args) > 1 {
		fmt.Print(usage)
		if os.Args[1] != "-h" && os.Args[1] != "--help" {
			os.Exit(2)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cfg, err := parseConfig(env.ToMap(os.Environ()))
	if err == nil {
		err = run(ctx, cfg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "orbit-gateway:", err)
		os.Exit(1)
	}
}
