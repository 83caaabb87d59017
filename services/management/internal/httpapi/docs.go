package httpapi

import (
	"net/http"

	"git.yuntuo.hk/k2safe/orbit/api"
)

// description answers the OpenAPI document this API is tested against.
func description(w http.ResponseWriter, _ *http.Request) {
	serveFile(w, "application/yaml", api.OpenAPI)
}

func serveFile(w http.ResponseWriter, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body) // a reader that has gone is not a fault of ours
}
