package httpapi

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// document walks the OpenAPI document in its own order and follows its references.
type document struct{ root yaml.MapSlice }

// at returns the value at a path of keys, nil when there is none.
func (d document) at(keys ...string) any { return d.in(d.root, keys...) }

func (d document) in(v any, keys ...string) any {
	for _, key := range keys {
		v = member(d.follow(v), key)
	}
	return d.follow(v)
}

func (d document) follow(v any) any {
	for {
		ref, ok := member(v, "$ref").(string)
		if !ok {
			return v
		}
		v = d.in(d.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
}

func member(v any, key string) any {
	m, _ := v.(yaml.MapSlice)
	for _, item := range m {
		if item.Key == key {
			return item.Value
		}
	}
	return nil
}

func items(v any) yaml.MapSlice { m, _ := v.(yaml.MapSlice); return m }

func sequence(v any) []any { s, _ := v.([]any); return s }

// groups has the operations under their tags.
func (d document) groups() []docsGroup {
	var out []docsGroup
	for _, tag := range sequence(d.at("tags")) {
		g := docsGroup{Name: text(member(tag, "name")), Description: text(member(tag, "description"))}
		for _, path := range items(d.at("paths")) {
			for _, op := range items(path.Value) {
				if slices.ContainsFunc(sequence(member(op.Value, "tags")), func(v any) bool { return v == g.Name }) {
					g.Operations = append(g.Operations, d.operation(text(path.Key), text(op.Key), path.Value, op.Value))
				}
			}
		}
		out = append(out, g)
	}
	return out
}

func (d document) operation(path, method string, pathItem, op any) docsOperation {
	out := docsOperation{
		ID: text(member(op, "operationId")), Method: strings.ToUpper(method), Path: path,
		Summary: text(member(op, "summary")), Paragraphs: paragraphs(member(op, "description")),
	}
	var actions []string
	for _, a := range sequence(member(op, "x-actions")) {
		actions = append(actions, text(a))
	}
	out.Actions = strings.Join(actions, " or ")
	for _, p := range slices.Concat(sequence(member(pathItem, "parameters")), sequence(member(op, "parameters"))) {
		p = d.follow(p)
		out.Parameters = append(out.Parameters, docsField{
			Name: text(member(p, "name")), Type: text(member(p, "in")), Need: need(member(p, "required") == true),
			Description: describe(text(member(p, "description")), d.in(p, "schema")),
		})
	}
	out.Examples = append(out.Examples, d.examples("Request", d.in(op, "requestBody", "content"))...)
	for _, res := range items(member(op, "responses")) {
		if status := text(res.Key); strings.HasPrefix(status, "2") {
			out.Examples = append(out.Examples, d.examples("Answer "+status, d.in(res.Value, "content"))...)
		}
	}
	return out
}

func (d document) examples(title string, content any) []docsExample {
	var out []docsExample
	for _, e := range items(d.in(content, "application/json", "examples")) {
		out = append(out, docsExample{title + ", " + strings.ReplaceAll(text(e.Key), "_", " "), jsonText(d.in(e.Value, "value"))})
	}
	return out
}

// objects has the members of every schema that is neither an envelope nor a plain value.
func (d document) objects() []docsObject {
	var out []docsObject
	for _, s := range items(d.at("components", "schemas")) {
		name, properties := text(s.Key), items(d.in(s.Value, "properties"))
		if strings.HasSuffix(name, "Envelope") || len(properties) == 0 {
			continue
		}
		required := sequence(d.in(s.Value, "required"))
		o := docsObject{Name: name}
		for _, p := range properties {
			schema := d.follow(p.Value)
			o.Fields = append(o.Fields, docsField{
				Name: text(p.Key), Type: typeOf(p.Value, schema), Need: need(slices.Contains(required, p.Key)),
				Description: describe(text(member(schema, "description")), schema),
			})
		}
		out = append(out, o)
	}
	return out
}

func need(required bool) string {
	if required {
		return "required"
	}
	return "optional"
}

// typeOf names a schema by its component where it has one.
func typeOf(raw, schema any) string {
	if ref, ok := member(raw, "$ref").(string); ok {
		return ref[strings.LastIndexByte(ref, '/')+1:]
	}
	switch t := member(schema, "type").(type) {
	case string:
		return t
	case []any:
		var names []string
		for _, n := range t {
			names = append(names, text(n))
		}
		return strings.Join(names, " or ")
	}
	return "any"
}

// describe adds what the keywords say to a description.
func describe(description string, schema any) string {
	var notes []string
	if values := sequence(member(schema, "enum")); values != nil {
		var names []string
		for _, v := range values {
			names = append(names, text(v))
		}
		notes = append(notes, "one of "+strings.Join(names, ", "))
	}
	if low, high := member(schema, "minimum"), member(schema, "maximum"); low != nil && high != nil {
		notes = append(notes, text(low)+" to "+text(high))
	}
	if def := member(schema, "default"); def != nil {
		notes = append(notes, "default "+text(def))
	}
	if len(notes) == 0 {
		return description
	}
	return strings.TrimSpace(description + " (" + strings.Join(notes, "; ") + ")")
}

// jsonText writes a YAML value as indented JSON, members in their order.
func jsonText(v any) string {
	var compact, out bytes.Buffer
	appendJSON(&compact, v)
	if json.Indent(&out, compact.Bytes(), "", "  ") != nil {
		return compact.String()
	}
	return out.String()
}

func appendJSON(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case yaml.MapSlice:
		b.WriteByte('{')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			appendJSON(b, text(item.Key))
			b.WriteByte(':')
			appendJSON(b, item.Value)
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			appendJSON(b, item)
		}
		b.WriteByte(']')
	default:
		encoded, err := json.Marshal(v)
		if err != nil {
			encoded = []byte("null")
		}
		b.Write(encoded)
	}
}
