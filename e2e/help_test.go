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
		"[The programs](../guides/programs.md) and [lockctl](../guides/lockctl.md) are the guides.\n" +
		"[Settings](config.md) has the values of the flags that are settings.\n")
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
	fmt.Fprintf(b, "\n## %s\n\n```text\n%s\n```\n", command, strings.TrimSpace(help))
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
