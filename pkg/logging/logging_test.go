package logging

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

func TestJSONByDefault(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := NewTo(&out, "", "")
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("not at this level")
	log.Info("hello", zap.Duration("took", 1500*time.Microsecond))
	var line struct {
		Level, Msg, Time string
		Took             float64
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%q is not one JSON line: %v", out.String(), err)
	}
	if line.Level != "info" || line.Msg != "hello" || line.Took != 1.5 {
		t.Errorf("got %+v", line)
	}
	if _, err := time.Parse(time.RFC3339Nano, line.Time); err != nil {
		t.Error(err)
	}
}

func TestTextForAPerson(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := NewTo(&out, "debug", "text")
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("hello")
	if line := out.String(); !strings.Contains(line, "DEBUG\thello") || strings.HasPrefix(line, "{") {
		t.Errorf("got %q", line)
	}
}

func TestUnknownValuesAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{{"loud", ""}, {"INFO", ""}, {"fatal", ""}, {"", "xml"}} {
		if _, err := New(c[0], c[1]); err == nil || !strings.Contains(err.Error(), "must be one of") {
			t.Errorf("New(%q, %q) = %v", c[0], c[1], err)
		}
	}
}
