package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap/zaptest"

	"git.yuntuo.hk/k2safe/orbit/pkg/flow"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
	"git.yuntuo.hk/k2safe/orbit/pkg/strictjson"
)

// TestRunPage: a live run is listed and drawn with its steps' states; other paths are 404.
func TestRunPage(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	tenant := db.Tenant(t)
	create := flow.Create{Name: "thumbs", Steps: []flow.Step{
		{Name: "fetch", QueueID: &tenant.QueueID, Input: strictjson.Raw(`1`)},
		{Name: "resize", QueueID: &tenant.QueueID, Input: strictjson.Raw(`2`), DependsOn: []string{"fetch"}},
	}}
	plan, err := create.Plan()
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := db.Management.CreateFlow(t.Context(), tenant.Write(), "thumbs", plan)
	if err != nil {
		t.Fatal(err)
	}
	var f flow.Flow
	if err := json.Unmarshal(receipt.Snapshot, &f); err != nil {
		t.Fatal(err)
	}
	receipt, err = db.Management.StartFlow(t.Context(), tenant.Write(), f.ID, flow.Start{Input: strictjson.Raw(`1`)})
	if err != nil {
		t.Fatal(err)
	}
	var run flow.RunRecord
	if err := json.Unmarshal(receipt.Snapshot, &run); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(New(db.Management, "right", zaptest.NewLogger(t)))
	t.Cleanup(server.Close)
	here := Path + "/runs/" + tenant.NamespaceID.String() + "/"
	for path, want := range map[string]struct {
		status int
		texts  []string
	}{
		Path:                      {200, []string{here + run.ID.String(), "thumbs, version 1"}},
		here + run.ID.String():    {200, []string{`<g class="SUBMITTED"`, `<g class="WAITING"`, "WAITING · STEPS", "<line ", "fetch", "resize"}},
		here + ids.New().String(): {404, nil},
		here + "x":                {404, nil},
		Path + "/other":           {404, nil},
	} {
		req, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth(User, "right")
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != want.status {
			t.Errorf("%s: %d, %v", path, resp.StatusCode, err)
		}
		for _, text := range want.texts {
			if !strings.Contains(string(body), text) {
				t.Errorf("%s: no %q in\n%s", path, text, body)
			}
		}
	}
}
