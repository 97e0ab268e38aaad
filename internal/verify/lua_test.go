package verify_test

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
)

var (
	includes  = regexp.MustCompile(`(?m)^-- include (\w+)$`)
	rawArgs   = regexp.MustCompile(`\b(?:KEYS|ARGV)\b`)
	namedArgs = regexp.MustCompile(`(?:KEYS|ARGV)\[\d+(?:\.\.\.)?\]`)
)

// TestScriptsHaveHeaders: the head of a script says what it takes, returns and guarantees. A part of scripts, whose head names
// no keys, leaves the arguments to them.
func TestScriptsHaveHeaders(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"../lockredis", "../taskredis"} {
		files := os.DirFS(folder)
		names := expect.Value(fs.Glob(files, "*.lua"))(t)
		expect.That(t, len(names) > 0, "want scripts in %s", folder)
		for _, name := range names {
			source := string(expect.Value(fs.ReadFile(files, name))(t))
			comment, code := header(source)
			switch {
			case strings.Contains(comment, "KEYS"):
				for _, fault := range faults(source) {
					t.Errorf("%s %s", name, fault)
				}
			case rawArgs.MatchString(code):
				t.Errorf("%s: want a part to leave KEYS and ARGV to the script", name)
			case includes.MatchString(source):
				t.Errorf("%s: want a part to include nothing", name)
			}
		}
	}
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
