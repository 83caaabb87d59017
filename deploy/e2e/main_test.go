// Package e2e runs the built programs as their users do: whole processes, real ports, real kills.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// bin is where the programs under test were built.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv(hangingWorker) != "" {
		return hang()
	}
	if role := os.Getenv(childRole); role != "" {
		return child(role)
	}
	dir, err := os.MkdirTemp("", "orbit-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	for name, pkg := range map[string]string{
		"orbit-management": "git.yuntuo.hk/k2safe/orbit/services/management",
		"orbit-gateway":    "git.yuntuo.hk/k2safe/orbit/services/gateway",
		"orbit-local":      "git.yuntuo.hk/k2safe/orbit/deploy/local",
	} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), pkg)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n", name, err)
			return 1
		}
	}
	return m.Run()
}
