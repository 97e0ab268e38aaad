package taskredis

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

// luaSources returns the files that are scripts, and those that scripts include.
func luaSources(tb testing.TB) (scripts, parts []string) {
	tb.Helper()
	files, err := fs.Glob(luaFiles, "*.lua")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		for _, found := range includes.FindAllStringSubmatch(luaFile(strings.TrimSuffix(file, ".lua")), -1) {
			parts = append(parts, found[1])
		}
	}
	for _, file := range files {
		if name := strings.TrimSuffix(file, ".lua"); !slices.Contains(parts, name) {
			scripts = append(scripts, name)
		}
	}
	return scripts, parts
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
	for _, want := range []string{"KEYS[1]", "\n Returns ", "\n Guarantee"} {
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

func TestScriptsHaveHeaders(t *testing.T) {
	t.Parallel()
	scripts, parts := luaSources(t)
	for _, name := range scripts {
		for _, fault := range faults(luaFile(name)) {
			t.Errorf("%s.lua %s", name, fault)
		}
	}
	for _, name := range parts {
		comment, code := header(luaFile(name))
		if rawArgs.MatchString(code) || !strings.Contains(comment, "Defines") {
			t.Errorf("%s.lua: want a part to say what it defines, and to leave KEYS and ARGV to the script", name)
		}
		if includes.MatchString(luaFile(name)) {
			t.Errorf("%s.lua: want a part to include nothing", name)
		}
	}
}

func TestHeaderFaults(t *testing.T) {
	t.Parallel()
	for source, want := range map[string][]string{
		"-- A\n-- KEYS[1] k\n-- ARGV[1] a\n-- Returns 1.\n-- Guarantee: none.\nreturn KEYS[1] .. ARGV[1]":                             nil,
		"-- A\n-- KEYS[1] k\n-- ARGV[1] a\n-- ARGV[2...] b\n-- Returns 1.\n-- Guarantee: none.\nf(KEYS[1], ARGV[1], unpack(ARGV, 2))": nil,
		"-- A\n-- KEYS[1] k\n-- ARGV[1] a\n-- ARGV[2...] b\n-- Returns 1.\n-- Guarantee: none.\nf(KEYS[1], ARGV[1])":                  {"does not use ARGV[2...]"},
		"-- A\n-- KEYS[1] k\n-- Returns 1.\n-- Guarantee: none.\nf(KEYS[1], KEYS[2])":                                                 {"does not name KEYS[2]"},
		"-- A\n-- KEYS[1] k\n-- Returns 1.\n-- Guarantee: none.\nf() -- KEYS[1]":                                                      {"does not use KEYS[1]"},
		"return 1": {"says nothing of KEYS[1]", "says nothing of Returns", "says nothing of Guarantee"},
	} {
		if have := faults(source); !slices.Equal(have, want) {
			t.Errorf("%q: want %q, have %q", source, want, have)
		}
	}
}

func TestScriptIncludes(t *testing.T) {
	t.Parallel()
	text := luaText("enqueue")
	if !strings.Contains(text, luaFile("notify")) || includes.MatchString(text) {
		t.Errorf("want notify.lua in it, have\n%s", text)
	}
	defer func() {
		if recover() == nil {
			t.Error("want a panic for a file that is not there")
		}
	}()
	script("missing")
}

// Both kinds of server take each script.
func TestScriptsLoad(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *server) {
		scripts, _ := luaSources(t)
		for _, name := range scripts {
			if err := script(name).Load(t.Context(), t.rdb).Err(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
