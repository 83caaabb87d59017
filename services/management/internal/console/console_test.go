package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"

	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/subscription"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

func TestPage(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	sub := db.Subscribe(t, tenant, subscription.Create{Name: "receiver"})
	db.Submit(t, tenant, `1`)
	server := httptest.NewServer(New(db.Management, "right", zaptest.NewLogger(t)))
	t.Cleanup(server.Close)
	for name, c := range map[string]struct {
		method, user, password string
		status                 int
		contains               []string
	}{
		"right":          {http.MethodGet, User, "right", 200, []string{"receiver", sub.String(), tenant.QueueID.String(), "0 of 100"}},
		"wrong password": {http.MethodGet, User, "wrong", 401, nil},
		"wrong user":     {http.MethodGet, "admin", "right", 401, nil},
		"nobody":         {http.MethodGet, "", "", 401, nil},
		"writing":        {http.MethodPost, User, "right", 405, nil},
	} {
		req, err := http.NewRequest(c.method, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.user != "" {
			req.SetBasicAuth(c.user, c.password)
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != c.status {
			t.Errorf("%s: %d, %v", name, resp.StatusCode, err)
		}
		for _, want := range c.contains {
			if !strings.Contains(string(body), want) {
				t.Errorf("%s: no %q in\n%s", name, want, body)
			}
		}
		if c.status != 200 && strings.Contains(string(body), "receiver") {
			t.Errorf("%s: the page leaks", name)
		}
	}
}
