package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	ps "github.com/shirou/gopsutil/v4/process"
)

// process is one whose cost is measured.
type process int32

// process finds a child of the stack by the start of its name: the system may cut names short.
func (s *stack) process(name string) (process, error) {
	text, err := os.ReadFile(filepath.Join(s.home, "stack.pid"))
	if err != nil {
		return 0, err
	}
	pid, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("stack.pid: %w", err)
	}
	parent, err := ps.NewProcess(int32(pid))
	if err != nil {
		return 0, err
	}
	children, err := parent.Children()
	if err != nil {
		return 0, fmt.Errorf("processes of the stack: %w", err)
	}
	for _, child := range children {
		if called, err := child.Name(); err == nil && (strings.HasPrefix(called, name) || strings.HasPrefix(name, called)) {
			return process(child.Pid), nil
		}
	}
	return 0, fmt.Errorf("process %d has no child called %s", pid, name)
}

// self is this process, which holds the clients.
func self() process { return process(os.Getpid()) } //nolint:gosec // a process id fits

// cpu is the time it has used so far.
func (p process) cpu() (time.Duration, error) {
	one, err := ps.NewProcess(int32(p))
	if err != nil {
		return 0, err
	}
	t, err := one.Times()
	if err != nil {
		return 0, err
	}
	return time.Duration((t.User + t.System) * float64(time.Second)), nil
}

// resident is its memory in KB.
func (p process) resident() (float64, error) {
	one, err := ps.NewProcess(int32(p))
	if err != nil {
		return 0, err
	}
	m, err := one.MemoryInfo()
	if err != nil {
		return 0, err
	}
	return float64(m.RSS) / 1024, nil
}

// cpuTimes is what each part of the stack, and the client, have used so far.
func (s *stack) cpuTimes() (map[string]time.Duration, error) {
	out := map[string]time.Duration{}
	for part, name := range map[string]string{"database": databaseProgram, "gateway": "orbit-gateway", "management": "orbit-management"} {
		p, err := s.process(name)
		if err != nil {
			return nil, err
		}
		if out[part], err = p.cpu(); err != nil {
			return nil, err
		}
	}
	var err error
	out["client"], err = self().cpu()
	return out, err
}

const databaseProgram = "mariadbd"

// busyness of the machine, beside numbers that depend on it.
func loadAverage() metric {
	b, err := os.ReadFile("/proc/loadavg")
	if errors.Is(err, os.ErrNotExist) {
		return metric{"load average", -1, ""}
	}
	first, _, _ := strings.Cut(string(b), " ")
	value, err := strconv.ParseFloat(first, 64)
	if err != nil {
		value = -1
	}
	return metric{"load average", value, ""}
}
