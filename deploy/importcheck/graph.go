package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
)

// goPkg is what a rule looks at of one package, under the names that go list prints.
type goPkg struct {
	ImportPath   string
	Dir          string
	Standard     bool
	ForTest      string
	GoFiles      []string
	CgoFiles     []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Error        *struct{ Err string }
}

// graph is the packages of the workspace and all that they import, by import path.
type graph struct {
	pkgs   map[string]*goPkg
	ours   []string // sorted
	broken []string
}

// breach is one import or use that a rule forbids.
type breach struct {
	where  string // the package, with "(test)" or a file position
	what   string
	rule   string
	reason string
}

func (b breach) String() string {
	return fmt.Sprintf("%s %s\n\trule %s: %s", b.where, b.what, b.rule, b.reason)
}

// load asks the go command for every package of every module of the workspace.
func load(ctx context.Context) (*graph, error) {
	work, err := goCommand(ctx, "env", "GOWORK")
	if err != nil {
		return nil, err
	}
	if w := strings.TrimSpace(string(work)); w == "" || w == "off" {
		return nil, errors.New("no go.work here: run it inside the repository, with GOWORK unset")
	}
	modules, err := goCommand(ctx, "list", "-m", "-f", "{{.Path}}/...")
	if err != nil {
		return nil, err
	}
	// -e: a package that does not load is told with its name, and the others are still checked.
	args := append([]string{"list", "-e", "-deps", "-test", "-json=ImportPath,Dir,Standard,ForTest,GoFiles,CgoFiles,Imports,TestImports,XTestImports,Error"},
		strings.Fields(string(modules))...)
	out, err := goCommand(ctx, args...)
	if err != nil {
		return nil, err
	}
	return parse(bytes.NewReader(out))
}

// parse reads the stream of packages that go list prints.
func parse(r io.Reader) (*graph, error) {
	var list []*goPkg
	for dec := json.NewDecoder(r); ; {
		p := new(goPkg)
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			return newGraph(list), nil
		} else if err != nil {
			return nil, fmt.Errorf("read the package list: %w", err)
		}
		list = append(list, p)
	}
}

func newGraph(list []*goPkg) *graph {
	g := &graph{pkgs: make(map[string]*goPkg, len(list))}
	for _, p := range list {
		plain, _, variant := strings.Cut(p.ImportPath, " ") // "a [b.test]" is a, built again for the tests of b
		if p.Error != nil {
			g.broken = append(g.broken, plain+": "+p.Error.Err)
		}
		if strings.HasSuffix(plain, ".test") || p.ForTest != "" && strings.HasSuffix(plain, "_test") {
			continue // what tests import is in TestImports and XTestImports of the package itself
		}
		if _, known := g.pkgs[plain]; known && variant {
			continue
		}
		p.ImportPath = plain
		for i, ip := range p.Imports {
			p.Imports[i], _, _ = strings.Cut(ip, " ")
		}
		g.pkgs[plain] = p
	}
	slices.Sort(g.broken)
	g.broken = slices.Compact(g.broken)
	for _, ip := range slices.Sorted(maps.Keys(g.pkgs)) {
		if strings.HasPrefix(ip, prefix) {
			g.ours = append(g.ours, ip)
		}
	}
	return g
}

// check returns each breach of rules, in the order of packages.
func (g *graph) check(rules []importRule) []breach {
	var found []breach
	for _, from := range g.ours {
		p := g.pkgs[from]
		for _, r := range rules {
			if !r.from.has(from) || r.except.has(from) || r.exempt != nil && r.exempt(p) {
				continue
			}
			if r.files&productFiles != 0 {
				found = append(found, g.follow(p, "", p.Imports, r)...)
			}
			if r.files&testFiles != 0 {
				found = append(found, g.follow(p, " (test)", slices.Concat(p.TestImports, p.XTestImports), r)...)
			}
		}
	}
	return found
}

// follow walks from imports, breadth first, and returns one breach for each forbidden package, by the shortest way to it.
func (g *graph) follow(from *goPkg, kind string, imports []string, r importRule) []breach {
	var found []breach
	cameFrom := map[string]string{from.ImportPath: ""}
	queue := []string{}
	push := func(via string, imports []string) {
		for _, ip := range imports {
			if _, seen := cameFrom[ip]; !seen && ip != "C" {
				cameFrom[ip] = via
				queue = append(queue, ip)
			}
		}
	}
	push("", imports)
	for len(queue) > 0 {
		ip := queue[0]
		queue = queue[1:]
		p := g.pkgs[ip]
		if p == nil {
			p = &goPkg{ImportPath: ip}
		}
		if (r.deny.has(ip) || r.denies != nil && r.denies(p)) && !r.allow.has(ip) {
			way := []string{short(ip)}
			for via := cameFrom[ip]; via != ""; via = cameFrom[via] {
				way = append(way, short(via))
			}
			slices.Reverse(way)
			found = append(found, breach{short(from.ImportPath) + kind, "imports " + strings.Join(way, " → "), r.name, r.reason})
			continue // what lies behind a forbidden package follows from it
		}
		if r.reach {
			push(ip, p.Imports)
		}
	}
	return found
}

func short(importPath string) string { return strings.TrimPrefix(importPath, prefix) }

// goCommand runs the go command and returns its output. Its complaints are in the error.
func goCommand(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args[:2], " "), err, stderr.Bytes())
	}
	return out, nil
}
