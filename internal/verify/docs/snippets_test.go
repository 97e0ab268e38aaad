package docs_test

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// TestSnippets checks the types of all Go code in the documentation. That is each go block of a page,
// and each block of code in a doc comment that users read.
//
// A block may be a part of a program:
//
//   - "..." stands for code that is left out.
//   - A func, type or import that begins a line is one of the file. The rest is the body of a
//     function that returns an error.
//   - [imported] has the packages that a block may name.
//   - [preludes] has what a page takes for granted, such as the reader's own handler.
//
// Values that are not used are no mistake. No block is left out.
func TestSnippets(t *testing.T) {
	t.Parallel()
	byModule := make(map[string][]block)
	for _, b := range blocks(t) {
		in := moduleOf(b)
		byModule[in] = append(byModule[in], b)
	}
	if n := len(byModule["."]); n < 20 {
		t.Errorf("want 20 blocks or more, have %d", n)
	}
	for module, all := range byModule {
		t.Run(path.Base(module), func(t *testing.T) {
			t.Parallel()
			c := newChecker(t, module, all)
			for _, b := range all {
				t.Logf("%s:%d", b.page, b.line)
				for _, err := range c.check(b) {
					t.Error(err)
				}
			}
		})
	}
	for page := range preludes {
		if page != example && !slices.ContainsFunc(slices.Concat(slices.Collect(maps.Values(byModule))...), func(b block) bool {
			return b.page == page || fmt.Sprintf("%s#%d", b.page, b.number) == page
		}) {
			t.Errorf("%s has a prelude, and no code", page)
		}
	}
}

// The check names the page and the line of a mistake, and takes what is only not used for none.
func TestMistakes(t *testing.T) {
	t.Parallel()
	mistakes := map[string]string{
		"locker, err := lock.New(lock.Redis(rdb), lock.Config{})":       "",
		"func f() { ... }\n\ntype a struct{}\n\nvar x a\nfor {\n...\n}": "",
		"// Command main.\npackage main\n\nfunc main() {}":              "",
		"\nlocker, err := lock.Nu(lock.Redis(rdb), lock.Config{})":      "page.md:8: undefined: lock.Nu",
		"fence := lock.Fence(ctx)":                                      "page.md:7: not enough arguments in call to lock.Fence\n\thave (context.Context)\n\twant (context.Context, string)",
		"fence := locked.Fence(ctx)":                                    "page.md:7: undefined: locked",
		"if {":                                                          "page.md:7: missing condition in if statement",
		"func f() {\n\tn := 1 + \"\"\n}":                                "page.md:8: invalid operation: 1 + \"\" (mismatched types untyped int and untyped string)",
		"return lock.ErrBusy, 1":                                        "page.md:7: too many return values\n\thave (error, number)\n\twant (error)",
	}
	var all []block
	for text := range mistakes {
		all = append(all, block{page: example, line: 7, text: text})
	}
	c := newChecker(t, ".", all)
	for _, b := range all {
		have := ""
		if found := c.check(b); len(found) > 0 {
			have = found[0].Error()
		}
		if want := mistakes[b.text]; have != want {
			t.Errorf("%q: want %q, have %q", b.text, want, have)
		}
	}
}

// example stands for a page in tests of the check.
const example = "page.md"

// A block is code in the documentation.
type block struct {
	page string // its file, from the root
	line int    // of its first line
	text string

	number int // of the block on its page, from 1
}

// whole reports whether the block is a file.
func (b block) whole() bool { return regexp.MustCompile(`(?m)^package \w`).MatchString(b.text) }

// prelude returns what the block takes for granted, and its page if it says nothing for the block alone.
func (b block) prelude() string {
	return cmp.Or(preludes[fmt.Sprintf("%s#%d", b.page, b.number)], preludes[b.page])
}

var (
	goFence = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	// commented is code in a doc comment: lines after a tab, and empty lines between them.
	commented = regexp.MustCompile(`(?m)^//\t.*\n(?:(?://\n)*//\t.*\n)*`)
	// isGo tells code from tables, pictures and commands.
	isGo = regexp.MustCompile(`:=|\bfunc\b|\breturn\b`)
)

// blocks returns all Go code of the documentation.
func blocks(t *testing.T) []block {
	t.Helper()
	var all []block
	find := func(page, text string, pattern *regexp.Regexp, group int, clean func(string) string) {
		number := 0
		for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
			begin, end := at[2*group], at[2*group+1]
			if code := clean(text[begin:end]); group == 1 || isGo.MatchString(code) {
				number++
				all = append(all, block{page, strings.Count(text[:begin], "\n") + 1, code, number})
			}
		}
	}
	for _, name := range named(t, func(name string) bool {
		// Nobody reads the doc comments of these two to use a package.
		return !strings.HasPrefix(name, "internal/") && !strings.HasPrefix(name, "bench/") && (path.Ext(name) == ".md" || isCode(name))
	}) {
		if path.Ext(name) == ".md" {
			find(name, read(t, name), goFence, 1, func(s string) string { return s })
			continue
		}
		find(name, read(t, name), commented, 0, func(s string) string { return regexp.MustCompile(`(?m)^//\t?`).ReplaceAllString(s, "") })
	}
	return all
}

