package flow

import (
	"fmt"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

var queue = ids.New()

func step(name string, input string, needs ...string) Step {
	return Step{Name: name, QueueID: &queue, Input: strictjson.Raw(input), DependsOn: needs}
}

func chain(n int) []Step {
	var out []Step
	for i := range n {
		s := step(fmt.Sprintf("s%d", i), `null`)
		if i > 0 {
			s.DependsOn = []string{fmt.Sprintf("s%d", i-1)}
		}
		out = append(out, s)
	}
	return out
}

// TestDefinitionsAreRefusedWithTheirPath.
func TestDefinitionsAreRefusedWithTheirPath(t *testing.T) {
	t.Parallel()
	with := func(s Step, change func(*Step)) Step { change(&s); return s }
	for name, c := range map[string]struct {
		steps []Step
		want  string // how the message begins; "" when it is accepted
	}{
		"no step":               {nil, "steps: must have 1…100 items, has 0"},
		"1 step":                {chain(1), ""},
		"99 steps":              {chain(99), ""},
		"100 steps":             {chain(100), ""},
		"101 steps":             {chain(101), "steps: must have 1…100 items, has 101"},
		"no name":               {[]Step{step("", `1`)}, "steps.0.name: is required"},
		"a name with a space":   {[]Step{step("a", `1`), step("b c", `1`)}, "steps.1.name: must begin"},
		"name of 128":           {[]Step{step(strings.Repeat("n", 128), `1`)}, ""},
		"name of 129":           {[]Step{step(strings.Repeat("n", 129), `1`)}, "steps.0.name: must be at most 128"},
		"duplicate name":        {[]Step{step("a", `1`), step("b", `1`), step("a", `1`)}, `steps.2.name: "a" is already the name of steps.0`},
		"names differ by case":  {[]Step{step("a", `1`), step("A", `1`)}, ""},
		"no queue":              {[]Step{with(step("a", `1`), func(s *Step) { s.QueueID = nil })}, "steps.0.queue_id: is required"},
		"no input":              {[]Step{with(step("a", `1`), func(s *Step) { s.Input = nil })}, "steps.0.input: is required"},
		"too many tries":        {[]Step{with(step("a", `1`), func(s *Step) { s.MaxAttempts = 101 })}, "steps.0.max_attempts: must be"},
		"bad label":             {[]Step{with(step("a", `1`), func(s *Step) { s.Labels = map[string]string{"x": ""} })}, "steps.0.labels.x: is required"},
		"unknown step":          {[]Step{step("a", `1`), step("b", `1`, "a", "c")}, `steps.1.depends_on.1: there is no step "c"`},
		"itself":                {[]Step{step("a", `1`, "a")}, `steps.0.depends_on.0: step "a" depends on itself`},
		"twice":                 {[]Step{step("a", `1`), step("b", `1`, "a", "a")}, `steps.1.depends_on.1: step "a" is named twice`},
		"cycle of 2":            {[]Step{step("a", `1`, "b"), step("b", `1`, "a")}, "steps.0.depends_on: is part of the cycle a → b → a"},
		"cycle behind a step":   {[]Step{step("x", `1`, "c"), step("a", `1`, "b"), step("b", `1`, "c"), step("c", `1`, "a")}, "steps.3.depends_on: is part of the cycle c → a → b → c"},
		"depends on a later":    {[]Step{step("a", `1`, "b"), step("b", `1`)}, ""},
		"diamond":               {[]Step{step("a", `1`), step("b", `1`, "a"), step("c", `1`, "a"), step("d", `{"$step":"a","path":""}`, "b", "c")}, ""},
		"reference to unknown":  {[]Step{step("a", `[1,{"x":{"$step":"q","path":""}}]`)}, `steps.0.input: at "/1/x": there is no step "q"`},
		"reference to itself":   {[]Step{step("a", `{"$step":"a","path":""}`)}, `steps.0.input: at "": refers to step "a", which step "a" does not depend on`},
		"reference to another":  {[]Step{step("a", `1`), step("b", `{"$step":"a","path":""}`)}, `steps.1.input: at "": refers to step "a", which step "b" does not depend on`},
		"reference downstream":  {[]Step{step("a", `{"k":{"$step":"b","path":""}}`), step("b", `1`, "a")}, `steps.0.input: at "/k": refers to step "b"`},
		"$run with more":        {[]Step{step("a", `{"$run":"","x":1}`)}, `steps.0.input: at "": a reference to the run's input is exactly`},
		"$run of a number":      {[]Step{step("a", `{"$run":1}`)}, `steps.0.input: at "": a reference to the run's input is exactly`},
		"$step without path":    {[]Step{step("a", `1`), step("b", `{"$step":"a"}`, "a")}, `steps.1.input: at "": a reference to a result is exactly`},
		"$step with more":       {[]Step{step("a", `1`), step("b", `{"$step":"a","path":"","x":2}`, "a")}, `steps.1.input: at "": a reference to a result is exactly`},
		"path of an object":     {[]Step{step("a", `1`), step("b", `{"$step":"a","path":{"$run":""}}`, "a")}, `steps.1.input: at "": a reference to a result is exactly`},
		"$run and $step":        {[]Step{step("a", `{"$run":"","$step":"a"}`)}, `steps.0.input: at "": has both $run and $step`},
		"$literal with more":    {[]Step{step("a", `{"$literal":1,"x":2}`)}, `steps.0.input: at "": {"$literal": …} takes no other member`},
		"$literal of anything":  {[]Step{step("a", `{"$literal":{"$run":[],"$step":{"$literal":0}}}`)}, ""},
		"pointer without slash": {[]Step{step("a", `{"$run":"x"}`)}, `steps.0.input: at "": "x" is not a JSON Pointer`},
		"pointer with bare ~":   {[]Step{step("a", `{"$run":"/~2"}`)}, `steps.0.input: at "": "/~2" is not a JSON Pointer`},
		"pointer of 1024":       {[]Step{step("a", `{"$run":"/`+strings.Repeat("p", 1023)+`"}`)}, ""},
		"pointer of 1025":       {[]Step{step("a", `{"$run":"/`+strings.Repeat("p", 1024)+`"}`)}, `steps.0.input: at "": "/ppp`},
		"escaped $run":          {[]Step{step("a", `{"\u0024run":1}`)}, `steps.0.input: at "": a reference to the run's input`},
		"a plain path":          {[]Step{step("a", `{"path":{"x":{"$run":""}}}`)}, ""},
	} {
		d := Definition{Steps: c.steps}
		_, err := d.Plan()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (!errs.Is(err, errs.InvalidArgument) || !strings.HasPrefix(errs.MessageOf(err), c.want)):
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
}

// TestStoredStepsReadBack: defaults are applied and inputs keep their bytes.
func TestStoredStepsReadBack(t *testing.T) {
	t.Parallel()
	d := Definition{Steps: []Step{step("a", `{ "b" : 1.0 , "a":[1e400] }`), step("b", `{"x": {"$step":"a", "path":"/b"}}`, "a")}}
	d.Steps[0].Labels = map[string]string{"z": "1", "a": "2"}
	p, err := d.Plan()
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParsePlan(text)
	if err != nil {
		t.Fatal(err)
	}
	second, err := again.JSON()
	if err != nil || string(second) != string(text) || !strings.Contains(string(text), `"input":{ "b" : 1.0 , "a":[1e400] }`) {
		t.Errorf("%s\n%s\n%v", text, second, err)
	}
	if s := again.Steps[0]; s.MaxAttempts != 3 || s.RetrySafety != "unsafe" {
		t.Errorf("%+v", s)
	}
}
