//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// own gives a command a process group, so that a terminal's Ctrl-C reaches orbitctl alone and drains.
func own(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