// moduleOf returns the folder of the module in which a block has all that it names.
func moduleOf(b block) string {
	for _, module := range []string{"lock/etcdlock", "queue/queueotel"} {
		if strings.HasPrefix(b.page, module+"/") || strings.Contains(b.text, path.Base(module)+".") || strings.Contains(b.prelude(), path.Base(module)+".") {
			return module
		}
	}
	if strings.Contains(b.text, "redislock.") || strings.Contains(b.text, "redsync.") {
		return "bench" // which alone has those libraries
	}
	return "."
}

// A checker checks the types of blocks, with the packages of one module.
type checker struct {
	files    *token.FileSet
	importer types.Importer
}

// newChecker returns a checker with the packages that the blocks need.
func newChecker(t *testing.T, module string, all []block) checker {
	t.Helper()
	paths := []string{"errors"}
	for _, b := range all {
		for _, source := range []string{source(b), preludeOf(b)} {
			// A mistake in the source is for check to find.
			for _, imported := range importsOf(source) {
				paths = append(paths, imported)
			}
		}
	}
	slices.Sort(paths)
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", race, "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, slices.Compact(paths)...)...)
	list.Dir = filepath.Join(root, module)
	var stderr strings.Builder
	list.Stderr = &stderr
	out, err := list.Output()
	expect.Need(t, err == nil, "go list in %s: %v\n%s", module, err, stderr.String())
	exported := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exported[name] = file
	}
	files := token.NewFileSet()
	return checker{files, importer.ForCompiler(files, "gc", func(name string) (io.ReadCloser, error) {
		if exported[name] == "" {
			return nil, fmt.Errorf("no package %s", name)
		}
		return os.Open(exported[name])
	})}
}

// check returns the mistakes in a block, or in the prelude of its page.
func (c checker) check(b block) []error {
	var found []error
	var parsed []*ast.File
	for _, text := range []string{source(b), preludeOf(b)} {
		if text == "" {
			continue
		}
		file, err := parser.ParseFile(c.files, "", withImports(text), parser.SkipObjectResolution)
		if err != nil {
			return []error{errors.New(firstLine(err.Error()))}
		}
		parsed = append(parsed, file)
	}
	conf := types.Config{Importer: c.importer, Error: func(err error) {
		var e types.Error
		if errors.As(err, &e) && e.Soft {
			return // a value that is not used
		}
		found = append(found, err)
	}}
	_, _ = conf.Check("snippet", c.files, parsed, nil)
	return found
}

func firstLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return regexp.MustCompile(` \(and \d+ more errors?\)$`).ReplaceAllString(text, "")
}

// leftOut is "..." in place of statements.
var leftOut = regexp.MustCompile(`(?m)(^\s*|\{ )\.\.\.( \}|$| //)`)

// declared begins what is not part of a function.
var declared = regexp.MustCompile(`^(?:func \w|func \(|type \w|import\b|package\b)`)

// source returns a file with the code of the block. The lines of its errors are those of the page.
func source(b block) string {
	text := leftOut.ReplaceAllString(b.text, `${1}panic("left out")${2}`)
	if b.whole() {
		return fmt.Sprintf("//line %s:%d\n%s", b.page, b.line, text)
	}
	var top, body piece
	to := &body
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		opens := declared.MatchString(line)
		if opens {
			to = &top
		}
		to.add(b.page, b.line+i, line)
		oneLine := opens && !strings.HasSuffix(line, "{") && !strings.HasSuffix(line, "(")
		if oneLine || strings.HasPrefix(line, "}") || strings.HasPrefix(line, ")") {
			to = &body
		}
	}
	return "package snippet\n\n" + top.String() + "func _() (err error) {\n{\n" + body.String() + "}\nreturn nil\n}\n"
}

// A piece is a part of a file, whose lines come from a page.
type piece struct {
	strings.Builder

	next int // the line of the page that needs no directive
}

func (p *piece) add(page string, number int, line string) {
	if number != p.next {
		fmt.Fprintf(p, "//line %s:%d\n", page, number)
	}
	p.next = number + 1
	p.WriteString(line + "\n")
}

// preludeOf returns a file with what the page of the block takes for granted.
func preludeOf(b block) string {
	if b.prelude() == "" || b.whole() {
		return ""
	}
	return "package snippet\n\n//line prelude of " + b.page + ":1\n" + b.prelude()
}

// importsOf returns the packages that a file names and does not import, by their names.
func importsOf(text string) map[string]string {
	file, _ := parser.ParseFile(token.NewFileSet(), "", text, 0)
	named := make(map[string]string)
	if file == nil {
		return named
	}
	for _, spec := range file.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err == nil {
			named[" "+name] = name // no identifier
		}
	}
	for _, ident := range file.Unresolved {
		if pkg, ok := imported[ident.Name]; ok && named[" "+pkg] == "" {
			named[ident.Name] = pkg
		}
	}
	return named
}

// withImports returns the file with the imports that it lacks.
func withImports(text string) string {
	var clause strings.Builder
	for name, imported := range importsOf(text) {
		if !strings.HasPrefix(name, " ") {
			fmt.Fprintf(&clause, "import %s %q; ", name, imported)
		}
	}
	if clause.Len() == 0 {
		return text
	}
	return strings.Replace(text, "package snippet\n", "package snippet; "+clause.String()+"\n", 1)
}
