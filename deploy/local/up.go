package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	defaultManagement = "127.0.0.1:8080"
	defaultGateway    = "127.0.0.1:8081"
	defaultMySQL      = "127.0.0.1:3316"
)

// up starts the stack in the background, unless it runs already, and waits until it is ready.
func up(ctx context.Context) error {
	h, err := openHome("")
	if err != nil {
		return err
	}
	if pid, alive := h.running(); alive {
		fmt.Printf("already up (process %d); see %s\n", pid, h.env())
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(h.log("stack"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(self, "stay") // outlives this process on purpose
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, out, ownSession()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the stack: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			said, _ := os.ReadFile(h.log("stack")) // without it, the exit status has to do
			return fmt.Errorf("the stack did not start (%w):\n%s", err, strings.TrimSpace(string(said)))
		case <-ctx.Done():
			return errors.Join(ctx.Err(), cmd.Process.Signal(syscall.SIGTERM))
		case <-tick.C:
			if pid, alive := h.running(); alive && pid == cmd.Process.Pid {
				e, _, err := readEnv(h.env())
				fmt.Printf("up: management %s, gateway %s; source %s\n", e.ManagementURL, e.GatewayURL, h.env())
				return err
			}
		}
	}
}

// foreground is stay for a program that started it: the end of standard input is the end of that program.
func foreground(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin) // whatever ends it
	}()
	return stay(ctx)
}

// stay is the stack's own process; its pid file says that it is ready.
func stay(ctx context.Context) error {
	h, err := openHome("")
	if err != nil {
		return err
	}
	s, err := start(ctx, h, addrsFromEnv(defaultManagement, defaultGateway, defaultMySQL))
	if err != nil {
		return errors.Join(err, s.stop())
	}
	if err := os.WriteFile(h.pid(), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return errors.Join(err, s.stop())
	}
	fmt.Println("up")
	select {
	case <-ctx.Done():
	case err = <-s.failed:
	}
	return errors.Join(err, s.stop(), os.Remove(h.pid()))
}

// running returns the process of a ready stack of this home.
func (h home) running() (pid int, alive bool) {
	text, err := os.ReadFile(h.pid())
	if err != nil {
		return 0, false
	}
	if pid, err = strconv.Atoi(string(text)); err != nil {
		return 0, false
	}
	return pid, syscall.Kill(pid, 0) == nil
}

// down stops the stack and returns when it has stopped.
func down(ctx context.Context) error {
	h, err := openHome("")
	if err != nil {
		return err
	}
	pid, alive := h.running()
	if !alive {
		if err := os.Remove(h.pid()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		fmt.Println("not running")
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	for {
		if _, alive := h.running(); !alive {
			fmt.Println("down")
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
