package main

import (
	"bytes"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"git.yuntuo.hk/k2safe/orbit/api"
)

// eventFrames compiles the published schema of the event socket, one definition each way (R6.12).
var eventFrames = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(api.EventsSchema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("events.schema.json", doc); err != nil {
		return nil, err
	}
	out := map[string]*jsonschema.Schema{}
	for _, name := range []string{"clientFrame", "serverFrame"} {
		if out[name], err = c.Compile("events.schema.json#/$defs/" + name); err != nil {
			return nil, err
		}
	}
	return out, nil
})

// describes reports whether the published schema has this frame.
func describes(t *testing.T, definition string, frame []byte) error {
	t.Helper()
	schemas, err := eventFrames()
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(frame))
	if err != nil {
		return err
	}
	return schemas[definition].Validate(value)
}
