package httpapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"git.yuntuo.hk/k2safe/orbit/api"
)

// description answers the OpenAPI document this API is tested against.
func description(w http.ResponseWriter, _ *http.Request) {
	serveFile(w, "application/yaml", api.OpenAPI)
}

// docsHandler answers the same for people, in one file that needs no other host; it is rendered once.
func docsHandler() http.HandlerFunc {
	render := sync.OnceValues(func() ([]byte, error) { return renderDocs(api.OpenAPI, api.Errors) })
	return func(w http.ResponseWriter, _ *http.Request) {
		html, err := render()
		if err != nil { // the embedded documents are tested, so this is a broken build
			http.Error(w, "the description cannot be shown", http.StatusInternalServerError)
			return
		}
		serveFile(w, "text/html; charset=utf-8", html)
	}
}

func serveFile(w http.ResponseWriter, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body) // a reader that has gone is not a fault of ours
}

//go:embed docs.html.tmpl
var docsTemplate string

// docsPage is what the template shows.
type docsPage struct {
	Title, Summary string
	Paragraphs     []string
	Groups         []docsGroup
	Objects        []docsObject
	Errors         []struct {
		Code      string `json:"code"`
		HTTP      *int   `json:"http"`
		Meaning   string `json:"meaning"`
		WhatToDo  string `json:"what_to_do"`
		HTTPShown string `json:"-"`
	}
}

type docsGroup struct {
	Name, Description string
	Operations        []docsOperation
}

type docsOperation struct {
	ID, Method, Path, Summary string
	Paragraphs                []string
	Actions                   string
	Parameters                []docsField
	Examples                  []docsExample
}

type docsObject struct {
	Name   string
	Fields []docsField
}

type docsField struct{ Name, Type, Need, Description string }

type docsExample struct{ Title, JSON string }

// renderDocs builds the page from the two documents, so that it cannot tell anything else.
func renderDocs(openapi, errors []byte) ([]byte, error) {
	var root yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(openapi, &root, yaml.UseOrderedMap()); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	doc := document{root}
	view := docsPage{Title: text(doc.at("info", "title")), Summary: text(doc.at("info", "summary")), Paragraphs: paragraphs(doc.at("info", "description"))}
	if err := json.Unmarshal(errors, &view.Errors); err != nil {
		return nil, fmt.Errorf("read the table of errors: %w", err)
	}
	for i, e := range view.Errors {
		view.Errors[i].HTTPShown = "socket only"
		if e.HTTP != nil {
			view.Errors[i].HTTPShown = fmt.Sprint(*e.HTTP)
		}
	}
	view.Groups, view.Objects = doc.groups(), doc.objects()
	tmpl, err := template.New("docs").Parse(docsTemplate)
	if err != nil {
		return nil, fmt.Errorf("parse the page's template: %w", err)
	}
	var out bytes.Buffer
	err = tmpl.Execute(&out, view)
	return out.Bytes(), err
}

// paragraphs splits a description at its blank lines.
func paragraphs(v any) []string {
	var out []string
	for p := range strings.SplitSeq(text(v), "\n\n") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

func text(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}
