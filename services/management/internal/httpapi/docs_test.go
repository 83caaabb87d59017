package httpapi

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/api"
	"git.yuntuo.hk/k2safe/orbit/pkg/errs"
	"git.yuntuo.hk/k2safe/orbit/pkg/httpserver"
)

func TestDescriptionAndPageAreServed(t *testing.T) {
	t.Parallel()
	health := httpserver.NewHealth(context.Background(), func(context.Context) error { return nil })
	server := httptest.NewServer(New(nil, health, nop(), Options{}))
	defer server.Close()
	read := func(path string) (string, http.Header) {
		res, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %v", path, res.StatusCode, err)
		}
		return string(body), res.Header
	}
	if got, h := read("/openapi.yaml"); got != string(api.OpenAPI) || h.Get("Content-Type") != "application/yaml" {
		t.Errorf("/openapi.yaml: %d bytes of %s", len(got), h.Get("Content-Type"))
	}
	html, h := read("/docs")
	if !strings.HasPrefix(h.Get("Content-Type"), "text/html") || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("/docs: %v", h)
	}
	for _, rt := range routes() {
		if !strings.Contains(html, "<code>"+rt.template+"</code>") {
			t.Errorf("/docs lacks %s", rt.template)
		}
	}
	for _, kind := range errs.Kinds {
		if !strings.Contains(html, "<code>"+string(kind)+"</code>") {
			t.Errorf("/docs lacks %s", kind)
		}
	}
	if outside := regexp.MustCompile(`(?i)(https?:)?//[a-z]|<script|<link|@import|url\(`).FindString(html); outside != "" {
		t.Errorf("/docs is not self-contained: %q", outside)
	}
	for _, broken := range []string{"&lt;nil&gt;", "map[", "%!", "[{"} {
		if strings.Contains(html, broken) {
			t.Errorf("/docs shows %q", broken)
		}
	}
}
