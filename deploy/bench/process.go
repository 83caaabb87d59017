package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// process is one of the stack's, looked at through /proc: these numbers exist on Linux only.
type process int

// process finds a child of the stack by its name.
func (s *stack) process(name string) (process, error) {
	text, err := os.ReadFile(filepath.Join(s.home, "stack.pid"))
	if err != nil {
		return 0, err
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return 0, fmt.Errorf("this scenario needs /proc (%v)", err)
	}
	parent := strings.TrimSpace(string(text))
	for _, path := range stats {
		comm, fields, err := readStat(path)
		if err == nil && comm == name && fields[1] == parent {
			return toProcess(filepath.Base(filepath.Dir(path)))
		}
	}
	return 0, fmt.Errorf("process %s has no child called %s", parent, name)
}

func toProcess(text string) (process, error) {
	pid, err := strconv.Atoi(text)
	return process(pid), err
}

// readStat returns the name and the fields after it, state first.
func readStat(path string) (string, []string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	open, end := strings.IndexByte(string(b), '('), strings.LastIndexByte(string(b), ')')
	if open < 0 || end < open {
		return "", nil, fmt.Errorf("%s: unknown format", path)
	}
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 22 {
		return "", nil, fmt.Errorf("%s: %d fields", path, len(fields))
	}
	return string(b[open+1 : end]), fields, nil
}

// ticks a second of /proc's CPU times; the kernel's user-visible rate on every architecture of Go.
const ticks = 100

// cpu is the time it has used so far.
func (p process) cpu() (time.Duration, error) {
	_, fields, err := readStat(fmt.Sprintf("/proc/%d/stat", p))
	if err != nil {
		return 0, err
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("process %d: no CPU times in %v", p, fields)
	}
	return time.Duration(user+system) * time.Second / ticks, nil
}

// resident is its memory in KB.
func (p process) resident() (float64, error) {
	_, fields, err := readStat(fmt.Sprintf("/proc/%d/stat", p))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.Atoi(fields[21])
	return float64(pages) * float64(os.Getpagesize()) / 1024, err
}

// busyness of the machine, beside numbers that depend on it.
func loadAverage() metric {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return metric{"load average", -1, ""}
	}
	first, _, _ := strings.Cut(string(b), " ")
	value, err := strconv.ParseFloat(first, 64)
	if err != nil {
		value = -1
	}
	return metric{"load average", value, ""}
}
