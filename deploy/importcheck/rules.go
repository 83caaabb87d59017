package main

import (
	"path"
	"slices"
	"strings"
)

// prefix begins the import path of everything in this repository. Rules name our packages by what follows it.
const prefix = "git.yuntuo.hk/k2safe/orbit/"

// set is a list of import path patterns. "a/b" is that package alone; "a/b/..." is it and all below it; "..." is everything.
// One of our packages is written without prefix.
type set []string

func (s set) has(importPath string) bool {
	importPath = strings.TrimPrefix(importPath, prefix)
	return slices.ContainsFunc(s, func(pattern string) bool {
		if pattern == "..." {
			return true
		}
		if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
			return importPath == tree || strings.HasPrefix(importPath, tree+"/")
		}
		return importPath == pattern
	})
}

// files says which files of a package a rule binds.
type files int

const (
	productFiles files = 1 << iota
	testFiles
	allFiles = productFiles | testFiles
)

// importRule forbids the packages in from, but for those in except, to import what deny or denies names.
type importRule struct {
	name   string
	reason string

	from   set
	except set
	exempt func(*goPkg) bool // more exceptions, for what a pattern cannot say
	files  files

	deny   set
	denies func(*goPkg) bool // more that is denied
	allow  set               // never denied
	reach  bool              // also through other packages
}

// pure are the packages that hold rules and state tables and nothing else.
var pure = set{
	"pkg/errs/...", "pkg/access/...", "pkg/queue/...", "pkg/task/...", "pkg/result/...", "pkg/subscription/...",
	"pkg/delivery/...", "pkg/schedule/...", "pkg/flow/...",
}

var (
	sqlx    = set{"github.com/jmoiron/sqlx/..."}
	driver  = set{"github.com/go-sql-driver/mysql/..."}
	gin     = set{"github.com/gin-gonic/...", "github.com/gin-contrib/..."}
	gorilla = set{"github.com/gorilla/..."}
	zap     = set{"go.uber.org/zap/..."}
)

