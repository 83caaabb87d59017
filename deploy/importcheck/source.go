package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
)

// checkSources parses the product files of the packages that rules bind and returns each breach.
func (g *graph) checkSources(rules []sourceRule) ([]breach, error) {
	var found []breach
	fset := token.NewFileSet()
	for _, ip := range g.ours {
		bound := slices.DeleteFunc(slices.Clone(rules), func(r sourceRule) bool { return !r.from.has(ip) })
		if len(bound) == 0 {
			continue
		}
		p := g.pkgs[ip]
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, fmt.Errorf("parse %s of %s: %w", name, short(ip), err)
			}
			for _, r := range bound {
				found = append(found, checkFile(fset, f, ip, r)...)
			}
		}
	}
	return found, nil
}

// checkFile returns each use in f of a member that r forbids, called or not: a function taken as a value is used too.
func checkFile(fset *token.FileSet, f *ast.File, importPath string, r sourceRule) []breach {
	var found []breach
	report := func(n ast.Node, what string) {
		at := fset.Position(n.Pos())
		where := fmt.Sprintf("%s/%s:%d", short(importPath), filepath.Base(at.Filename), at.Line)
		found = append(found, breach{where, what, r.name, r.reason})
	}
	local := map[string]string{} // the name in this file → the import path
	for _, spec := range f.Imports {
		ip, err := strconv.Unquote(spec.Path.Value)
		if err != nil || !r.pkg.has(ip) {
			continue
		}
		name := path.Base(ip)
		if name == "v2" {
			name = path.Base(path.Dir(ip))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "." {
			report(spec, "imports "+ip+" into its own names, where its uses cannot be seen")
			continue
		}
		local[name] = ip
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && local[x.Name] != "" && r.member(sel.Sel.Name) {
				report(sel, "uses "+local[x.Name]+"."+sel.Sel.Name)
			}
		}
		return true
	})
	return found
}
