// Command importcheck checks which package may import which, over every module of the workspace.
//
//	go run ./deploy/importcheck
//
// It prints each breach with the package, the import and the rule, and exits 1 when there is one, 2 when it could not look.
// The rules are the table in rules.go.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run checks the workspace around the current folder and returns the exit code.
func run(ctx context.Context, stdout, stderr io.Writer) int {
	g, err := load(ctx)
	if err != nil {
		fmt.Fprintln(stderr, "importcheck:", err)
		return 2
	}
	breaches := g.check(importRules)
	calls, err := g.checkSources(sourceRules)
	if err != nil {
		fmt.Fprintln(stderr, "importcheck:", err)
		return 2
	}
	breaches = append(breaches, calls...)
	for _, b := range breaches {
		fmt.Fprintln(stdout, b)
	}
	// A package that does not load may hide imports, so it is never a pass.
	for _, e := range g.broken {
		fmt.Fprintln(stdout, "does not load:", e)
	}
	if len(breaches) > 0 || len(g.broken) > 0 {
		return 1
	}
	fmt.Fprintf(stdout, "importcheck: %d packages keep %d rules\n", len(g.ours), len(importRules)+len(sourceRules))
	return 0
}
