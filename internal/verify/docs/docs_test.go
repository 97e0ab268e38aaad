// Package docs_test keeps the documentation in step with the repository. make reference writes the pages of
// docs/reference that the code decides.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// root is the repository, seen from here.
var root = filepath.Join("..", "..", "..")

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	noName  = regexp.MustCompile(`[^\p{L}\p{N}_-]`) // what a heading has and its anchor lacks
)

// TestLinks finds links within the repository that lead to no file, or to no heading.
func TestLinks(t *testing.T) {
	t.Parallel()
	headings := make(map[string]map[string]bool) // of the pages that links lead to
	for _, page := range withExt(t, ".md") {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, page), ""), -1) {
			target, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: %s: %v", page, m[1], err)
				continue
			}
			if target.Scheme != "" {
				continue
			}
			file := page
			if target.Path != "" {
				file = path.Join(path.Dir(page), target.Path)
			}
			if !isThere(file) {
				t.Errorf("%s: %s leads nowhere", page, m[1])
				continue
			}
			if target.Fragment != "" && headings[file] == nil {
				headings[file] = anchors(read(t, file))
			}
			if target.Fragment != "" && !headings[file][target.Fragment] {
				t.Errorf("%s: %s: no such heading", page, m[1])
			}
		}
	}
}

// TestMentions finds pages that code and settings name, and that are not there.
func TestMentions(t *testing.T) {
	t.Parallel()
	mention := regexp.MustCompile(`\bdocs/[\w/-]+\.md(#[\w-]+)?`)
	for _, file := range named(t, func(name string) bool { return path.Ext(name) == ".go" || name == "config.yaml" }) {
		for _, page := range mention.FindAllString(read(t, file), -1) {
			page, anchor, _ := strings.Cut(page, "#")
			if !isThere(page) {
				t.Errorf("%s names %s, which is not there", file, page)
			} else if anchor != "" && !anchors(read(t, page))[anchor] {
				t.Errorf("%s: %s: no heading %s", file, page, anchor)
			}
		}
	}
}

// TestTargets wants each make command of a page in the Makefile.
func TestTargets(t *testing.T) {
	t.Parallel()
	for _, page := range withExt(t, ".md") {
		for target := range listed(read(t, page), "`(?:[A-Z_]+=\\w+ )?make ([a-z]+)") {
			wantTarget(t, page, target)
		}
	}
}

// wantTarget wants a target in the Makefile.
func wantTarget(t *testing.T, file, target string) {
	t.Helper()
	expect.That(t, strings.Contains(read(t, "Makefile"), "\n"+target+":"), "%s: make %s: no such target", file, target)
}

// anchors returns the names by which links find the headings of a page.
func anchors(text string) map[string]bool {
	all := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")
		all[noName.ReplaceAllString(name, "")] = true
	}
	return all
}

// named returns the files of the repository that a function wants.
func named(t *testing.T, want func(string) bool) (names []string) {
	t.Helper()
	expect.OK(t, fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "node_modules"):
			return fs.SkipDir
		case !entry.IsDir() && want(name):
			names = append(names, name)
		}
		return nil
	}))
	return names
}

func withExt(t *testing.T, ext string) []string {
	t.Helper()
	return named(t, func(name string) bool { return path.Ext(name) == ext })
}

func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

// isCode reports whether a file is Go's, and no test.
func isCode(name string) bool { return path.Ext(name) == ".go" && !isTest(name) }

func isThere(name string) bool {
	_, err := os.Stat(filepath.Join(root, name))
	return err == nil
}

func read(t *testing.T, name string) string {
	t.Helper()
	text := expect.Value(os.ReadFile(filepath.Join(root, name)))(t)
	return string(text)
}

// readAll returns the text of the files that a function wants.
func readAll(t *testing.T, want func(string) bool) string {
	t.Helper()
	var all strings.Builder
	for _, name := range named(t, want) {
		all.WriteString(read(t, name))
	}
	return all.String()
}

// parse returns a Go file with its comments.
func parse(t *testing.T, name string) *ast.File {
	t.Helper()
	file := expect.Value(parser.ParseFile(token.NewFileSet(), name, read(t, name), parser.ParseComments))(t)
	return file
}

// listed returns what the group of a pattern is in a text, wherever it matches.
func listed(text, pattern string) map[string]bool {
	all := make(map[string]bool)
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	return all
}

// wantListed wants a page to list what was found, by where that was, and nothing else.
func wantListed(t *testing.T, page string, listed map[string]bool, found map[string]string) {
	t.Helper()
	for name, where := range found {
		expect.That(t, listed[name], "%s: want %q, which is in %s", page, name, where)
	}
	for name := range listed {
		expect.That(t, found[name] != "", "%s: there is no %q", page, name)
	}
}
