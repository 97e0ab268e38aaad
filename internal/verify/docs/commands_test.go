package docs_test

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// languages are those of the blocks in the documentation.
var languages = []string{
	"go",      // TestSnippets checks its types
	"sh",      // e2e runs it
	"console", // commands that no test runs, see notRun
	"redis",   // users of Redis; e2e logs in as each
	"diff",    // what changes in a program
	"yaml",    // parsed here
	"promql", "mermaid",
	"text", // what a program prints
}

// notRun has the pages with commands that no test runs, and why.
var notRun = map[string]string{
	"bench/README.md":               "they run for minutes",
	"docs/evidence/benchmarks.md":   "they run for minutes",
	"docs/evidence/reliability.md":  "it runs for ten minutes",
	"docs/evidence/track-record.md": "they need the history, which the clone of CI does not have",
	"docs/guides/deployment.md":     "they need root, Docker or a cluster; e2e and e2e/deploy check the files",
	"docs/guides/lockctl.md":        "they ask a person",
}

// isRun reports whether e2e runs the commands of a page.
func isRun(page string) bool {
	return page == "README.md" || path.Base(page) == "tutorial.md" || path.Dir(page) == "docs/guides"
}

// command is the beginning of a command in a line.
var command = regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:cd|go|make|lockctl|asynq|redis-cli|source|git|docker|kubectl|systemctl|install|sh|curl|kill|export) `)

// TestBlocks wants a language for each block of code, a test for each command, and no command where no test
// looks.
func TestBlocks(t *testing.T) {
	t.Parallel()
	unused := make(map[string]bool)
	for page := range notRun {
		unused[page] = true
	}
	// Of the programs that no test runs.
	code := readAll(t, func(name string) bool { return strings.HasPrefix(name, "bench/") && path.Ext(name) == ".go" })
	for _, page := range named(t, func(name string) bool { return path.Ext(name) == ".md" && name != "CHANGELOG.md" }) {
		language, text := "", ""
		for i, line := range strings.Split(read(t, page), "\n") {
			opened, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
			switch {
			case isFence && language == "":
				opened, _, _ = strings.Cut(opened, " ") // such as "sh terminal 2"
				language, text = cmp.Or(opened, "text"), ""
				expect.That(t, slices.Contains(languages, opened), "%s:%d: want a block in one of %q, have %q", page, i+1, languages, opened)
				expect.That(t, language != "sh" || isRun(page), "%s:%d: no test runs the commands of this page: want console, and why", page, i+1)
				if delete(unused, page); language == "console" && notRun[page] == "" {
					t.Errorf("%s:%d: want sh, so that a test runs it, or why none does", page, i+1)
				}
			case isFence:
				if language == "yaml" {
					if err := yaml.Unmarshal([]byte(text), new(any)); err != nil {
						t.Errorf("%s:%d: %v", page, i+1, err)
					}
				}
				language = ""
			case language == "console":
				wantRunnable(t, page, line, code)
			case language == "":
				if indented, ok := strings.CutPrefix(line, "    "); ok && command.MatchString(indented) {
					t.Errorf("%s:%d: want a command in a block, have %q", page, i+1, indented)
				}
			default:
				text += line + "\n"
			}
		}
	}
	for page := range unused {
		t.Errorf("%s has no commands any more", page)
	}
}

// wantRunnable wants the program, the flags and the target that a command names. code is that of the
// programs.
func wantRunnable(t *testing.T, page, line, code string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " #")
	for target := range listed(line, `\bmake ([a-z]+)`) {
		wantTarget(t, page, target)
	}
	m := regexp.MustCompile(`go run \./(cmd/\w+)(.*)`).FindStringSubmatch(line)
	if m == nil {
		return
	}
	program := path.Join("bench", m[1]) // all that no test runs are there
	expect.That(t, isThere(program), "%s: %s: no such program", page, line)
	for flag := range listed(m[2], ` -([a-z-]+)`) {
		expect.That(t, strings.Contains(code, `"`+flag+`"`), "%s: %s: no such flag as -%s", page, line, flag)
	}
	for dir := range listed(m[2], ` (\.\./\S+)`) {
		expect.That(t, isThere(path.Join("bench", dir)), "%s: %s: there is no %s", page, line, dir)
	}
}
