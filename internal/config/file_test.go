package config_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/expect"
)

var update = flag.Bool("update", false, "write the project's config.yaml from the table of settings")

// shipped is the file at the top of the project.
var shipped = filepath.Join("..", "..", "config.yaml")

const intro = `# The settings of Siding's programs, each with its default. A line that is missing
# keeps its default. An unknown setting is an error.
#
# Environment variables take precedence over this file, and flags over both:
# lock.renew_every is SIDING_LOCK_RENEW_EVERY and --lock-renew-every. worker --help
# lists all flags. In a variable or a flag, commas separate the items of a list,
# and a queue is written as name=number. Limits and policies are written as here.
#
# This file must hold no password. Put passwords into SIDING_REDIS_PASSWORD,
# SIDING_REDIS_SENTINEL_PASSWORD, SIDING_HTTP_PASSWORD and SIDING_LEDGER_DSN.
`

// render writes the file that the table describes.
func render() string {
	var b strings.Builder
	b.WriteString(intro)
	section := ""
	for _, s := range config.Settings() {
		if s.Flag == "" {
			continue // the environment's alone
		}
		indent, name := "", s.Key
		if head, rest, ok := strings.Cut(s.Key, "."); ok {
			if head != section {
				fmt.Fprintf(&b, "\n%s:\n", head)
			}
			section, indent, name = head, "  ", rest
		} else {
			section = ""
			b.WriteString("\n")
		}
		help := s.Help
		if s.Kind != config.Bool && !strings.HasPrefix(s.Want, "text ") {
			help += " Values: " + s.Want + "."
		}
		for _, line := range wrap(help, 88-len(indent)) {
			fmt.Fprintf(&b, "%s# %s\n", indent, line)
		}
		switch value := s.Default; s.Kind {
		case config.List:
			fmt.Fprintf(&b, "%s%s: [%q]\n", indent, name, value)
		case config.Numbers:
			if value == "" {
				fmt.Fprintf(&b, "%s%s: {}\n", indent, name)
				continue
			}
			fmt.Fprintf(&b, "%s%s:\n%s  %s\n", indent, name, indent, strings.ReplaceAll(value, "=", ": "))
		case config.Limits, config.Policies:
			fmt.Fprintf(&b, "%s%s: {}\n", indent, name)
		case config.Bool:
			fmt.Fprintf(&b, "%s%s: %s\n", indent, name, value)
		case config.Text:
			if value == "" || strings.HasSuffix(value, ":") {
				value = fmt.Sprintf("%q", value)
			}
			fmt.Fprintf(&b, "%s%s: %s\n", indent, name, value)
		}
	}
	return b.String()
}

func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// The file has a key, a comment and the default for every setting, and nothing
// else.
func TestShippedFile(t *testing.T) {
	t.Parallel()
	if *update {
		expect.OK(t, os.WriteFile(shipped, []byte(render()), 0o600))
	}
	have := expect.Value(os.ReadFile(shipped))(t)
	expect.Same(t, "config.yaml, which make reference writes", string(have), render())
	read := expect.Value(load(shipped, nil))(t)
	wantConfig(t, "config.yaml", read, config.Default())
}
