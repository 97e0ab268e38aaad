package docs_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// errorsPage has the exported errors by package, and the exit statuses of the programs. What it says
// are the doc comments.
func errorsPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Errors\n" + head)
	b.WriteString("Compare errors by `errors.Is`, and get a type by `errors.AsType`: each error may be wrapped. An\n" +
		"error that matches none of these says that a server could not be asked, or did not answer. A wrong\n" +
		"argument is an error at once, which names the field and the value. [The log](logs.md) has the\n" +
		"messages of workers, and [troubleshooting](../guides/troubleshooting.md) goes by symptom.\n")
	rows := make(map[string][][]string)
	for _, name := range named(t, func(name string) bool {
		return isCode(name) && regexp.MustCompile(`^(lock|queue|inspect|worker)/`).MatchString(name) && !strings.Contains(name, "/internal/")
	}) {
		for _, decl := range parse(t, name).Decls {
			if decl, ok := decl.(*ast.GenDecl); ok {
				rows[path.Dir(name)] = append(rows[path.Dir(name)], errorsIn(t, path.Base(path.Dir(name)), decl)...)
			}
		}
	}
	maps.DeleteFunc(rows, func(_ string, found [][]string) bool { return len(found) == 0 })
	for _, folder := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "\n## Package %s\n\n", folder)
		table(&b, append([][]string{{"error", "meaning, and what to do"}}, rows[folder]...)...)
	}
	b.WriteString("\n## Exit statuses\n\n`worker`, and a program on `worker.Main`, end with 0, 1 or 2.\n\n")
	table(&b, append([][]string{{"status", "program", "meaning"}}, statuses(t)...)...)
	return b.String()
}

// errorsIn returns a row for each exported error that a declaration has.
func errorsIn(t *testing.T, pkg string, decl *ast.GenDecl) [][]string {
	t.Helper()
	var rows [][]string
	add := func(star, name string, docs ...*ast.CommentGroup) {
		for _, doc := range docs {
			if doc != nil {
				rows = append(rows, []string{code(star + pkg + "." + name), prose(name, doc.Text())})
				return
			}
		}
		t.Errorf("%s.%s: want a comment that says what it means", pkg, name)
	}
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				if decl.Tok == token.VAR && regexp.MustCompile(`^Err[A-Z]`).MatchString(name.Name) {
					add("", name.Name, spec.Doc, decl.Doc)
				}
			}
		case *ast.TypeSpec:
			if regexp.MustCompile(`^[A-Z]\w*Error$`).MatchString(spec.Name.Name) {
				add("*", spec.Name.Name, spec.Doc, decl.Doc)
			}
		}
	}
	return rows
}

// prose returns what a doc comment says of a name, as one line of Markdown.
func prose(name, text string) string {
	if _, says, ok := strings.Cut(text, name+" says that "); ok {
		text = strings.ToUpper(says[:1]) + says[1:]
	}
	text = regexp.MustCompile(`\[(\*?[\w./]+)\]`).ReplaceAllString(strings.Join(strings.Fields(text), " "), "`$1`")
	return strings.ReplaceAll(text, "<", `\<`)
}

// statuses returns a row for each constant that is an exit status.
func statuses(t *testing.T) [][]string {
	t.Helper()
	var rows [][]string
	for _, of := range []struct{ program, file string }{
		{"all", "internal/cli/cli.go"},
		{"enqueue", "cmd/enqueue/app.go"},
		{"lockctl", "cmd/lockctl/app.go"},
	} {
		before := len(rows)
		for _, decl := range parse(t, of.file).Decls {
			decl, ok := decl.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST {
				continue
			}
			for _, spec := range decl.Specs {
				spec, ok := spec.(*ast.ValueSpec)
				if !ok || len(spec.Values) != 1 || !regexp.MustCompile(`^(?:Status|exit)[A-Z]`).MatchString(spec.Names[0].Name) {
					continue
				}
				value, ok := spec.Values[0].(*ast.BasicLit)
				if !ok {
					t.Errorf("%s: %s: want a number", of.file, spec.Names[0].Name)
					continue
				}
				meaning := spec.Comment.Text()
				if meaning == "" {
					_, meaning, _ = strings.Cut(decl.Doc.Text(), "is the exit status of ")
				}
				if _, err := strconv.Atoi(value.Value); err != nil || meaning == "" {
					t.Errorf("%s: %s: want a number and what it means, have %q", of.file, spec.Names[0].Name, meaning)
				}
				rows = append(rows, []string{value.Value, of.program, strings.TrimSuffix(strings.TrimSpace(meaning), ".")})
			}
		}
		expect.That(t, len(rows) != before, "%s: want exit statuses, have none", of.file)
	}
	return rows
}
