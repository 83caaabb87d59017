package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/mysqld"
)

// test runs a command with ORBIT_TEST_DSN pointing at a private server of the same durability as a
// real one, and exits as the command does.
func test(ctx context.Context, command []string) error {
	if len(command) == 0 {
		return errors.New("test needs a command")
	}
	dir, err := os.MkdirTemp("", "orbit-test-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, err := mysqld.Start(ctx, mysqld.Options{Dir: dir, BufferPoolMB: 512})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "ORBIT_TEST_DSN="+server.RootDSN(""))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	runErr := cmd.Run()
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	stopErr := server.Stop(stopCtx)
	if runErr != nil {
		return fmt.Errorf("%s: %w", command[0], runErr)
	}
	return stopErr
}
