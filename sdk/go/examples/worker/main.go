// Worker executes tasks: the digest and the number of words of a text.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

type input struct {
	Text *string `json:"text"`
}

type output struct {
	SHA256 string `json:"sha256"`
	Words  int    `json:"words"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := orbit.Worker{
		URL: os.Getenv("ORBIT_GATEWAY_URL"), Token: os.Getenv("ORBIT_TOKEN"), QueueID: os.Getenv("ORBIT_QUEUE_ID"), Concurrency: 4,
		Handler:      digest,
		OnConnect:    func(orbit.WorkerWelcome) { fmt.Println("connected") },
		OnDisconnect: func(err error) { fmt.Println("disconnected:", err) },
		OnOutcome:    func(o orbit.OutcomeResult) { fmt.Println("task", o.TaskID, o.State) },
		OnError:      func(err orbit.AttemptError) { fmt.Println(err) },
	}.Run(ctx)
	if err != nil { // it would not help to come back
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func digest(_ context.Context, a *orbit.Assignment) (json.RawMessage, error) {
	var in input
	if err := json.Unmarshal(a.Task.Input, &in); err != nil {
		return nil, orbit.Permanent(orbit.WithCode("BAD_INPUT", err))
	}
	if in.Text == nil {
		return nil, orbit.Permanent(orbit.WithCode("BAD_INPUT", errors.New("text: is required")))
	}
	sum := sha256.Sum256([]byte(*in.Text))
	return json.Marshal(output{SHA256: hex.EncodeToString(sum[:]), Words: len(strings.Fields(*in.Text))})
}
