package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
)

// document reads one JSON document of a command, from a file or stdin (-); unknown members are refused.
func (a *app) document(file string, into any) error {
	text, err := os.ReadFile(file)
	if file == "-" {
		text, err = io.ReadAll(a.in)
	}
	if err != nil {
		return usage("%v", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return usage("%s: %v", file, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return usage("%s: something follows the document", file)
	}
	return nil
}
