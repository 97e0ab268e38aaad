package docs_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
)

// fromAsynq is the page for teams that have asynq programs.
const fromAsynq = "docs/guides/from-asynq.md"

// TestAsynqOptions wants each option of a task, and each field of a server's configuration, in a table of
// the page, and no others.
func TestAsynqOptions(t *testing.T) {
	t.Parallel()
	inPage := make(map[string]bool)
	for row := range listed(read(t, fromAsynq), "(?m)^\\| (`[A-Z]\\w+`(?:, `[A-Z]\\w+`)*) \\|") {
		maps.Copy(inPage, listed(row, `(\w+)`))
	}
	found := optionsOfAsynq(t)
	if len(found) < 10 {
		t.Errorf("want asynq's options, have %q", found)
	}
	for field := range reflect.TypeFor[asynq.Config]().Fields() {
		found[field.Name] = "asynq.Config"
	}
	wantListed(t, fromAsynq, inPage, found)
}

// optionsOfAsynq returns the functions of asynq that make an Option, with their files.
func optionsOfAsynq(t *testing.T) map[string]string {
	t.Helper()
	pkg, err := build.Import(reflect.TypeFor[asynq.Config]().PkgPath(), root, 0)
	must(t, err)
	names := make(map[string]string)
	for _, name := range pkg.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(pkg.Dir, name), nil, 0)
		must(t, err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() || f.Type.Results.NumFields() != 1 {
				continue
			}
			if result, ok := f.Type.Results.List[0].Type.(*ast.Ident); ok && result.Name == "Option" {
				names[f.Name.Name] = name
			}
		}
	}
	return names
}

// TestDiffOfTheExample wants the difference between the two programs on the page.
func TestDiffOfTheExample(t *testing.T) {
	t.Parallel()
	block := regexp.MustCompile("(?s)```diff\n(.*?)```").FindStringSubmatch(read(t, fromAsynq))
	if block == nil {
		t.Fatalf("%s: want a diff", fromAsynq)
	}
	out, err := exec.CommandContext(t.Context(), "diff", "-U1", filepath.Join(root, "examples/fromasynq/before/main.go"), filepath.Join(root, "examples/fromasynq/after/main.go")).Output()
	if len(out) == 0 {
		t.Fatalf("want two programs that differ, have %v", err)
	}
	if _, want, _ := strings.Cut(string(out), "\n@@"); "@@"+want != block[1] {
		t.Errorf("%s: want this diff:\n@@%s", fromAsynq, want)
	}
}
