package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
	"github.com/spf13/cobra"
)

// exitRetry is EX_TEMPFAIL of sysexits.
const exitRetry = 75

func workerCommand(a *app) *cobra.Command {
	var queue, line, name string
	var concurrency int
	var drain time.Duration
	c := &cobra.Command{Use: "worker", Short: "Execute a queue's tasks with a command", Args: exactly(0),
		Long: fmt.Sprintf(`Execute a queue's tasks: the task's input is the command's stdin, its stdout is the result.

  exit 0      success; stdout is one JSON value of at most 256 KiB, or nothing
  exit %d     failure that may be retried: while attempts are left the task is queued again
  any other   failure for good; a death by signal is one that may be retried

The last %d bytes of stderr become the error's message, its code is EXIT_<status> or EXIT_SIGNAL. The command's environment has
ORBIT_TASK_ID, ORBIT_ATTEMPT_ID and ORBIT_ATTEMPT, and no token. When the task is cancelled or its lease lost, the command gets SIGTERM,
and is killed 10 seconds later. SIGTERM and SIGINT take no new tasks, let running ones end, and exit 0.`, exitRetry, stderrTail)}
	f := c.Flags()
	f.StringVar(&queue, "queue", "", "queue id (required)")
	f.StringVar(&line, "exec", "", "the command, for /bin/sh -c (required)")
	f.StringVar(&name, "name", "", "the worker's name in attempts (default: the host's)")
	f.IntVar(&concurrency, "concurrency", 1, "how many at once, 1 to 256")
	f.DurationVar(&drain, "drain-timeout", 20*time.Second, "how long running commands may take after a signal")
	_, _ = c.MarkFlagRequired("queue"), c.MarkFlagRequired("exec") // they exist
	c.RunE = func(c *cobra.Command, _ []string) error {
		if concurrency < 1 || concurrency > 256 {
			return usage("--concurrency: must be 1 to 256")
		}
		url, token, err := a.socket()
		if err != nil {
			return err
		}
		return orbit.Worker{
			URL: url, Token: token, QueueID: queue, Name: name, Concurrency: concurrency, DrainTimeout: drain, InsecureHTTP: a.insecure,
			Handler: func(ctx context.Context, at *orbit.Assignment) (json.RawMessage, error) {
				return execute(ctx, line, at)
			},
			OnConnect: func(w orbit.WorkerWelcome) {
				fmt.Fprintf(a.errs, "connected to queue %s (lease %s)\n", w.QueueID, w.LeaseDuration)
			},
			OnDisconnect: func(err error) {
				if c.Context().Err() == nil {
					fmt.Fprintf(a.errs, "disconnected: %v\n", err)
				}
			},
			OnError: func(err orbit.AttemptError) { fmt.Fprintf(a.errs, "task %s: %v\n", err.TaskID, err.Err) },
		}.Run(c.Context())
	}
	return c
}

// execute runs the command for one attempt and turns its exit into an outcome.
func execute(ctx context.Context, line string, at *orbit.Assignment) (json.RawMessage, error) {
	env := []string{"ORBIT_TASK_ID=" + at.Task.ID, "ORBIT_ATTEMPT_ID=" + at.Attempt.ID, "ORBIT_ATTEMPT=" + strconv.Itoa(at.Attempt.Number)}
	stdout, tail, err := shell(ctx, line, at.Task.Input, env, orbit.MaxResult)
	if err == nil {
		if stdout = bytes.TrimSpace(stdout); len(stdout) == 0 {
			return nil, nil
		}
		return stdout, nil // the SDK refuses what is no JSON or too large, with a code of its own
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return nil, orbit.WithCode("EXEC_FAILED", err) // the machine's trouble, so another try may do
	}
	failure := errors.New(firstOf(tail, exit.String()))
	switch code := exit.ExitCode(); code {
	case -1:
		return nil, orbit.WithCode("EXIT_SIGNAL", failure)
	case exitRetry:
		return nil, orbit.WithCode("EXIT_75", failure)
	default:
		return nil, orbit.Permanent(orbit.WithCode("EXIT_"+strconv.Itoa(code), failure))
	}
}
