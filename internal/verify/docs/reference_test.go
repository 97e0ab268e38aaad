package docs_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/testenv/expect"
)

var update = flag.Bool("update", false, "write the pages of docs/reference")

// head begins each page behind its title, so that nobody writes there by hand.
const head = "\n<!-- make reference writes this page from the code. -->\n\n"

// TestReference wants each page as the code says.
func TestReference(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]func(*testing.T) string{
		"errors":  errorsPage,
		"metrics": metricsPage,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, want := "docs/reference/"+name+".md", page(t)
			if *update {
				expect.OK(t, os.WriteFile(filepath.Join(root, file), []byte(want), 0o644))
			}
			if diff := cmp.Diff(want, read(t, file)); diff != "" {
				t.Errorf("%s differs from the code; make reference writes it (-want +have):\n%s", file, diff)
			}
		})
	}
}

// table writes rows below a heading. Each cell is Markdown.
func table(b *strings.Builder, rows ...[]string) {
	for i, row := range rows {
		for _, cell := range row {
			b.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
}

// code marks text as code; no text is no code.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
