// Package luatest checks how the scripts of a package are written.
package luatest

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	includes  = regexp.MustCompile(`(?m)^-- include (\w+)$`)
	rawArgs   = regexp.MustCompile(`\b(?:KEYS|ARGV)\b`)
	namedArgs = regexp.MustCompile(`(?:KEYS|ARGV)\[\d+(?:\.\.\.)?\]`)
)

// Sources returns the files that are scripts, and those that are parts of others: their heads name no keys.
func Sources(tb testing.TB, files fs.FS) (scripts, parts []string) {
	tb.Helper()
	names, err := fs.Glob(files, "*.lua")
	if err != nil || len(names) == 0 {
		tb.Fatalf("no scripts: %v", err)
	}
	for _, file := range names {
		name := strings.TrimSuffix(file, ".lua")
		if comment, _ := header(read(tb, files, name)); !strings.Contains(comment, "KEYS") {
			parts = append(parts, name)
		} else {
			scripts = append(scripts, name)
		}
	}
	return scripts, parts
}

// Check checks the headers of all files.
func Check(t *testing.T, files fs.FS) {
	t.Helper()
	scripts, parts := Sources(t, files)
	for _, name := range scripts {
		for _, fault := range faults(read(t, files, name)) {
			t.Errorf("%s.lua %s", name, fault)
		}
	}
	for _, name := range parts {
		source := read(t, files, name)
		if _, code := header(source); rawArgs.MatchString(code) {
			t.Errorf("%s.lua: want a part to leave KEYS and ARGV to the script", name)
		}
		if includes.MatchString(source) {
			t.Errorf("%s.lua: want a part to include nothing", name)
		}
	}
}

func read(tb testing.TB, files fs.FS, name string) string {
	tb.Helper()
	text, err := fs.ReadFile(files, name+".lua")
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// header returns the comment that begins a file, and the rest without comments.
func header(source string) (comment, code string) {
	inHeader := true
	for line := range strings.Lines(source) {
		before, after, isComment := strings.Cut(line, "--")
		switch {
		case inHeader && isComment && before == "":
			comment += after
		default:
			inHeader = false
			code += before + "\n"
		}
	}
	return comment, code
}

// uses reports whether code uses an argument: KEYS[1] by that text, ARGV[7...] by an unpack from 7 on, or by an index
// that is not constant.
func uses(code, arg string) bool {
	array, first, _ := strings.Cut(arg, "[")
	first, rest := strings.CutSuffix(first, "...]")
	if !rest {
		return strings.Contains(code, arg)
	}
	return strings.Contains(code, "unpack("+array+", "+first+")") || regexp.MustCompile(array+`\[\D`).MatchString(code)
}

// faults returns what is wrong with the header of a script.
func faults(source string) []string {
	comment, code := header(source)
	var faults []string
	for _, want := range []string{"KEYS", "\n Returns ", "\n Guarantee"} {
		if !strings.Contains(comment, want) {
			faults = append(faults, "says nothing of "+strings.TrimSpace(want))
		}
	}
	named := namedArgs.FindAllString(comment, -1)
	for _, arg := range named {
		if !uses(code, arg) {
			faults = append(faults, "does not use "+arg)
		}
	}
	for _, arg := range namedArgs.FindAllString(code, -1) {
		if !slices.Contains(named, arg) {
			faults = append(faults, "does not name "+arg)
		}
	}
	return faults
}
