package orbit_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const module = "git.yuntuo.hk/k2safe/orbit/sdk/go"

// The exported API names only types of the standard library and of this module: no driver's, no WebSocket
// library's (which may then be replaced).
func TestPublicAPIHasNoForeignType(t *testing.T) {
	t.Parallel()
	compiled := importer.ForCompiler(token.NewFileSet(), "gc", exportData(t))
	for _, path := range []string{module, module + "/inbox", module + "/orbittest"} {
		pkg, err := compiled.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		w := &walker{seen: map[types.Type]bool{}, foreign: map[string]bool{}}
		for _, name := range pkg.Scope().Names() {
			if object := pkg.Scope().Lookup(name); object.Exported() {
				w.walk(object.Type())
				w.objects++
			}
		}
		for name := range w.foreign {
			t.Errorf("%s shows %s", path, name)
		}
		if w.objects < 3 {
			t.Errorf("%s: only %d exported objects were seen", path, w.objects)
		}
	}
}

// exportData finds what the compiler wrote about each package that the API may name.
func exportData(t *testing.T) importer.Lookup {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}

// walker follows every type that users of an exported object can see.
type walker struct {
	seen    map[types.Type]bool
	foreign map[string]bool
	objects int
}

func (w *walker) walk(t types.Type) {
	if w.seen[t] {
		return
	}
	w.seen[t] = true
	switch t := t.(type) {
	case *types.Named:
		w.named(t)
	case *types.Alias:
		w.walk(t.Rhs())
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels, maps
		w.walk(t.Elem())
		if m, ok := t.(*types.Map); ok {
			w.walk(m.Key())
		}
	case *types.Struct:
		for i := range t.NumFields() {
			if f := t.Field(i); f.Exported() || f.Embedded() {
				w.walk(f.Type())
			}
		}
	case *types.Signature:
		w.tuple(t.Params())
		w.tuple(t.Results())
	case *types.Interface:
		for i := range t.NumMethods() {
			w.walk(t.Method(i).Type())
		}
	}
}

func (w *walker) tuple(t *types.Tuple) {
	for i := range t.Len() {
		w.walk(t.At(i).Type())
	}
}

func (w *walker) named(t *types.Named) {
	for i := range t.TypeArgs().Len() {
		w.walk(t.TypeArgs().At(i))
	}
	pkg := t.Obj().Pkg()
	if pkg == nil {
		return
	}
	if path := pkg.Path(); path != module && !strings.HasPrefix(path, module+"/") {
		if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
			w.foreign[t.String()] = true
		}
		return
	}
	w.walk(t.Underlying())
	for i := range t.NumMethods() {
		if m := t.Method(i); m.Exported() {
			w.walk(m.Type())
		}
	}
}

// Every exported name says what it is, in `go doc` too.
func TestEveryExportedNameIsDocumented(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{".", "inbox", "orbittest"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+e.Name(), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range undocumented(file) {
				t.Errorf("%s/%s: %s has no comment", dir, e.Name(), name)
			}
		}
	}
}

func undocumented(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			// Error() and the like of an exported type are known by their name.
			if d.Name.IsExported() && d.Doc == nil && (d.Recv == nil || ast.IsExported(receiver(d)) && d.Name.Name != "Error" && d.Name.Name != "Unwrap") {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
						names = append(names, s.Name.Name)
					}
				case *ast.ValueSpec:
					if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						names = append(names, s.Names[0].Name)
					}
				}
			}
		}
	}
	return names
}

func receiver(d *ast.FuncDecl) string {
	return strings.TrimLeft(fmt.Sprint(types.ExprString(d.Recv.List[0].Type)), "*")
}
