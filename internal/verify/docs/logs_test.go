package docs_test

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logged are the packages that log for a server, and the calls by which they do. The message of a call is
// its first text that is a sentence.
var (
	logged   = []string{"queue", "internal/engine", "internal/member", "internal/dashboard", "internal/metrics"}
	logCalls = []string{"InfoContext", "WarnContext", "ErrorContext", "Error", "Warn", "fault"}
)

// outages are what the outages of package engine say when they begin. The page does not have what they say at their end.
const outages = `fails:\s+"([^"]+)"`

// logsPage is the page of the log.
const logsPage = "docs/reference/logs.md"

// TestLogMessages wants each line of the log at the level info or above on the page of the log, and no
// other.
func TestLogMessages(t *testing.T) {
	t.Parallel()
	found := make(map[string]string)
	eachLogged(t, func(file string, parsed *ast.File) {
		for message := range listed(read(t, file), outages) {
			found[message] = file
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if _, message := messageOf(call); message != "" {
					found[message] = file
				}
			}
			return true
		})
	})
	wantListed(t, logsPage, listed(read(t, logsPage), "(?m)^\\| `([^`]+)` \\| (?:info|warn|error) \\|"), found)
}

// TestLogAttributes wants each attribute of the log in the first table of the page of the log, and no
// other. So an attribute has the same name in all lines.
func TestLogAttributes(t *testing.T) {
	t.Parallel()
	inPage, found := make(map[string]bool), make(map[string]string)
	table, _, _ := strings.Cut(read(t, logsPage), "| message |")
	for row := range listed(table, "(?m)^\\| (`[^|]+) \\|") {
		maps.Copy(inPage, listed(row, "`([^`]+)`"))
	}
	eachLogged(t, func(file string, parsed *ast.File) {
		ast.Inspect(parsed, func(n ast.Node) bool {
			for _, attribute := range attributesOf(n) {
				found[attribute] = file
			}
			return true
		})
	})
	wantListed(t, logsPage, inPage, found)
}

// attributesOf returns the names of attributes that n gives to a line of the log: as a call that logs or
// that adds attributes, or as a list of them.
func attributesOf(n ast.Node) []string {
	switch n := n.(type) {
	case *ast.CallExpr:
		if i, message := messageOf(n); message != "" {
			return texts(n.Args[i+1:])
		}
		switch f := n.Fun.(type) {
		case *ast.SelectorExpr:
			if name := f.Sel.Name; name == "With" || name == "attrs" || name == "DebugContext" || slices.Contains(logCalls, name) {
				return texts(n.Args)
			}
		case *ast.Ident:
			if f.Name != "append" {
				return nil
			}
			switch list := n.Args[0].(type) {
			case *ast.CallExpr:
				return texts(n.Args[1:])
			case *ast.Ident:
				if list.Name == "attrs" {
					return texts(n.Args[1:])
				}
			}
		}
	case *ast.CompositeLit:
		if list, ok := n.Type.(*ast.ArrayType); ok {
			if of, ok := list.Elt.(*ast.Ident); ok && of.Name == "any" {
				return texts(n.Elts)
			}
		}
	}
	return nil
}

// attribute is what the name of an attribute looks like, other than a message.
var attribute = regexp.MustCompile(`^"([a-z][a-z0-9_]*)"$`)

// texts returns the names among names and values: the first text that looks like one, and each second
// argument from there on.
func texts(args []ast.Expr) (names []string) {
	for i := 0; i < len(args); i++ {
		if literal, ok := args[i].(*ast.BasicLit); ok && i+1 < len(args) {
			if m := attribute.FindStringSubmatch(literal.Value); m != nil {
				names = append(names, m[1])
				i++
			}
		}
	}
	return names
}

// eachLogged calls f with each file of the packages that log.
func eachLogged(t *testing.T, f func(file string, parsed *ast.File)) {
	t.Helper()
	for _, file := range named(t, func(name string) bool { return slices.Contains(logged, path.Dir(name)) && isCode(name) }) {
		f(file, parse(t, file))
	}
}

// messageOf returns the message of a call that logs and which argument it is, or "".
func messageOf(call *ast.CallExpr) (int, string) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(logCalls, selector.Sel.Name) {
		return 0, ""
	}
	if from, ok := selector.X.(*ast.Ident); ok && from.Name == "http" {
		return 0, ""
	}
	for i, arg := range call.Args {
		literal, ok := arg.(*ast.BasicLit)
		if !ok && i == 1 {
			return 0, "" // of an outage or a fault, whose callers have the message
		}
		if ok && literal.Kind == token.STRING {
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				return 0, ""
			}
			return i, text
		}
	}
	return 0, ""
}
