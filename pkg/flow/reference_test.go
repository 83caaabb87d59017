package flow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// input expands the template of step b, which depends on a.
func input(t *testing.T, template, run, result string) (string, *task.Failure) {
	t.Helper()
	d := Definition{Steps: []Step{step("a", `null`), step("b", template, "a")}}
	p, err := d.Plan()
	if err != nil {
		t.Fatalf("%s: %v", template, err)
	}
	results := map[int][]byte{}
	if result != "" {
		results[0] = []byte(result)
	}
	out, failure := p.Input(1, []byte(run), results)
	return string(out), failure
}

// The examples of RFC 6901, section 5, and the bytes of what they name.
const rfc = `{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8,
  "nums": [9007199254740993, 18446744073709551615, 1.0, 1e400, -0, 1E+2], "deep": {"z": 1, "a" : { "order" :2 } }, "\u00e9": "\u00e9\/", "01": true}`

func TestReferencesTakeBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ template, want string }{
		{`{"$run": ""}`, rfc},
		{`{"$run": "/foo"}`, `["bar", "baz"]`},
		{`{"$run": "/foo/0"}`, `"bar"`},
		{`{"$run": "/"}`, `0`},
		{`{"$run": "/a~1b"}`, `1`},
		{`{"$run": "/c%d"}`, `2`},
		{`{"$run": "/e^f"}`, `3`},
		{`{"$run": "/g|h"}`, `4`},
		{`{"$run": "/i\\j"}`, `5`},
		{`{"$run": "/k\"l"}`, `6`},
		{`{"$run": "/ "}`, `7`},
		{`{"$run": "/m~0n"}`, `8`},
		{`{"$run": "/nums"}`, `[9007199254740993, 18446744073709551615, 1.0, 1e400, -0, 1E+2]`},
		{`{"$run": "/nums/3"}`, `1e400`},
		{`{"$run": "/nums/5"}`, `1E+2`},
		{`{"$run": "/deep"}`, `{"z": 1, "a" : { "order" :2 } }`},
		{`{"$run": "/é"}`, `"\u00e9\/"`},
		{`{"$run": "/01"}`, `true`},
		{` [ {"$run":"/foo/1"} ,{"x" :{ "path" : "/r" , "$step" : "a" }} ] `, ` [ "baz" ,{"x" :{"y":1.0}} ] `},
		{`{"$step":"a","path":""}`, `{"r":{"y":1.0}}`},
		{`{"a":1, "path": {"$run":"/foo/0"}}`, `{"a":1, "path": "bar"}`},
		{`{"$literal": {"$run": "/foo"}}`, `{"$run": "/foo"}`},
		{`[{"$literal":"$run"},{"$literal": 1.0 }]`, `["$run",1.0]`},
		{`{"$literal": {"$literal": {"$step": "a", "path": ""}}}`, `{"$literal": {"$step": "a", "path": ""}}`},
		{`"{\"$run\":\"\"}"`, `"{\"$run\":\"\"}"`},
		{`{"n":1.0,"b":1e400,"n2":9007199254740993}`, `{"n":1.0,"b":1e400,"n2":9007199254740993}`},
	} {
		got, failure := input(t, c.template, rfc, `{"r":{"y":1.0}}`)
		if failure != nil || got != c.want {
			t.Errorf("%s: %s, %+v\nwant %s", c.template, got, failure, c.want)
		}
	}
}

// TestAMissingValueFails, and says where, what and in which document.
func TestAMissingValueFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ template, result, want string }{
		{`[{"k":{"$run":"/nope"}}]`, `1`, `input at "/0/k" refers to "/nope" in the run's input, which has no such value`},
		{`{"$run":"/foo/2"}`, `1`, `"/foo/2"`},
		{`{"$run":"/foo/-"}`, `1`, `"/foo/-"`},
		{`{"$run":"/foo/00"}`, `1`, `"/foo/00"`},
		{`{"$run":"/foo/-1"}`, `1`, `"/foo/-1"`},
		{`{"$run":"/foo/99999999999999999999"}`, `1`, `in the run's input`},
		{`{"$run":"/foo/0/x"}`, `1`, `"/foo/0/x"`},
		{`{"$run":"/FOO"}`, `1`, `"/FOO"`},
		{`{"$step":"a","path":"/x"}`, `{"y":1}`, `input at "" refers to "/x" in the result of step "a", which has no such value`},
		{`{"$step":"a","path":""}`, ``, `in the result of step "a"`},
	} {
		got, failure := input(t, c.template, rfc, c.result)
		if failure == nil || failure.Code != CodeReferenceMissing || !strings.Contains(failure.Message, c.want) || failure.Validate() != nil {
			t.Errorf("%s: %s, %+v\nwant %s", c.template, got, failure, c.want)
		}
	}
}

func TestTheExpandedInputIsBounded(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	for n, ok := range map[int]bool{task.MaxJSON - 1: true, task.MaxJSON: true} {
		if _, failure := input(t, `{"$run":""}`, text(n), `1`); (failure == nil) != ok {
			t.Errorf("%d bytes: %+v", n, failure)
		}
	}
	if _, failure := input(t, `[{"$run":""}]`, text(task.MaxJSON-2), `1`); failure != nil {
		t.Errorf("exactly the limit: %+v", failure)
	}
	if _, failure := input(t, `[{"$run":""}]`, text(task.MaxJSON-1), `1`); failure == nil || failure.Code != CodeInputTooLarge {
		t.Errorf("limit + 1: %+v", failure)
	}
	many := "[" + strings.TrimSuffix(strings.Repeat(`{"$run":""},`, 5000), ",") + "]"
	if _, failure := input(t, many, text(task.MaxJSON), `1`); failure == nil || failure.Code != CodeInputTooLarge {
		t.Errorf("5000 times the limit: %+v", failure)
	}
	deep := strings.Repeat(`{"a":`, 5000) + `{"$run":""}` + strings.Repeat("}", 5000)
	if got, failure := input(t, deep, `1`, `1`); failure != nil || !strings.Contains(got, `{"a":1}`) {
		t.Errorf("deep: %+v", failure)
	}
}

// FuzzTemplate: what is accepted expands to well-formed JSON, or fails with a reason.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{`{"$run":""}`, `{"$step":"a","path":"/x"}`, `{"$literal":{"$run":1}}`, `[{"$run":"/0"}]`, `{"path":{"$run":"/a~1b"}}`} {
		f.Add(seed, `{"x":[1.0,2]}`)
	}
	f.Fuzz(func(t *testing.T, template, doc string) {
		if !jsontext.Value(template).IsValid() || !jsontext.Value(doc).IsValid() || len(template) > 4096 || len(doc) > 4096 {
			return
		}
		d := Definition{Steps: []Step{step("a", `null`), step("b", template, "a")}}
		p, err := d.Plan()
		if err != nil {
			return
		}
		out, failure := p.Input(1, []byte(doc), map[int][]byte{0: []byte(doc)})
		if failure != nil {
			if failure.Validate() != nil {
				t.Errorf("%+v", failure)
			}
			return
		}
		if !jsontext.Value(out).IsValid() {
			t.Errorf("%s with %s: %s", template, doc, fmt.Sprintf("%q", out))
		}
	})
}
