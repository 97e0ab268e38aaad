package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/reference/commands.md from the help of the programs")

// TestCommandsPage wants the page of commands to be what the programs say of themselves.
func TestCommandsPage(t *testing.T) {
	t.Parallel()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("# Commands\n\n<!-- make reference writes this page from the help of the programs. -->\n\n" +
		"What each command is for, its usage, and its own flags. `--help` adds examples and the details, and the flags\n" +
		"that are [settings](config.md). The flags of a program hold for all of its commands.\n" +
		"[The programs](../guides/programs.md) and [lockctl](../guides/lockctl.md) are the guides.\n")
	for _, program := range []string{"worker", "enqueue", "lockctl"} {
		writeHelp(t, &b, bin, program)
	}
	if n := strings.Count(b.String(), "\n## "); n < 12 {
		t.Errorf("want the help of 12 commands or more, have %d", n)
	}
	page, want := filepath.Join("..", "docs", "reference", "commands.md"), b.String()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(have)); diff != "" {
		t.Errorf("docs/reference/commands.md differs from the help; make reference writes it (-want +have):\n%s", diff)
	}
}

var (
	// subcommands is the part of a help that lists them.
	subcommands = regexp.MustCompile(`(?ms)^(?:Available )?Commands:\n(.*?)\n\n`)
	// usage and flags are the parts of a help that the page has, besides the first paragraph and, of a whole
	// program, the exit status.
	usage = regexp.MustCompile(`(?ms)^Usage:\n(.*?)\n\n`)
	flags = regexp.MustCompile(`(?ms)^Flags:\n(.*?)\n(?:\n|\z)`)
	exits = regexp.MustCompile(`(?ms)^Exit status: .*?\n\n`)
	// flagLine is the line of a flag, with its name and what it means, but for the default.
	flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, +)?(--[a-z-]+).*?  +(\S.*?)(?: \(default .*)?$`)
	// user is a default that depends on who asks.
	user = regexp.MustCompile(`\(default "[^"@]*@[^"]*"\)`)
)

// writeHelp writes the help of a command, and of those below it.
func writeHelp(t *testing.T, b *strings.Builder, bin, command string) {
	t.Helper()
	words := strings.Fields(command)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, words[0]), append(words[1:], "--help")...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s --help: %v", command, err)
	}
	help := user.ReplaceAllString(string(out), `(default "you@your-machine")`)
	fmt.Fprintf(b, "\n## %s\n\n```text\n%s```\n", command, shortened(help, len(words) == 1, read(t, filepath.Join("..", "docs", "reference", "config.md"))))
	list := subcommands.FindStringSubmatch(help)
	if list == nil {
		return
	}
	for _, m := range regexp.MustCompile(`(?m)^  (\S+) `).FindAllStringSubmatch(list[1], -1) {
		if m[1] != "completion" && m[1] != "help" {
			writeHelp(t, b, bin, command+" "+m[1])
		}
	}
}

// shortened returns what the page has of a help. The page of settings has the flags that are settings.
func shortened(help string, program bool, settings string) string {
	about, _, _ := strings.Cut(strings.TrimSpace(help), "\n\n")
	parts := []string{strings.TrimSuffix(about, ":")}
	if program {
		parts = append(parts, strings.TrimSpace(exits.FindString(help)))
	}
	if m := usage.FindStringSubmatch(help); m != nil {
		parts = append(parts, m[1])
	}
	var own []string
	for _, m := range flagLine.FindAllStringSubmatch(flags.FindString(help), -1) {
		if m[1] != "--help" && m[1] != "--version" && !strings.Contains(settings, m[2]) {
			own = append(own, m[0])
		}
	}
	if own != nil {
		parts = append(parts, strings.Join(own, "\n"))
	}
	return strings.Join(parts, "\n\n") + "\n"
}
