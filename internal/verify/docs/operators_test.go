package docs_test

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestCommandsInText wants the commands that a text names to be those of the programs, with their
// flags.
func TestCommandsInText(t *testing.T) {
	t.Parallel()
	help := make(map[string]string) // by command, such as "lockctl limit set"
	for _, m := range regexp.MustCompile("(?ms)^## ([a-z ]+)\n\n```text\n(.*?)^```$").FindAllStringSubmatch(read(t, "docs/reference/commands.md"), -1) {
		help[m[1]] = m[2]
	}
	span := regexp.MustCompile("`((?:lockctl|enqueue) [a-z][^`]*)`")
	checked := 0
	for _, page := range named(t, func(name string) bool { return path.Ext(name) == ".md" && name != "CHANGELOG.md" }) {
		for _, m := range span.FindAllStringSubmatch(fence.ReplaceAllString(read(t, page), ""), -1) {
			words, command := strings.Fields(m[1]), ""
			for n := len(words); n > 1 && command == ""; n-- {
				if name := strings.Join(words[:n], " "); help[name] != "" {
					command = name
				}
			}
			if command == "" && words[1] != "completion" {
				t.Errorf("%s: there is no command %s", page, m[1])
				continue
			}
			for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(m[1], -1) {
				if flag != "--help" && !regexp.MustCompile(flag+`\b[^-]`).MatchString(help[words[0]]+help[command]) {
					t.Errorf("%s: %s: no such flag as %s", page, m[1], flag)
				}
			}
			checked++
		}
	}
	if checked < 20 {
		t.Errorf("want 20 commands or more, have %d", checked)
	}
}

// ofRedis are the errors of Redis among the symptoms.
var ofRedis = []string{"MISCONF", "OOM command not allowed", "CLUSTERDOWN", "MOVED", "READONLY", "NOPERM", "NOAUTH", "WRONGPASS"}

// TestSymptoms wants the messages and the checks of the page on troubleshooting to be in the code, as people
// search for them.
func TestSymptoms(t *testing.T) {
	t.Parallel()
	const page = "docs/guides/troubleshooting.md"
	var code, doctor strings.Builder
	for _, name := range named(t, func(name string) bool {
		return path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "bench/")
	}) {
		code.WriteString(read(t, name))
		if path.Dir(name) == "cmd/lockctl" {
			doctor.WriteString(read(t, name))
		}
	}
	known := code.String() + strings.Join(ofRedis, "\n")
	rows := regexp.MustCompile(`(?m)^\| (.*?) \| (.*?) \| (.*) \|$`).FindAllStringSubmatch(read(t, page), -1)
	if len(rows) < 30 {
		t.Errorf("%s: want 30 rows or more, have %d", page, len(rows))
	}
	for _, row := range rows {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			if strings.HasPrefix(m[1], "lockctl") {
				continue // TestCommandsInText looks at it
			}
			for _, part := range regexp.MustCompile(`\.\.\.|RESOURCE`).Split(m[1], -1) {
				if !strings.Contains(known, strings.Trim(part, " ,")) {
					t.Errorf("%s: no code says %q", page, m[1])
				}
			}
		}
		for _, m := range regexp.MustCompile(`\*([a-z ]+)\*`).FindAllStringSubmatch(strings.ReplaceAll(row[0], "**", ""), -1) {
			if m[1] != "doctor" && !strings.Contains(doctor.String(), `"`+m[1]+`"`) {
				t.Errorf("%s: doctor has no check %q", page, m[1])
			}
		}
	}
}
