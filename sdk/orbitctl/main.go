// Command orbitctl operates Orbit from a shell, over its public API alone.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a := &app{in: os.Stdin, out: os.Stdout, errs: os.Stderr}
	err := newRoot(a).ExecuteContext(ctx)
	stop()
	os.Exit(report(os.Stderr, err))
}
