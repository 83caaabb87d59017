package flow

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"git.yuntuo.hk/k2safe/orbit/pkg/task"
)

// Template is a step's input with the places where other JSON goes in. Anywhere in it, a value that is
// exactly
//
//	{"$run": "/json/pointer"}                    stands for that part of the run's input
//	{"$step": "name", "path": "/json/pointer"}   stands for that part of the step's result
//	{"$literal": any}                            stands for any as it is, references inside it too
//
// The pointer is RFC 6901; "" is the whole document. What is put in keeps its bytes: numbers, order of
// members and spaces. An object with a member $run, $step or $literal and another form is refused, so
// that a slip does not become data; $literal writes such objects. Nothing else is looked at: no
// expressions, no references in names or inside strings.
type Template struct {
	text  []byte
	holes []hole
}

// What a hole stands for besides a step's result.
const (
	ofRun     = -1
	ofLiteral = -2
)

type hole struct {
	start, end int
	step       int // or ofRun, ofLiteral
	pointer    jsontext.Pointer
	literal    []byte
	at         jsontext.Pointer // where in the template
}

// maxPointer bounds a reference's pointer, in bytes.
const maxPointer = 1024

// parseTemplate finds the references; the text is known to be well formed.
func parseTemplate(text []byte, index map[string]int) (Template, error) {
	s := scanner{text: text, index: index, dec: jsontext.NewDecoder(bytes.NewBuffer(text))}
	err := s.value()
	return Template{text: text, holes: s.holes}, err
}

type scanner struct {
	text  []byte
	index map[string]int
	dec   *jsontext.Decoder
	holes []hole
}

func (s *scanner) value() error {
	switch s.dec.PeekKind() {
	case '{':
		return s.object()
	case '[':
		if _, err := s.dec.ReadToken(); err != nil {
			return err
		}
		for s.dec.PeekKind() != ']' {
			if err := s.value(); err != nil {
				return err
			}
		}
		_, err := s.dec.ReadToken()
		return err
	}
	return s.dec.SkipValue()
}

func (s *scanner) object() error {
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	h := hole{start: int(s.dec.InputOffset()) - 1, at: s.dec.StackPointer()}
	special, members := "", 0
	var text, path *string
	for ; s.dec.PeekKind() != '}'; members++ {
		token, err := s.dec.ReadToken()
		if err != nil {
			return err
		}
		switch name := token.String(); name {
		case "$run", "$step", "$literal":
			if special != "" {
				return fmt.Errorf("at %q: has both %s and %s", h.at, special, name)
			}
			special = name
			text, h.literal, err = s.raw()
		case "path":
			if s.dec.PeekKind() == '"' {
				path, _, err = s.raw()
			} else {
				err = s.value()
			}
		default:
			err = s.value()
		}
		if err != nil {
			return err
		}
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	if special == "" {
		return nil
	}
	h.end = int(s.dec.InputOffset())
	return s.reference(h, special, members, text, path)
}

// raw reads a value without looking into it: its bytes, and its text if it is a string.
func (s *scanner) raw() (text *string, literal []byte, err error) {
	value, err := s.dec.ReadValue()
	if err != nil {
		return nil, nil, err
	}
	end := int(s.dec.InputOffset())
	literal = s.text[end-len(value) : end]
	if value.Kind() != '"' {
		return nil, literal, nil
	}
	unquoted, err := jsontext.AppendUnquote(nil, literal)
	plain := string(unquoted)
	return &plain, literal, err
}

// reference checks the form of an object that has one of the special members.
func (s *scanner) reference(h hole, special string, members int, text, path *string) error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("at %q: %s", h.at, fmt.Sprintf(format, args...)+"; {\"$literal\": …} writes such an object as data")
	}
	switch special {
	case "$literal":
		if members != 1 {
			return fmt.Errorf("at %q: {\"$literal\": …} takes no other member", h.at)
		}
		h.step = ofLiteral
		s.holes = append(s.holes, h)
		return nil
	case "$run":
		if members != 1 || text == nil {
			return fault("a reference to the run's input is exactly {\"$run\": \"/json/pointer\"}")
		}
		h.step, h.pointer = ofRun, jsontext.Pointer(*text)
	case "$step":
		if members != 2 || text == nil || path == nil {
			return fault("a reference to a result is exactly {\"$step\": \"name\", \"path\": \"/json/pointer\"}, with the path \"\" for all of it")
		}
		step, known := s.index[*text]
		if !known {
			return fmt.Errorf("at %q: there is no step %q", h.at, short(*text))
		}
		h.step, h.pointer = step, jsontext.Pointer(*path)
	}
	if !h.pointer.IsValid() || len(h.pointer) > maxPointer {
		return fmt.Errorf("at %q: %q is not a JSON Pointer (RFC 6901) of at most %d bytes: empty, or parts that each begin with a slash", h.at, short(string(h.pointer)), maxPointer)
	}
	s.holes = append(s.holes, h)
	return nil
}

