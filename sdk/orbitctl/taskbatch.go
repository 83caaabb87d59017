package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"git.yuntuo.hk/k2safe/orbit/sdk/go"
)

const (
	batchTasks = 500       // the API's limit
	batchBytes = 400 << 10 // of inputs, so that the request stays below 512 KiB with all its members
)

// submitBatch submits a task for each line, chunk by chunk; chunks depend on the lines alone, so the same
// file and key give the same requests.
func (a *app) submitBatch(ctx context.Context, client *orbit.Client, file, key string, r orbit.SubmitTaskRequest) error {
	in := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return usage("--batch: %v", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	perTask := 512
	for k, v := range r.Labels {
		perTask += 6*(len(k)+len(v)) + 8
	}
	var chunk []orbit.SubmitTaskRequest
	size, chunks, sent, deduplicated := 0, 0, 0, 0
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	flush := func() error {
		if len(chunk) == 0 {
			return nil
		}
		chunks++
		done, err := client.SubmitTasks(ctx, fmt.Sprintf("%s-%d", key, chunks), chunk)
		if err != nil {
			fmt.Fprintf(a.errs, "stopped after %d tasks; repeat the command with --key %s to go on\n", sent, key)
			return err
		}
		sent += len(done.Tasks)
		if done.Deduplicated {
			deduplicated += len(done.Tasks)
		}
		fmt.Fprintf(a.errs, "%d submitted\n", sent)
		for _, t := range done.Tasks {
			if a.format == "json" {
				err = enc.Encode(t)
			} else {
				_, err = fmt.Fprintln(a.out, t.ID)
			}
			if err != nil {
				return err
			}
		}
		chunk, size = nil, 0
		return nil
	}
	lines := bufio.NewReader(in)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return err
		}
		if text := bytes.TrimSpace(line); len(text) > 0 {
			if !json.Valid(text) {
				if err := flush(); err != nil {
					return err
				}
				return usage("line %d is not JSON; the %d tasks before it were submitted", n, sent)
			}
			if len(chunk) == batchTasks || (len(chunk) > 0 && size+len(text)+perTask > batchBytes) {
				if err := flush(); err != nil {
					return err
				}
			}
			task := r
			task.Input = text
			chunk, size = append(chunk, task), size+len(text)+perTask
		}
		if err == io.EOF {
			break
		}
	}
	if err := flush(); err != nil {
		return err
	}
	fmt.Fprintf(a.errs, "done: %d tasks, %d of them by an earlier run of this key\n", sent, deduplicated)
	return nil
}