// importRules is the section "Imports that must not be" of the architecture, row by row.
var importRules = []importRule{
	{
		name: "management-not-gateway", reason: "the two services meet only in tables, so that each is deployed and fails alone",
		from: set{"services/management/..."}, files: allFiles, deny: set{"services/gateway/..."}, reach: true,
	},
	{
		name: "gateway-not-management", reason: "the two services meet only in tables, so that each is deployed and fails alone",
		from: set{"services/gateway/..."}, files: allFiles, deny: set{"services/management/..."}, reach: true,
	},
	{
		name: "pkg-below-services", reason: "pkg is what services are built on, so it knows none of them",
		from: set{"pkg/..."}, files: allFiles, deny: set{"services/..."}, reach: true,
	},
	{
		name: "pkg-not-sdk", reason: "the SDK is the client's view; a server built on it would hide a wrong contract",
		from: set{"pkg/..."}, files: allFiles, deny: set{"sdk/..."}, reach: true,
	},
	{
		name: "services-not-sdk", reason: "the SDK is the client's view; a server built on it would hide a wrong contract",
		from: set{"services/..."}, files: allFiles, deny: set{"sdk/..."}, reach: true,
	},
	{
		name: "sdk-not-server", reason: "a client knows the contract, never the server's code or tables",
		from: set{"sdk/..."}, files: allFiles, deny: set{"pkg/...", "services/...", "migrations/..."}, reach: true,
	},
	{
		name: "sdk-go-alone", reason: "users fetch sdk/go by itself, so it needs nothing else of this repository",
		from: set{"sdk/go/..."}, files: allFiles, denies: isOurs, allow: set{"sdk/go/..."}, reach: true,
	},
	{
		name: "pure", reason: "a pure package takes time, randomness and data as arguments, so every state can be tested without a server",
		from: pure, files: productFiles, reach: true,
		deny: slices.Concat(set{"database/sql", "net/http/..."}, driver, sqlx, gin, gorilla, zap),
	},
	{
		name: "pure-no-crypto-rand", reason: "randomness comes in as an argument",
		from: pure, files: productFiles, deny: set{"crypto/rand"},
	},
	{
		name: "standard-library-only", reason: "what everything imports, and what starts the database, must not bring modules along",
		from: set{"pkg/errs/...", "pkg/mysqld/..."}, files: productFiles, denies: isOutside, allow: set{"pkg/errs/...", "pkg/mysqld/..."}, reach: true,
	},
	{
		name: "sqlx-only-in-store", reason: "all SQL is in pkg/store",
		from: set{"..."}, except: set{"pkg/store/..."}, files: allFiles, deny: sqlx,
	},
	{
		name: "driver-only-in-store", reason: "all SQL is in pkg/store; deploy holds the local stack and the tools beside it, the SDK's examples a receiver of their own",
		from: set{"..."}, except: set{"pkg/store/...", "deploy/...", "sdk/go/examples/..."}, files: productFiles, deny: driver,
	},
	{
		name: "driver-in-tests", reason: "tests reach the database through pkg/storetest; only the SDK's inbox and deploy open their own",
		from: set{"..."}, except: set{"pkg/store/...", "deploy/...", "sdk/go/..."}, files: testFiles, deny: driver,
	},
	{
		name: "gin-only-at-the-edge", reason: "HTTP ends in httpapi and console, so that everything behind them is tested without it",
		from: set{"..."}, except: set{"services/management/internal/httpapi/...", "services/management/internal/console/..."},
		files: allFiles, deny: gin,
	},
	{
		name: "gorilla-only-at-the-socket", reason: "sockets end in upgrade, session and workers, so that everything behind them is tested without one",
		from: set{"..."}, except: sockets, files: productFiles, deny: gorilla,
	},
	{
		name: "gorilla-in-tests", reason: "only the tests of the gateway, of the SDK and end to end speak raw frames",
		from: set{"..."}, except: append(set{"deploy/e2e/...", "services/gateway"}, sockets...), files: testFiles, deny: gorilla,
	},
	{
		name: "no-test-package-in-product", reason: "helpers for tests must not be linked into what users run",
		from: set{"..."}, except: set{"deploy/e2e/...", "deploy/bench/..."}, exempt: isTestPackage, files: productFiles, denies: isTestPackage,
	},
}

var sockets = set{
	"services/gateway/internal/upgrade/...", "services/gateway/internal/session/...", "services/gateway/internal/workers/...", "sdk/go/...",
	"deploy/bench/...", // its raw client is what the SDK is measured against
}

// sourceRule forbids product files of the packages in from to name certain members of a package.
type sourceRule struct {
	name   string
	reason string
	from   set
	pkg    set
	member func(name string) bool // reports whether a member is forbidden
}

var sourceRules = []sourceRule{
	{
		name: "pure-no-clock", reason: "time comes in as an argument, and the database's clock decides",
		from: pure, pkg: set{"time"},
		member: names("Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"),
	},
	{
		name: "pure-no-global-rand", reason: "randomness comes in as an argument",
		from: pure, pkg: set{"math/rand", "math/rand/v2"},
		// What builds or is a generator is allowed, so new functions of the package are forbidden until named here.
		member: func(name string) bool {
			return !names("New", "NewSource", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "Source64", "PCG", "ChaCha8", "Zipf")(name)
		},
	},
}

func names(list ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(list, name) }
}

func isOurs(p *goPkg) bool { return strings.HasPrefix(p.ImportPath, prefix) }

func isOutside(p *goPkg) bool { return !p.Standard }

// isTestPackage reports whether p exists for tests: storetest and orbittest of ours, httptest and testing of the standard library.
func isTestPackage(p *goPkg) bool {
	if p.Standard && (p.ImportPath == "testing" || strings.HasPrefix(p.ImportPath, "testing/")) {
		return true
	}
	return (p.Standard || isOurs(p)) && strings.HasSuffix(path.Base(p.ImportPath), "test")
}
