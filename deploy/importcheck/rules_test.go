package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// edges describes a graph: each line is "package -> imports…", "package test-> imports…" or "package xtest-> imports…".
// Packages of ours are written without prefix; a path without a dot in its first part that is not ours is the standard library's.
func edges(lines ...string) *graph {
	pkgs := map[string]*goPkg{}
	var list []*goPkg
	get := func(name string) *goPkg {
		ip, standard := name, false
		switch first, _, _ := strings.Cut(name, "/"); {
		case slices.Contains([]string{"pkg", "services", "sdk", "api", "migrations", "deploy"}, first):
			ip = prefix + name
		case !strings.Contains(first, "."):
			standard = true
		}
		if pkgs[ip] == nil {
			pkgs[ip] = &goPkg{ImportPath: ip, Standard: standard}
			list = append(list, pkgs[ip])
		}
		return pkgs[ip]
	}
	for _, line := range lines {
		words := strings.Fields(line)
		p := get(words[0])
		for _, w := range words[2:] {
			ip := get(w).ImportPath
			switch words[1] {
			case "->":
				p.Imports = append(p.Imports, ip)
			case "test->":
				p.TestImports = append(p.TestImports, ip)
			case "xtest->":
				p.XTestImports = append(p.XTestImports, ip)
			default:
				panic("bad line: " + line)
			}
		}
	}
	return newGraph(list)
}

