package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"git.yuntuo.hk/k2safe/orbit/api"
)

// protocol is a socket's subprotocol, and so which schema has its frames.
type protocol string

const (
	eventFrames  protocol = "orbit.events.v1"
	workerFrames protocol = "orbit.workers.v1"
)

// published compiles the schemas of both sockets, one definition each way (R6.12).
var published = sync.OnceValues(func() (map[protocol]map[string]*jsonschema.Schema, error) {
	out := map[protocol]map[string]*jsonschema.Schema{}
	for name, text := range map[protocol][]byte{eventFrames: api.EventsSchema, workerFrames: api.WorkersSchema} {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		c, file := jsonschema.NewCompiler(), string(name)+".json"
		if err := c.AddResource(file, doc); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = map[string]*jsonschema.Schema{}
		for _, definition := range []string{"clientFrame", "serverFrame"} {
			if out[name][definition], err = c.Compile(file + "#/$defs/" + definition); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return out, nil
})

// describes reports whether the published schema has this frame.
func describes(t *testing.T, p protocol, definition string, frame []byte) error {
	t.Helper()
	schemas, err := published()
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(frame))
	if err != nil {
		return err
	}
	return schemas[p][definition].Validate(value)
}

// judge keeps what the schema says of a worker's frame until the server has answered it.
func (s *socket) judge(text string) {
	if s.frames != workerFrames {
		return
	}
	var f frame
	if json.Unmarshal([]byte(text), &f) != nil || f.MessageID == "" {
		return
	}
	verdict := describes(s.t, s.frames, "clientFrame", []byte(text))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judged[f.MessageID] = verdict
}

// compare holds the server to the schema: it takes no frame that the schema has not, and calls none
// invalid that the schema has, but for the size of a result, which no schema counts in bytes.
func (s *socket) compare(answer frame) {
	s.mu.Lock()
	verdict, asked := s.judged[answer.ReplyTo]
	delete(s.judged, answer.ReplyTo)
	s.mu.Unlock()
	switch {
	case !asked:
	case verdict != nil && (answer.Error == nil || answer.Error.Code != "INVALID_ARGUMENT"):
		s.t.Errorf("the server took what the schema has not (%v): %+v", verdict, answer)
	case verdict == nil && answer.Error != nil && answer.Error.Code == "INVALID_ARGUMENT" && !strings.HasPrefix(answer.Error.Message, "result: must be at most"):
		s.t.Errorf("the server refused what the schema has: %+v", answer.Error)
	}
}
