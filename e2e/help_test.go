package e2e

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// TestCommandsInText wants the commands that a page names to be those of the programs, with their flags. The changelog names
// some that are no more.
func TestCommandsInText(t *testing.T) {
	t.Parallel()
	bin := expect.Value(binaries())(t)
	help := make(map[string]string) // by command, such as "lockctl limit set"
	addHelp(t, help, bin, "enqueue")
	addHelp(t, help, bin, "lockctl")
	block := regexp.MustCompile("(?ms)^```.*?^```$")
	span := regexp.MustCompile("`((?:lockctl|enqueue) [a-z][^`]*)`")
	checked := 0
	err := filepath.WalkDir("..", func(page string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(page) != ".md" || entry.Name() == "CHANGELOG.md" {
			return err
		}
		for _, m := range span.FindAllStringSubmatch(block.ReplaceAllString(read(t, page), ""), -1) {
			words, command := strings.Fields(m[1]), ""
			for n := len(words); n > 1 && command == ""; n-- {
				if name := strings.Join(words[:n], " "); help[name] != "" {
					command = name
				}
			}
			if command == "" {
				t.Errorf("%s: there is no command %s", page, m[1])
				continue
			}
			for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(m[1], -1) {
				if !regexp.MustCompile(flag + `\b[^-]`).MatchString(help[command]) {
					t.Errorf("%s: %s: no such flag as %s", page, m[1], flag)
				}
			}
			checked++
		}
		return nil
	})
	expect.That(t, err == nil && checked >= 20, "want 20 commands or more, have %d, %v", checked, err)
}

// addHelp adds the help of a command, and of those below it.
func addHelp(t *testing.T, help map[string]string, bin, command string) {
	t.Helper()
	words := strings.Fields(command)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, words[0]), append(words[1:], "--help")...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.Output()
	expect.Need(t, err == nil, "%s --help: %v", command, err)
	help[command] = string(out)
	for _, list := range regexp.MustCompile(`(?ms)^(?:\w+ )?Commands:\n(.*?)\n\n`).FindAllStringSubmatch(string(out), -1) {
		for _, m := range regexp.MustCompile(`(?m)^  (\S+) `).FindAllStringSubmatch(list[1], -1) {
			addHelp(t, help, bin, command+" "+m[1])
		}
	}
}
