package main

import (
	"bytes"
	"context"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	stderrTail = 1024 // bytes of a command's stderr that become the error message
	killGrace  = 10 * time.Second
)

// shell runs a command line with stdin. In a cancelled context it gets SIGTERM, and is killed after killGrace.
// stdout holds at most limit+1 bytes, so that too much can be told from just enough.
func shell(ctx context.Context, line string, stdin []byte, env []string, limit int) (stdout []byte, tail string, err error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	if runtime.GOOS == "windows" {
		cmd = exec.CommandContext(ctx, "cmd", "/C", line)
	}
	out, errs := &head{limit: limit + 1}, &lastBytes{limit: stderrTail}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), out, errs
	cmd.Env = append(withoutToken(cmd.Environ()), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killGrace
	own(cmd)
	err = cmd.Run()
	return out.b, strings.ToValidUTF8(strings.TrimSpace(string(errs.b)), "\uFFFD"), err
}

// withoutToken keeps the token from commands, which do not need it.
func withoutToken(env []string) []string {
	var out []string
	for _, v := range env {
		if !strings.HasPrefix(v, "ORBIT_TOKEN=") {
			out = append(out, v)
		}
	}
	return out
}

// head keeps the first bytes and swallows the rest, so that the writer never blocks.
type head struct {
	b     []byte
	limit int
}

func (h *head) Write(p []byte) (int, error) {
	h.b = append(h.b, p[:min(len(p), h.limit-len(h.b))]...)
	return len(p), nil
}

// lastBytes keeps the last bytes.
type lastBytes struct {
	b     []byte
	limit int
}

func (l *lastBytes) Write(p []byte) (int, error) {
	l.b = append(l.b, p...)
	if len(l.b) > l.limit {
		l.b = append([]byte(nil), l.b[len(l.b)-l.limit:]...)
	}
	return len(p), nil
}