var importCases = []struct {
	name  string
	graph []string
	want  []string // "rule: package imports way"
}{
	{"a service imports the other", []string{"services/management/internal/background -> services/gateway/internal/wire"},
		[]string{"management-not-gateway: services/management/internal/background imports services/gateway/internal/wire"}},
	{"and the other way round, in a test", []string{"services/gateway/internal/hub xtest-> services/management/internal/admin"},
		[]string{"gateway-not-management: services/gateway/internal/hub (test) imports services/management/internal/admin"}},
	{"through a third package", []string{"services/gateway -> deploy/local", "deploy/local -> services/management"},
		[]string{"gateway-not-management: services/gateway imports deploy/local → services/management"}},
	{"both over pkg", []string{"services/gateway -> pkg/store", "services/management -> pkg/store"}, nil},

	{"pkg imports a service", []string{"pkg/store -> services/gateway/internal/hub"},
		[]string{"pkg-below-services: pkg/store imports services/gateway/internal/hub"}},
	{"pkg imports the SDK", []string{"pkg/storetest -> sdk/go"},
		[]string{"pkg-not-sdk: pkg/storetest imports sdk/go"}},
	{"a service imports the SDK", []string{"services/gateway test-> sdk/go"},
		[]string{"services-not-sdk: services/gateway (test) imports sdk/go"}},
	{"what may import the SDK", []string{"deploy/e2e -> sdk/go", "deploy/bench -> sdk/go", "sdk/orbitctl -> sdk/go"}, nil},

	{"the command line imports the server", []string{"sdk/orbitctl -> pkg/errs", "sdk/orbitctl -> migrations"},
		[]string{"sdk-not-server: sdk/orbitctl imports pkg/errs", "sdk-not-server: sdk/orbitctl imports migrations"}},
	{"sdk/go imports another part", []string{"sdk/go/inbox -> api"},
		[]string{"sdk-go-alone: sdk/go/inbox imports api"}},
	{"sdk/go imports itself and others' modules", []string{"sdk/go/inbox -> sdk/go database/sql", "sdk/go -> github.com/gorilla/websocket net/http"}, nil},

	{"a pure package reaches a database", []string{"pkg/task -> pkg/ids", "pkg/ids -> example.org/x", "example.org/x -> database/sql"},
		[]string{"pure: pkg/task imports pkg/ids → example.org/x → database/sql"}},
	{"a pure package reaches HTTP", []string{"pkg/flow -> net/http/httptrace"},
		[]string{"pure: pkg/flow imports net/http/httptrace"}},
	{"a pure package imports a logger", []string{"pkg/queue -> go.uber.org/zap"},
		[]string{"pure: pkg/queue imports go.uber.org/zap"}},
	{"what pure packages and their tests may do", []string{
		"pkg/result -> time math/rand/v2 pkg/errs github.com/google/uuid", "github.com/google/uuid -> database/sql/driver crypto/rand",
		"pkg/result test-> net/http", "pkg/store -> database/sql",
	}, nil},
	{"a pure package draws random bytes", []string{"pkg/access -> crypto/rand"},
		[]string{"pure-no-crypto-rand: pkg/access imports crypto/rand"}},

	{"mysqld imports a module", []string{"pkg/mysqld -> pkg/ids", "pkg/ids -> example.org/x"},
		[]string{"standard-library-only: pkg/mysqld imports pkg/ids"}},
	{"mysqld imports the standard library", []string{"pkg/mysqld -> os/exec", "os/exec -> internal/poll"}, nil},

	{"sqlx outside the store", []string{"services/management xtest-> github.com/jmoiron/sqlx", "pkg/store -> github.com/jmoiron/sqlx", "deploy/local -> github.com/jmoiron/sqlx/reflectx"},
		[]string{
			"sqlx-only-in-store: deploy/local imports github.com/jmoiron/sqlx/reflectx",
			"sqlx-only-in-store: services/management (test) imports github.com/jmoiron/sqlx",
		}},
	{"the driver in a product file", []string{"sdk/go/inbox -> github.com/go-sql-driver/mysql", "services/gateway -> pkg/store", "pkg/store -> github.com/go-sql-driver/mysql"},
		[]string{"driver-only-in-store: sdk/go/inbox imports github.com/go-sql-driver/mysql"}},
	{"the driver in a helper for tests", []string{"pkg/storetest -> github.com/go-sql-driver/mysql"},
		[]string{"driver-only-in-store: pkg/storetest imports github.com/go-sql-driver/mysql"}},
	{"the driver in a test", []string{"pkg/mysqld test-> github.com/go-sql-driver/mysql"},
		[]string{"driver-in-tests: pkg/mysqld (test) imports github.com/go-sql-driver/mysql"}},
	{"where the driver may be", []string{
		"sdk/go/inbox xtest-> github.com/go-sql-driver/mysql", "deploy/e2e test-> github.com/go-sql-driver/mysql",
		"deploy/local -> github.com/go-sql-driver/mysql", "pkg/store test-> github.com/go-sql-driver/mysql",
	}, nil},

	{"gin behind the edge", []string{"services/management -> github.com/gin-gonic/gin", "services/gateway test-> github.com/gin-contrib/cors"},
		[]string{
			"gin-only-at-the-edge: services/gateway (test) imports github.com/gin-contrib/cors",
			"gin-only-at-the-edge: services/management imports github.com/gin-gonic/gin",
		}},
	{"gin at the edge", []string{
		"services/management/internal/httpapi -> github.com/gin-gonic/gin", "services/management/internal/console -> github.com/gin-gonic/gin",
		"services/management -> services/management/internal/httpapi",
	}, nil},

	{"gorilla behind the socket", []string{"services/gateway/internal/hub -> github.com/gorilla/websocket", "deploy/e2e -> github.com/gorilla/websocket"},
		[]string{
			"gorilla-only-at-the-socket: deploy/e2e imports github.com/gorilla/websocket",
			"gorilla-only-at-the-socket: services/gateway/internal/hub imports github.com/gorilla/websocket",
		}},
	{"gorilla in a test", []string{"services/management test-> github.com/gorilla/websocket"},
		[]string{"gorilla-in-tests: services/management (test) imports github.com/gorilla/websocket"}},
	{"where gorilla may be", []string{
		"services/gateway/internal/session -> github.com/gorilla/websocket", "services/gateway/internal/upgrade test-> github.com/gorilla/websocket",
		"services/gateway/internal/workers -> github.com/gorilla/websocket", "sdk/go -> github.com/gorilla/websocket",
		"deploy/e2e xtest-> github.com/gorilla/websocket",
	}, nil},

	{"test helpers in a product", []string{"services/gateway -> pkg/storetest", "pkg/store -> testing", "sdk/go -> net/http/httptest"},
		[]string{
			"no-test-package-in-product: pkg/store imports testing",
			"no-test-package-in-product: sdk/go imports net/http/httptest",
			"no-test-package-in-product: services/gateway imports pkg/storetest",
		}},
	{"test helpers where they belong", []string{
		"services/gateway test-> pkg/storetest", "pkg/storetest -> testing pkg/store", "sdk/go/orbittest -> net/http/httptest testing/synctest",
		"deploy/e2e -> pkg/storetest", "deploy/bench -> pkg/storetest",
	}, nil},
}

