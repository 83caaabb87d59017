package strictjson

import (
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
)

type body struct {
	Name    string       `json:"name"`
	Count   int          `json:"count"`
	Needed  *int         `json:"needed"`
	ID      ids.ID       `json:"id"`
	From    *ids.Counter `json:"from"`
	Input   Raw          `json:"input"`
	Members []struct {
		Epoch ids.Counter `json:"epoch"`
	} `json:"members"`
}

func TestEveryFaultNamesItsMember(t *testing.T) {
	t.Parallel()
	for text, field := range map[string]string{ // "" when it is accepted
		`{}`:                                "",
		`{"name":"a","count":3,"from":"7"}`: "",
		` {"name" : "a"} `:                  "",
		`{"from":null,"needed":null}`:       "",
		`{"Name":"a"}`:                      "Name",
		`{"extra":1}`:                       "extra",
		`{"name":null}`:                     "name",
		`{"name":1}`:                        "name",
		`{"name":"a","name":"b"}`:           "name",
		`{"count":1.0}`:                     "count",
		`{"count":1e2}`:                     "count",
		`{"count":"1"}`:                     "count",
		`{"count":null}`:                    "count",
		`{"count":99999999999999999999}`:    "count",
		`{"id":"x"}`:                        "id",
		`{"id":null}`:                       "id",
		`{"from":"01"}`:                     "from",
		`{"from":1}`:                        "from",
		`{"members":[{"epoch":"1"},{"epoch":1}]}`: "members.1.epoch",
		`{"members":[{"x":1}]}`:                   "members.0.x",
		`{"input":{"a":1,"b":{"c":1,"c":2}}}`:     "input.b.c",
		`{"input":[{"a":1},{"a":1,"a":1}]}`:       "input.1.a",
		`{"name":"a"} {}`:                         "body",
		`{"name":"a"`:                             "body",
		`[]`:                                      "body",
		`null`:                                    "body",
		`"text"`:                                  "body",
		``:                                        "body",
		"{\"name\":\"\xff\"}":                     "name",
		`{"input":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`: "?",
	} {
		var v body
		err := Decode([]byte(text), &v)
		short := text[:min(len(text), 60)]
		switch {
		case field == "" && err != nil:
			t.Errorf("%s: %v", short, err)
		case field != "" && !errs.Is(err, errs.InvalidArgument):
			t.Errorf("%s: %v, want INVALID_ARGUMENT", short, err)
		case field != "" && field != "?" && !strings.HasPrefix(errs.MessageOf(err), field+": "):
			t.Errorf("%s: %q does not name %s", short, errs.MessageOf(err), field)
		}
	}
}

func TestBusinessJSONKeepsItsBytes(t *testing.T) {
	t.Parallel()
	for _, input := range []string{
		`{"a":9007199254740993,"b":18446744073709551615,"c":1.0,"d":1e400}`, `{ "z" : 1 ,  "a":2 }`, `"\u00e9\/<>&"`, `-0.0`, `null`, "[ 1,\n\t2 ]",
	} {
		var v body
		if err := Decode([]byte(`{"input": `+input+` }`), &v); err != nil || string(v.Input) != input {
			t.Errorf("%s became %s (%v)", input, v.Input, err)
		}
	}
}

func TestEnvelopeIsJudgedApartFromItsBody(t *testing.T) {
	t.Parallel()
	type envelope struct {
		Type string `json:"type"`
		Body Raw    `json:"body"`
	}
	for text, want := range map[string][2]bool{ // bodyErr, err
		`{"type":"t","body":{"a":1}}`:            {false, false},
		`{"type":"t","body":{"a":1,"a":2}}`:      {true, false},
		`{"type":"t","type":"t","body":{"a":1}}`: {false, true},
		`{"body":{"a":1,"a":2},"extra":1}`:       {true, true},
		`{"type":"t","body":{"a":1}`:             {false, true},
	} {
		var e envelope
		bodyErr, err := DecodeEnvelope([]byte(text), &e)
		if (bodyErr != nil) != want[0] || (err != nil) != want[1] {
			t.Errorf("%s: %v, %v", text, bodyErr, err)
		}
	}
}
