package orbit_test

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// The Go snippets of the user's documents, and the consumer in the README, are word for word what the
// examples here compile and run.
func TestExamplesAreTheDocuments(t *testing.T) {
	t.Parallel()
	examples := exampleBodies(t)
	readme := read(t, "README.md")
	_, consumer, _ := strings.Cut(readme, "```go\n")
	consumer, _, _ = strings.Cut(consumer, "```")
	if n := strings.Count(consumer, "\n"); n > 15 {
		t.Errorf("the consumer in the README has %d lines", n)
	}
	for example, text := range map[string]string{
		"ExampleClient_CreateSubscription": read(t, "testdata/documents/subscriptions.txt"),
		"ExampleClient_RetireSubscription": read(t, "testdata/documents/retirement.txt"),
		"ExampleConsumer":                  consumer,
	} {
		if got, want := words(examples[example]), words(text); !slices.Equal(got, want) || len(want) < 20 {
			t.Errorf("%s differs:\n got %s\nwant %s", example, strings.Join(got, " "), strings.Join(want, " "))
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// exampleBodies is the text inside the first function literal of each example.
func exampleBodies(t *testing.T) map[string]string {
	t.Helper()
	text := read(t, "example_test.go")
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "example_test.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string]string{}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			literal, ok := n.(*ast.FuncLit)
			if ok && bodies[f.Name.Name] == "" {
				bodies[f.Name.Name] = text[files.Position(literal.Body.Lbrace).Offset+1 : files.Position(literal.Body.Rbrace).Offset]
			}
			return !ok
		})
	}
	return bodies
}

// words are the tokens and comments of Go text, so that line breaks do not count.
func words(text string) []string {
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile("", files.Base(), len(text)), []byte(text), nil, scanner.ScanComments)
	var out []string
	for {
		_, kind, literal := s.Scan()
		switch {
		case kind == token.EOF:
			return out
		case kind == token.SEMICOLON && literal == "\n": // put there for a line break
		case literal == "":
			out = append(out, kind.String())
		default:
			out = append(out, literal)
		}
	}
}
