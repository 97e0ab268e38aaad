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
	logged   = []string{"queue", "internal/engine", "internal/taskredis", "internal/member", "internal/dashboard", "internal/metrics"}
	logCalls = []string{"InfoContext", "WarnContext", "ErrorContext", "Error", "Warn", "fault"}
)

// outages are what the outages of package engine say.
var outages = regexp.MustCompile(`(?:fails|works):\s+"([^"]+)"`)

// TestLogMessages wants each line of the log at the level info or above on the page of the log, and no
// other.
func TestLogMessages(t *testing.T) {
	t.Parallel()
	const page = "docs/reference/logs.md"
	inPage, found := make(map[string]bool), make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (?:info|warn|error) \\|").FindAllStringSubmatch(read(t, page), -1) {
		inPage[m[1]] = true
	}
	for _, file := range named(t, func(name string) bool {
		return slices.Contains(logged, path.Dir(name)) && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
	}) {
		for _, m := range outages.FindAllStringSubmatch(read(t, file), -1) {
			if found[m[1]] = true; !inPage[m[1]] {
				t.Errorf("%s: %s: want a line for %q", file, page, m[1])
			}
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if message := messageOf(call); message != "" {
				if found[message] = true; !inPage[message] {
					t.Errorf("%s: %s: want a line for %q", file, page, message)
				}
			}
			return true
		})
	}
	for message := range inPage {
		if !found[message] {
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
	for i, arg := range call.Args {
		if _, ok := arg.(*ast.SelectorExpr); ok && i == 1 {
			return "" // of an outage, which has its messages from elsewhere
		}
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