// NeedsRun reports that a step's input refers to the run's input.
func (p *Plan) NeedsRun(step int) bool {
	for _, h := range p.templates[step].holes {
		if h.step == ofRun {
			return true
		}
	}
	return false
}

// NeedsResults lists the steps whose results a step's input refers to, each once.
func (p *Plan) NeedsResults(step int) []int {
	var out []int
	seen := map[int]bool{}
	for _, h := range p.templates[step].holes {
		if h.step >= 0 && !seen[h.step] {
			seen[h.step] = true
			out = append(out, h.step)
		}
	}
	return out
}

// Codes of a step that failed before it had a task.
const (
	CodeReferenceMissing = "REFERENCE_MISSING"
	CodeInputTooLarge    = "INPUT_TOO_LARGE"
)

// Input is the step's input with everything put in, at most task.MaxJSON bytes, or why there is none.
// results holds what NeedsResults lists; a step that succeeded without a result is not in it.
func (p *Plan) Input(step int, run []byte, results map[int][]byte) ([]byte, *task.Failure) {
	t := p.templates[step]
	if len(t.holes) == 0 {
		return t.text, nil
	}
	var out []byte
	from := 0
	for _, h := range t.holes {
		part, source := h.literal, ""
		switch h.step {
		case ofLiteral:
		case ofRun:
			part, source = lookup(run, h.pointer), "the run's input"
		default:
			part, source = lookup(results[h.step], h.pointer), fmt.Sprintf("the result of step %q", p.Steps[h.step].Name)
		}
		if part == nil {
			return nil, &task.Failure{Code: CodeReferenceMissing, Message: fmt.Sprintf("input at %q refers to %q in %s, which has no such value", h.at, h.pointer, source)}
		}
		out = append(append(out, t.text[from:h.start]...), part...)
		from = h.end
		if len(out)+len(t.text)-from > task.MaxJSON {
			return nil, &task.Failure{Code: CodeInputTooLarge, Message: fmt.Sprintf("input is more than %d bytes with what it refers to", task.MaxJSON)}
		}
	}
	return append(out, t.text[from:]...), nil
}

// lookup returns the bytes of the value that a pointer names, nil if there is none.
func lookup(doc []byte, pointer jsontext.Pointer) []byte {
	if doc == nil {
		return nil
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(doc))
	for token := range pointer.Tokens() {
		if !descend(dec, token) {
			return nil
		}
	}
	value, err := dec.ReadValue()
	if err != nil {
		return nil
	}
	end := int(dec.InputOffset())
	return doc[end-len(value) : end]
}

// descend moves to a member or an item, and reports whether there is one.
func descend(dec *jsontext.Decoder, token string) bool {
	kind := dec.PeekKind()
	if kind != '{' && kind != '[' {
		return false
	}
	index, isIndex := arrayIndex(token)
	if kind == '[' && !isIndex {
		return false
	}
	if _, err := dec.ReadToken(); err != nil {
		return false
	}
	for n := 0; ; n++ {
		next := dec.PeekKind()
		if next == '}' || next == ']' || next == jsontext.KindInvalid {
			return false
		}
		if kind == '[' && n == index {
			return true
		}
		if kind == '{' {
			name, err := dec.ReadToken()
			if err != nil {
				return false
			}
			if name.String() == token {
				return true
			}
		}
		if dec.SkipValue() != nil {
			return false
		}
	}
}

// arrayIndex accepts 0 or digits without a leading zero (RFC 6901).
func arrayIndex(token string) (int, bool) {
	n, err := strconv.Atoi(token)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == token
}
