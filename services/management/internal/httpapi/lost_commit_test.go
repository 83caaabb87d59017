package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"git.yuntuo.hk/k2safe/orbit/pkg/httpserver"
	"git.yuntuo.hk/k2safe/orbit/pkg/ids"
	"git.yuntuo.hk/k2safe/orbit/pkg/storetest"
)

// TestALostCommitIsSettledByTheKey is C3 over HTTP: the connection dies before or after COMMIT took
// effect, the caller hears UNAVAILABLE and repeats with the same key. Exactly one effect.
func TestALostCommitIsSettledByTheKey(t *testing.T) {
	t.Parallel()
	for fate, name := range map[storetest.Fate]string{storetest.DropBefore: "before", storetest.DropAfter: "after"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			proxy := r.NewProxy(t)
			health := httpserver.NewHealth(context.Background(), proxy.Store.Ping)
			server := httptest.NewServer(New(proxy.Store, health, nop(), Options{}))
			defer server.Close()
			for name, q := range r.writes(t) {
				q.key = ids.New().String()
				var commits atomic.Int32
				proxy.Decide(func(query string) storetest.Fate {
					if strings.EqualFold(strings.TrimSpace(query), "COMMIT") && commits.Add(1) == 1 {
						return fate
					}
					return storetest.Pass
				})
				audits := r.count(t, "SELECT COUNT(*) FROM audit")
				through := &rig{DB: r.DB, url: server.URL, client: r.client, tenant: r.tenant}
				lost := through.do(t, q).want(t, 503, "UNAVAILABLE", "the database cannot be reached")
				if lost.header.Get("Retry-After") != "1" {
					t.Errorf("%s: Retry-After %q", name, lost.header.Get("Retry-After"))
				}
				first := through.do(t, q)
				text, deduplicated := first.resource(t, resourceOf(name))
				if first.status >= http.StatusBadRequest || deduplicated != (fate == storetest.DropAfter) {
					t.Errorf("%s, lost %v COMMIT: then %d %s", name, fate, first.status, first.raw)
				}
				if again, _ := through.do(t, q).ok(t, 200).resource(t, resourceOf(name)); again != text {
					t.Errorf("%s: first %s, then %s", name, text, again)
				}
				if n := r.count(t, "SELECT COUNT(*) FROM audit") - audits; n != 1 {
					t.Errorf("%s: %d audit rows", name, n)
				}
			}
		})
	}
}
