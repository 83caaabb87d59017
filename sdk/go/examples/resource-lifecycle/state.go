package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	orbit "git.yuntuo.hk/k2safe/orbit/sdk/go"
)

// state is what a service would keep in its own database: the target, the request and the key of every command, saved
// before it is sent. Without an answer the same is sent again; a new key would be a new command.
type state struct {
	Run            string `json:"run"` // names and keys come from it
	QueueID        string `json:"queue_id,omitempty"`
	SubscriptionID string `json:"subscription_id,omitempty"`

	RetireSubscription *orbit.RetireResourceRequest `json:"retire_subscription,omitempty"`
	RetireQueue        *orbit.RetireResourceRequest `json:"retire_queue,omitempty"`

	file string
}

func openState(file string) (*state, error) {
	s := &state{Run: orbit.NewID(), file: file}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, s.save()
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// key is the idempotency key of one of the run's commands.
func (s *state) key(command string) string { return s.Run + "." + command }

func (s *state) save() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	tmp := s.file + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, s.file)
}