func TestImportRules(t *testing.T) {
	t.Parallel()
	fired := map[string]bool{}
	for _, c := range importCases {
		var got []string
		for _, b := range edges(c.graph...).check(importRules) {
			got = append(got, b.rule+": "+b.where+" "+b.what)
			fired[b.rule] = true
			if b.reason == "" {
				t.Errorf("rule %s has no reason", b.rule)
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
	for _, r := range importRules {
		if !fired[r.name] {
			t.Errorf("no case shows rule %s firing", r.name)
		}
	}
}

func TestSourceRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"calls", `import ("time"; "math/rand"); var _, _ = time.Now(), rand.Intn(3)`,
			[]string{"pure-no-clock: uses time.Now", "pure-no-global-rand: uses math/rand.Intn"}},
		{"as a value, under another name", `import clock "time"; import dice "math/rand/v2"; var now, roll = clock.Now, dice.N[int]`,
			[]string{"pure-no-clock: uses time.Now", "pure-no-global-rand: uses math/rand/v2.N"}},
		{"version in the path", `import "math/rand/v2"; var _ = rand.Uint64()`,
			[]string{"pure-no-global-rand: uses math/rand/v2.Uint64"}},
		{"hidden", `import . "time"`,
			[]string{"pure-no-clock: imports time into its own names, where its uses cannot be seen"}},
		{"allowed", `import ("time"; "math/rand/v2"); func f(now time.Time, r *rand.Rand) time.Time { return now.Add(time.Second * time.Duration(r.IntN(3))) }
			var _ = rand.New(rand.NewPCG(1, 2))`, nil},
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "x.go", "package p; "+c.text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, r := range sourceRules {
			for _, b := range checkFile(fset, f, prefix+"pkg/task", r) {
				got = append(got, b.rule+": "+b.what)
				if b.where != "pkg/task/x.go:1" {
					t.Errorf("%s: at %s", c.name, b.where)
				}
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestSourceRulesReadProductFilesOfPurePackages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("package a\nimport \"time\"\nvar T = time.Now()\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := newGraph([]*goPkg{
		{ImportPath: prefix + "pkg/schedule", Dir: dir, GoFiles: []string{"a.go"}},
		{ImportPath: prefix + "pkg/store", Dir: dir, GoFiles: []string{"a.go"}},
	})
	found, err := g.checkSources(sourceRules)
	if err != nil || len(found) != 1 || found[0].where != "pkg/schedule/a.go:3" {
		t.Errorf("checkSources = %v, %v; want the one use in pkg/schedule", found, err)
	}
}

func TestParseReadsTestVariantsAsOnePackage(t *testing.T) {
	t.Parallel()
	g, err := parse(strings.NewReader(`
		{"ImportPath": "` + prefix + `pkg/a", "Imports": ["fmt"], "XTestImports": ["` + prefix + `pkg/b"]}
		{"ImportPath": "fmt", "Standard": true}
		{"ImportPath": "` + prefix + `pkg/a [` + prefix + `pkg/a.test]", "ForTest": "` + prefix + `pkg/a", "Imports": ["fmt", "testing"]}
		{"ImportPath": "` + prefix + `pkg/a_test [` + prefix + `pkg/a.test]", "ForTest": "` + prefix + `pkg/a"}
		{"ImportPath": "` + prefix + `pkg/a.test"}
		{"ImportPath": "` + prefix + `pkg/b [` + prefix + `pkg/a.test]", "ForTest": "` + prefix + `pkg/a", "Imports": ["` + prefix + `pkg/a [` + prefix + `pkg/a.test]"]}
		{"ImportPath": "` + prefix + `pkg/c", "Error": {"Err": "no such import"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{prefix + "pkg/a", prefix + "pkg/b", prefix + "pkg/c"}; !slices.Equal(g.ours, want) {
		t.Errorf("packages %q, want %q", g.ours, want)
	}
	if got := g.pkgs[prefix+"pkg/a"].Imports; !slices.Equal(got, []string{"fmt"}) {
		t.Errorf("imports of pkg/a: %q; those of its tests do not belong there", got)
	}
	if got := g.pkgs[prefix+"pkg/b"].Imports; !slices.Equal(got, []string{prefix + "pkg/a"}) {
		t.Errorf("imports of pkg/b: %q", got)
	}
	if want := []string{prefix + "pkg/c: no such import"}; !slices.Equal(g.broken, want) {
		t.Errorf("broken %q, want %q", g.broken, want)
	}
}
