package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/shirou/gopsutil/v4/process"
)

// parts names the processes whose cost is shown, by the start of their program's name.
var parts = []struct{ program, shown string }{
	{"mariadbd", "database"}, {"mysqld", "database"}, {"orbit-gateway", "gateway"}, {"orbit-management", "management"},
}

// cpuSeconds is what each part of the stack, and the client (this process), have used so far.
func (s *stack) cpuSeconds() (map[string]float64, error) {
	text, err := os.ReadFile(filepath.Join(s.home, "stack.pid"))
	if err != nil {
		return nil, err
	}
	pid, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("stack.pid: %w", err)
	}
	parent, err := process.NewProcess(int32(pid))
	if err != nil {
		return nil, err
	}
	children, err := parent.Children()
	if err != nil {
		return nil, fmt.Errorf("processes of the stack: %w", err)
	}
	self, err := process.NewProcess(int32(os.Getpid())) //nolint:gosec // a process id fits
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	if out["client"], err = used(self); err != nil {
		return nil, err
	}
	for _, child := range children {
		name, err := child.Name()
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			if strings.HasPrefix(name, p.program) || strings.HasPrefix(p.program, name) {
				if out[p.shown], err = used(child); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

func used(p *process.Process) (float64, error) {
	t, err := p.Times()
	if err != nil {
		return 0, err
	}
	return t.User + t.System, nil
}
