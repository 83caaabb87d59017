// Orbit-local is the one-command stack: `up` and `down` for a stack that keeps running, `demo` for
// a real job from end to end, `test` for running a command beside a private database.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: orbit-local up | down | run | demo | soak | test COMMAND…

  up     start database, management and gateway in the background; returns when they are ready and
         $ORBIT_HOME/env (by default .orbit/env) says how to reach them
  down   stop them
  run    the same in the foreground, until a signal comes or standard input ends: for programs that start a
         stack which must not outlive them; says "up" on standard output when it is ready
  demo   the same on a private database, and a real job end to end: every file below DEMO_DIR is a
         task, results arrive in a MySQL inbox and are compared with a direct computation
  soak   the demo's job for SOAK_MINUTES (10) at SOAK_RATE (100) tasks a second, while gateway and
         management are killed with -9 in turn; fails if a result is lost or wrong
  test   start a private database, run COMMAND with ORBIT_TEST_DSN, stop it; exits as COMMAND does

  ORBIT_HOME, ORBIT_MANAGEMENT_ADDR, ORBIT_GATEWAY_ADDR, ORBIT_MYSQL_ADDR   place and ports
  ORBIT_DSN                     use this database instead of a private one
  DEMO_DIR, DEMO_RATE           folder of the demo (.), tasks per second (50; 0 = as fast as it goes)
  DEMO_KILL=gateway             kill -9 the gateway half-way
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "orbit-local:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		args = []string{"help"}
	}
	switch args[0] {
	case "up":
		return up(ctx)
	case "stay": // up's own background half
		return stay(ctx)
	case "down":
		return down(ctx)
	case "run":
		return foreground(ctx)
	case "demo":
		return demo(ctx)
	case "soak":
		return soak(ctx)
	case "test":
		return test(ctx, args[1:])
	case "help", "-h", "--help":
		fmt.Print(usage)
		return nil
	}
	return fmt.Errorf("unknown command %q\n%s", args[0], usage)
}
