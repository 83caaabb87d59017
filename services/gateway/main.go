// Orbit-gateway holds the sockets: events to consumers, tasks to workers. It meets the management
// service only in the database.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/caarlos0/env/v11"
)

func main() {
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
