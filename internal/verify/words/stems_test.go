package words

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
)

func TestStems(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string][]string{
		"margin":             {"margin"},
		"(?i)margin":         nil,
		"(margin)+":          {"margin"},
		"margins?":           {"margin"},
		"(?:margin)?":        nil,
		"one|two":            {"one", "two"},
		"one|two|[a-z]":      nil,
		"a (?:one|three) an": {"one", "three"},
		`[a-z] \* ?lane`:     {"lane"},
		`\bx*`:               nil,
		"(":                  nil,
	} {
		if have := stemsOf(pattern); !slices.Equal(have, want) {
			t.Errorf("%s: want %q, have %q", pattern, want, have)
		}
	}
}

// The stems of a pattern hide no word: each text that it matches is found.
func TestEachFormIsFound(t *testing.T) {
	t.Parallel()
	finder, tried := NewFinder(), 0
	for _, w := range Words {
		re, err := syntax.Parse(w.Pattern, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range forms(t, re) {
			if w.Unless != "" && regexp.MustCompile(w.Unless).MatchString(form) {
				continue
			}
			tried++
			line := "so " + form + " it is"
			if strings.HasSuffix(form, "(") { // a call with arguments
				line = "so " + form + "it)"
			}
			if !slices.ContainsFunc(finder.In(line), func(f Found) bool { return f.Instead == w.Instead && f.Word == form }) {
				t.Errorf("%q: want %q refused, have %v", line, form, finder.In(line))
			}
		}
	}
	if tried < 200 {
		t.Errorf("want 200 texts or more, have %d", tried)
	}
}

// forms returns the texts that a pattern matches, with one letter of each class.
func forms(t *testing.T, re *syntax.Regexp) (all []string) {
	t.Helper()
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []string{""}
	case syntax.OpLiteral:
		return []string{string(re.Rune)}
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 { // the first of each range
			all = append(all, string(re.Rune[i]))
		}
	case syntax.OpQuest:
		return append(forms(t, re.Sub[0]), "")
	case syntax.OpCapture:
		return forms(t, re.Sub[0])
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			all = append(all, forms(t, sub)...)
		}
	case syntax.OpConcat:
		all = []string{""}
		for _, sub := range re.Sub {
			var longer []string
			for _, end := range forms(t, sub) {
				for _, start := range all {
					longer = append(longer, start+end)
				}
			}
			all = longer
		}
	default:
		t.Fatalf("%s: want a pattern of which all forms are known", re)
	}
	return all
}
