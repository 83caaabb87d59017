package task

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

func submit(change func(*Submit)) Submit {
	queue := ids.New()
	s := Submit{QueueID: &queue, Input: strictjson.Raw(`{}`)}
	change(&s)
	return s
}

func TestSubmitLimits(t *testing.T) {
	t.Parallel()
	text := func(n int) strictjson.Raw { return strictjson.Raw(`"` + strings.Repeat("x", n-2) + `"`) }
	labels := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint("l", i)] = "v"
		}
		return m
	}
	at := func(year int) *time.Time { t := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC); return &t }
	for name, c := range map[string]struct {
		change func(*Submit)
		field  string // "" when it is accepted
	}{
		"defaults":             {func(*Submit) {}, ""},
		"no queue":             {func(s *Submit) { s.QueueID = nil }, "queue_id"},
		"no input":             {func(s *Submit) { s.Input = nil }, "input"},
		"null input":           {func(s *Submit) { s.Input = strictjson.Raw("null") }, ""},
		"input limit − 1":      {func(s *Submit) { s.Input = text(262_143) }, ""},
		"input limit":          {func(s *Submit) { s.Input = text(262_144) }, ""},
		"input limit + 1":      {func(s *Submit) { s.Input = text(262_145) }, "input"},
		"max_attempts −1":      {func(s *Submit) { s.MaxAttempts = -1 }, "max_attempts"},
		"max_attempts 1":       {func(s *Submit) { s.MaxAttempts = 1 }, ""},
		"max_attempts 99":      {func(s *Submit) { s.MaxAttempts = 99 }, ""},
		"max_attempts 100":     {func(s *Submit) { s.MaxAttempts = 100 }, ""},
		"max_attempts 101":     {func(s *Submit) { s.MaxAttempts = 101 }, "max_attempts"},
		"priority −101":        {func(s *Submit) { s.Priority = -101 }, "priority"},
		"priority −100":        {func(s *Submit) { s.Priority = -100 }, ""},
		"priority 100":         {func(s *Submit) { s.Priority = 100 }, ""},
		"priority 101":         {func(s *Submit) { s.Priority = 101 }, "priority"},
		"retry_safety maybe":   {func(s *Submit) { s.RetrySafety = "maybe" }, "retry_safety"},
		"retry_safety Safe":    {func(s *Submit) { s.RetrySafety = "Safe" }, "retry_safety"},
		"run_at 1969":          {func(s *Submit) { s.RunAt = at(1969) }, "run_at"},
		"run_at 1970":          {func(s *Submit) { s.RunAt = at(1970) }, ""},
		"run_at 9998":          {func(s *Submit) { s.RunAt = at(9998) }, ""},
		"run_at 9999":          {func(s *Submit) { s.RunAt = at(9999) }, "run_at"},
		"15 labels":            {func(s *Submit) { s.Labels = labels(15) }, ""},
		"16 labels":            {func(s *Submit) { s.Labels = labels(16) }, ""},
		"17 labels":            {func(s *Submit) { s.Labels = labels(17) }, "labels"},
		"label name 64":        {func(s *Submit) { s.Labels = map[string]string{strings.Repeat("n", 64): "v"} }, ""},
		"label name 65":        {func(s *Submit) { s.Labels = map[string]string{strings.Repeat("n", 65): "v"} }, "labels"},
		"label name empty":     {func(s *Submit) { s.Labels = map[string]string{"": "v"} }, "labels"},
		"label name with é":    {func(s *Submit) { s.Labels = map[string]string{"é": "v"} }, "labels"},
		"label value 128 of é": {func(s *Submit) { s.Labels = map[string]string{"n": strings.Repeat("é", 128)} }, ""},
		"label value 129":      {func(s *Submit) { s.Labels = map[string]string{"n": strings.Repeat("v", 129)} }, "labels.n"},
		"label value empty":    {func(s *Submit) { s.Labels = map[string]string{"n": ""} }, "labels.n"},
	} {
		s := submit(c.change)
		checkField(t, name, s.Normalise(), c.field)
	}
}

func TestBatchNamesTheItem(t *testing.T) {
	t.Parallel()
	for n, field := range map[int]string{0: "tasks", 1: "", 499: "", 500: "", 501: "tasks"} {
		b := Batch{Tasks: make([]Submit, n)}
		for i := range b.Tasks {
			b.Tasks[i] = submit(func(*Submit) {})
		}
		checkField(t, fmt.Sprint(n, " items"), b.Normalise(), field)
	}
	b := Batch{Tasks: []Submit{submit(func(*Submit) {}), submit(func(s *Submit) { s.Priority = 101 })}}
	checkField(t, "second is bad", b.Normalise(), "tasks.1")
}

func TestResolveLimits(t *testing.T) {
	t.Parallel()
	revision := ids.Counter(1)
	for name, c := range map[string]struct {
		body  Resolve
		field string
	}{
		"succeeded with result": {Resolve{&revision, "succeeded", strictjson.Raw(`1`), "seen"}, ""},
		"succeeded without":     {Resolve{&revision, "succeeded", nil, "seen"}, ""},
		"failed":                {Resolve{&revision, "failed", nil, "seen"}, ""},
		"requeue":               {Resolve{&revision, "requeue", nil, "seen"}, ""},
		"no revision":           {Resolve{nil, "failed", nil, "seen"}, "expected_revision"},
		"no outcome":            {Resolve{&revision, "", nil, "seen"}, "outcome"},
		"outcome cancelled":     {Resolve{&revision, "cancelled", nil, "seen"}, "outcome"},
		"failed with result":    {Resolve{&revision, "failed", strictjson.Raw(`1`), "seen"}, "result"},
		"no reason":             {Resolve{&revision, "failed", nil, ""}, "reason"},
		"reason 1024":           {Resolve{&revision, "failed", nil, strings.Repeat("é", 1024)}, ""},
		"reason 1025":           {Resolve{&revision, "failed", nil, strings.Repeat("é", 1025)}, "reason"},
	} {
		checkField(t, name, c.body.Validate(), c.field)
	}
}

// checkField wants INVALID_ARGUMENT naming the field, or no error.
func checkField(t *testing.T, name string, err error, field string) {
	t.Helper()
	switch {
	case field == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case field != "" && !errs.Is(err, errs.InvalidArgument):
		t.Errorf("%s: %v, want INVALID_ARGUMENT", name, err)
	case field != "" && !strings.HasPrefix(errs.MessageOf(err), field+": "):
		t.Errorf("%s: %q does not name %s", name, errs.MessageOf(err), field)
	}
}
