package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"git.yuntuo.hk/k2safe/orbit/api"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
)

var contract = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background())
})

// contractTransport holds every request and answer of the tests against the OpenAPI document: an
// answer must be as described, and a request that was accepted must be one that is described.
type contractTransport struct {
	t    *testing.T
	base http.RoundTripper
}

func (c contractTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	var sent []byte
	if req.Body != nil {
		sent, _ = io.ReadAll(req.Body)
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(sent))
		if len(sent) == 0 {
			req.Body = http.NoBody
		}
	}
	res, err := c.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(res.Body)
	_ = res.Body.Close() // it has been read to its end
	res.Body = io.NopCloser(bytes.NewReader(got))
	if err == nil {
		c.check(req, sent, res, got)
	}
	return res, err
}

func (c contractTransport) check(req *http.Request, sent []byte, res *http.Response, got []byte) {
	rt, values, found := routeOf(req)
	if !found || res.StatusCode == http.StatusMethodNotAllowed {
		return // held against api/http.md by the tests of the edges
	}
	doc, err := contract()
	if err != nil {
		c.t.Error(err)
		return
	}
	item := doc.Paths.Find(rt.template)
	operation := item.GetOperation(rt.method)
	if operation == nil {
		c.t.Errorf("%s %s is not described", rt.method, rt.template)
		return
	}
	params := map[string]string{}
	for i, name := range rt.params() {
		params[name] = values[i]
	}
	req = req.Clone(context.Background())
	req.Body = io.NopCloser(bytes.NewReader(sent))
	input := &openapi3filter.RequestValidationInput{
		Request: req, PathParams: params, QueryParams: req.URL.Query(),
		Route:   &routers.Route{Spec: doc, Path: rt.template, PathItem: item, Method: rt.method, Operation: operation},
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	if res.StatusCode < 300 && !strings.Contains(string(sent), "1e400") { // the validator's numbers are float64
		if err := openapi3filter.ValidateRequest(context.Background(), input); err != nil {
			c.t.Errorf("accepted, yet not as described: %s %s %s: %v", req.Method, req.URL, sent, err)
		}
	}
	if req.Method == http.MethodHead || strings.Contains(string(got), "1e400") {
		return
	}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: res.StatusCode, Header: res.Header,
		Body: io.NopCloser(bytes.NewReader(got)), Options: input.Options,
	})
	if err != nil {
		c.t.Errorf("answer not as described: %s %s: %d %s: %v", req.Method, req.URL, res.StatusCode, got, err)
	}
}

// routeOf finds the route of a request and the values of its ids.
func routeOf(req *http.Request) (route, []string, bool) {
	method := req.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	segments := strings.Split(req.URL.EscapedPath(), "/")
	for _, rt := range routes() {
		if rt.method != method || !rt.matches(segments) {
			continue
		}
		var values []string
		for i, s := range strings.Split(rt.template, "/") {
			if strings.HasPrefix(s, "{") {
				value, _ := url.PathUnescape(segments[i])
				if i == len(segments)-1 {
					value, _ = cutVerb(value)
				}
				values = append(values, value)
			}
		}
		return rt, values, true
	}
	return route{}, nil, false
}

// TestEveryRouteIsDescribed and the reverse, with the actions and the query parameters of each.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	doc, err := contract()
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]*openapi3.Operation{}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			described[method+" "+path] = operation
		}
	}
	for _, rt := range routes() {
		name := rt.method + " " + rt.template
		operation := described[name]
		if operation == nil {
			t.Errorf("%s is not described", name)
			continue
		}
		delete(described, name)
		var actions, query []string
		listed, _ := operation.Extensions["x-actions"].([]any)
		for _, a := range listed {
			actions = append(actions, a.(string))
		}
		for _, p := range operation.Parameters {
			if p.Value.In == "query" {
				query = append(query, p.Value.Name)
			}
		}
		var want []string
		for _, a := range rt.actions {
			want = append(want, string(a))
		}
		if !slices.Equal(actions, want) || !slices.Equal(query, rt.query) {
			t.Errorf("%s: described with actions %v and query %v, has %v and %v", name, actions, query, want, rt.query)
		}
		if operation.Summary == "" || operation.Description == "" || operation.OperationID == "" {
			t.Errorf("%s lacks a summary, a description or an operationId", name)
		}
		checkExamples(t, name, operation)
	}
	for _, path := range []string{"/livez", "/readyz", "/openapi.yaml", "/docs"} {
		if described["GET "+path] == nil {
			t.Errorf("%s is not described", path)
		}
		delete(described, "GET "+path)
	}
	for name := range described {
		t.Errorf("%s is described and not served", name)
	}
}

func checkExamples(t *testing.T, name string, operation *openapi3.Operation) {
	if operation.RequestBody != nil && len(operation.RequestBody.Value.Content["application/json"].Examples) == 0 {
		t.Errorf("%s: the request has no example", name)
	}
	for status, res := range operation.Responses.Map() {
		if len(res.Value.Content["application/json"].Examples) == 0 {
			t.Errorf("%s: the answer %s has no example", name, status)
		}
	}
}

// TestEveryKindHasAStatusAndAnEntry: no kind is left unmapped, and errors.json tells the same.
func TestEveryKindHasAStatusAndAnEntry(t *testing.T) {
	t.Parallel()
	var entries []struct {
		Code     errs.Kind `json:"code"`
		HTTP     *int      `json:"http"`
		Meaning  string    `json:"meaning"`
		WhatToDo string    `json:"what_to_do"`
	}
	if err := json.Unmarshal(api.Errors, &entries); err != nil {
		t.Fatal(err)
	}
	socketOnly := []errs.Kind{errs.DeliveryLeaseLost, errs.AttemptLeaseLost}
	var listed []errs.Kind
	for _, e := range entries {
		listed = append(listed, e.Code)
		if e.Meaning == "" || e.WhatToDo == "" {
			t.Errorf("%s: says too little", e.Code)
		}
		switch only := slices.Contains(socketOnly, e.Code); {
		case only != (e.HTTP == nil):
			t.Errorf("%s: http must be null for the sockets' codes and only for them", e.Code)
		case !only && *e.HTTP != statuses[e.Code]:
			t.Errorf("%s: listed as %d, answered as %d", e.Code, *e.HTTP, statuses[e.Code])
		}
	}
	for _, kind := range errs.Kinds {
		if statuses[kind] == 0 {
			t.Errorf("%s has no status", kind)
		}
		if !slices.Contains(listed, kind) {
			t.Errorf("%s is not in errors.json", kind)
		}
	}
	if len(statuses) != len(errs.Kinds) || len(entries) != len(errs.Kinds) {
		t.Errorf("%d statuses and %d entries for %d kinds", len(statuses), len(entries), len(errs.Kinds))
	}
	if !reflect.DeepEqual(retryAfter, map[errs.Kind]string{errs.CapacityExceeded: "1", errs.Unavailable: "1"}) {
		t.Errorf("Retry-After: %v", retryAfter)
	}
}
