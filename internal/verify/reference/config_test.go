package reference_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/config"
)

// configPage has a table of settings for each section of the file.
func configPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Settings\n" + head)
	b.WriteString(filled("A setting has its value from the first of these that gives one: a flag, an environment " +
		"variable, the file, its default. The file is [config.yaml](../../config.yaml), or the one that `--config` or " +
		"`SIDING_CONFIG` names. A dot in a key leads into a section of the file. An unknown key, variable or flag is an " +
		"error, and so is a value that is not wanted."))
	b.WriteString("\n" + filled("In a variable or a flag, commas separate the items of a list. A flag may also be "+
		"given several times. Each program takes the flags of the settings that it reads: `--help` lists them."))
	var sections []string
	rows := make(map[string][][]string)
	for _, s := range config.Settings() {
		section, _, ok := strings.Cut(s.Key, ".")
		if !ok {
			section = "Of the worker"
		}
		if rows[section] == nil {
			sections = append(sections, section)
			rows[section] = [][]string{{"key, flag, variable", "default", "values", "meaning"}}
		}
		names, want := code(s.Key), s.Want
		if s.Flag != "" {
			names += "<br>" + code("--"+s.Flag)
		} else {
			names, want = "", "a text"
		}
		names = strings.TrimPrefix(names+"<br>"+code(s.Env), "<br>")
		value := s.Default
		if value == "" {
			value = "none"
		} else {
			value = code(value)
		}
		rows[section] = append(rows[section], []string{names, value, want, s.Help})
	}
	for _, section := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n", section)
		table(&b, rows[section]...)
	}
	return b.String()
}
