package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// service is one process of the stack that is started again when it dies.
type service struct {
	name string
	args []string
	env  []string
	log  string

	mu  sync.Mutex
	cmd *exec.Cmd
}

const (
	restartPause = 200 * time.Millisecond
	stopGrace    = 20 * time.Second
)

// run keeps the process alive until ctx ends, then asks it to stop and waits.
func (s *service) run(ctx context.Context) error {
	path, err := binary(s.name)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	for {
		cmd := exec.CommandContext(ctx, path, s.args...)
		cmd.Env = append(os.Environ(), s.env...)
		cmd.Stdout, cmd.Stderr = out, out
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = stopGrace
		cmd.SysProcAttr = ownGroup() // a terminal's Ctrl-C reaches the stack, which stops its services in order
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start %s: %w", s.name, err)
		}
		s.mu.Lock()
		s.cmd = cmd
		s.mu.Unlock()
		err := cmd.Wait()
		if ctx.Err() != nil {
			return nil
		}
		fmt.Fprintf(os.Stderr, "%s ended (%v); starting it again, its log is %s\n", s.name, err, s.log)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(restartPause):
		}
	}
}

// kill ends the process as a crash would.
func (s *service) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Kill()
}
