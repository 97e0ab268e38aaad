package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logged are the packages that log for a server, and the calls by which they do. The message of a call is
// its first text that is a sentence.
var (
	logged   = []string{"queue", "internal/hook", "internal/fetch", "internal/member", "internal/dashboard", "internal/metrics"}
	logCalls = []string{"InfoContext", "WarnContext", "ErrorContext", "Error", "Warn", "fault"}
)

// TestLogMessages wants each line of the log at the level info or above on the page of the log, and no
// other.
func TestLogMessages(t *testing.T) {
	t.Parallel()
	const page = "docs/reference/logs.md"
	inPage := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (?:info|warn|error) \\|").FindAllStringSubmatch(read(t, page), -1) {
		inPage[m[1]] = true
	}
	for _, file := range named(t, func(name string) bool {
		return slices.Contains(logged, path.Dir(name)) && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
	}) {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if message := messageOf(call); message != "" && !inPage[message] {
				t.Errorf("%s: %s: want a line for %q", file, page, message)
			} else {
				delete(inPage, message)
			}
			return true
		})
	}
	for message := range inPage {
		if message != "a lock could not be released at once" { // it is a constant
			t.Errorf("%s: nobody logs %q", page, message)
		}
	}
}

// messageOf returns the message of a call that logs, or "".
func messageOf(call *ast.CallExpr) string {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(logCalls, selector.Sel.Name) {
		return ""
	}
	if from, ok := selector.X.(*ast.Ident); ok && from.Name == "http" {
		return ""
	}
	for _, arg := range call.Args {
		if literal, ok := arg.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				return ""
			}
			return text
		}
	}
	return ""
}
