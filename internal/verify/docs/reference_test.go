package docs_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
			file, want := filepath.Join(root, "docs", "reference", name+".md"), page(t)
			if *update {
				if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			have, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, string(have)); diff != "" {
				t.Errorf("docs/reference/%s.md differs from the code; make reference writes it (-want +have):\n%s", name, diff)
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

// filled wraps a paragraph at 100 columns.
func filled(text string) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case column == 0:
		case column+1+len(word) > 100:
			b.WriteString("\n")
			column = 0
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String() + "\n"
}
