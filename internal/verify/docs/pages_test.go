package docs_test

import (
	"cmp"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// TestTrackRecord wants each fault to name the test that guards against it: the name in brackets where there is
// one, as the other is that of the commit.
func TestTrackRecord(t *testing.T) {
	t.Parallel()
	const page = "docs/evidence/track-record.md"
	tests := make(map[string]string) // sources by package
	for _, name := range named(t, isTest) {
		tests[path.Dir(name)] += read(t, name)
	}
	faults := 0
	for _, m := range regexp.MustCompile(`(?m)\): [0-9a-f]{8} (\S+) (\w+)(?: \[(\w+)\])?$`).FindAllStringSubmatch(read(t, page), -1) {
		name := cmp.Or(m[3], m[2])
		if faults++; !strings.Contains(tests[m[1]], "\nfunc "+name+"(") {
			t.Errorf("%s: %s has no %s", page, m[1], name)
		}
	}
	for _, m := range regexp.MustCompile(`(queue|engine|lock)\.(Test\w+)`).FindAllStringSubmatch(read(t, page), -1) {
		dir := map[string]string{"queue": "queue", "engine": "internal/engine", "lock": "lock"}[m[1]]
		if faults++; !strings.Contains(tests[dir], "\nfunc "+m[2]+"(") {
			t.Errorf("%s: %s has no %s", page, dir, m[2])
		}
	}
	expect.That(t, faults >= 90, "%s: want 90 tests or more, have %d", page, faults)
}

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
	expect.That(t, len(found) >= 10, "want asynq's options, have %q", found)
	for field := range reflect.TypeFor[asynq.Config]().Fields() {
		found[field.Name] = "asynq.Config"
	}
	wantListed(t, fromAsynq, inPage, found)
}

// optionsOfAsynq returns the functions of asynq that make an Option, with their files.
func optionsOfAsynq(t *testing.T) map[string]string {
	t.Helper()
	pkg := expect.Value(build.Import(reflect.TypeFor[asynq.Config]().PkgPath(), root, 0))(t)
	names := make(map[string]string)
	for _, name := range pkg.GoFiles {
		file := expect.Value(parser.ParseFile(token.NewFileSet(), filepath.Join(pkg.Dir, name), nil, 0))(t)
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
	expect.Need(t, block != nil, "%s: want a diff", fromAsynq)
	out, err := exec.CommandContext(t.Context(), "diff", "-U1", filepath.Join(root, "examples/fromasynq/before/main.go"), filepath.Join(root, "examples/fromasynq/after/main.go")).Output()
	expect.Need(t, len(out) != 0, "want two programs that differ, have %v", err)
	if _, want, _ := strings.Cut(string(out), "\n@@"); "@@"+want != block[1] {
		t.Errorf("%s: want this diff:\n@@%s", fromAsynq, want)
	}
}
