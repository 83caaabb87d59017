package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// home is a stack's state folder.
type home struct{ dir string }

// openHome takes ORBIT_HOME, by default .orbit in the working folder, or a folder below it.
func openHome(sub string) (home, error) {
	dir := os.Getenv("ORBIT_HOME")
	if dir == "" {
		dir = ".orbit"
	}
	dir, err := filepath.Abs(filepath.Join(dir, sub))
	if err != nil {
		return home{}, fmt.Errorf("ORBIT_HOME: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return home{}, fmt.Errorf("ORBIT_HOME: %w", err)
	}
	return home{dir}, nil
}

func (h home) env() string           { return filepath.Join(h.dir, "env") }
func (h home) pid() string           { return filepath.Join(h.dir, "stack.pid") }
func (h home) log(who string) string { return filepath.Join(h.dir, who+".log") }
func (h home) database() string      { return filepath.Join(h.dir, "mysql") }

// binary is a program built beside this one.
func binary(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s is not built; run `make build`", path)
	}
	return path, nil
}
