package main

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/api"
)

// example is a fenced frame of the document that says whose it is: ```json orbit.workers.v1 client
var example = regexp.MustCompile("(?s)```json (orbit\\.[a-z]+\\.v1) (client|server)\n(.*?)\n```")

// Every example frame of api/ws.md is what the schema has, and every type of the worker socket has one.
func TestTheDocumentsExamples(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../api/ws.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, m := range example.FindAllSubmatch(text, -1) {
		if err := describes(t, protocol(m[1]), string(m[2])+"Frame", m[3]); err != nil {
			t.Errorf("%s\n%v", m[3], err)
		}
		var f frame
		if err := json.Unmarshal(m[3], &f); err != nil {
			t.Fatal(err)
		}
		shown[f.Type] = true
	}
	var schema struct {
		Defs struct {
			Command struct {
				Properties struct {
					Type struct{ Enum []string }
				}
			} `json:"commandFrame"`
			Hello struct {
				Properties struct{ Type struct{ Const string } }
			} `json:"helloFrame"`
			Server struct {
				Properties struct {
					Type struct{ Enum []string }
				}
			} `json:"serverFrame"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(api.WorkersSchema, &schema); err != nil {
		t.Fatal(err)
	}
	d := &schema.Defs
	types := append(append([]string{d.Hello.Properties.Type.Const}, d.Command.Properties.Type.Enum...), d.Server.Properties.Type.Enum...)
	if len(types) != 1+7+5 {
		t.Errorf("the schema has types %v", types)
	}
	for _, name := range types {
		if !shown[name] {
			t.Errorf("%s has no example", name)
		}
	}
}
