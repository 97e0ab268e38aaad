package config

import (
	"cmp"
	"strings"
)

// unknown returns the end of an error about a name that is no setting.
func unknown(name string, known []string) string {
	return cmp.Or(Suggest(name, known), ";") + " worker --help lists all"
}

// Suggest returns the end of an error, with the known name that a misspelt one is close to; ""
// without such a name.
func Suggest(name string, known []string) string {
	best, least := "", 0
	for _, candidate := range known {
		if d, ok := likeness(name, candidate); ok && (best == "" || d < least) {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// likeness returns how many letters a name and a known one differ by, and whether they are close.
// Words that both begin with, such as the section, do not count.
func likeness(name, candidate string) (d int, ok bool) {
	// A setting of the right name in the wrong section is close, too.
	if last(name) == last(candidate) {
		return 1, true
	}
	a, b := tails(name, candidate)
	a, b = plain(a), plain(b)
	d = distance(a, b)
	// So is the beginning of a name.
	if len(a) >= 3 && strings.HasPrefix(b, a) {
		return min(d, 2), true
	}
	// Up to a third of the letters may be wrong, or two, but not all.
	return d, d <= max(2, len(b)/3) && d < len(b)
}

// tails returns two names without the words that both begin with.
func tails(a, b string) (string, string) {
	const joints = "._-"
	for {
		i, j := strings.IndexAny(a, joints), strings.IndexAny(b, joints)
		if i < 0 || j < 0 || a[:i] != b[:j] {
			return a, b
		}
		a, b = a[i+1:], b[j+1:]
	}
}

// plain ignores how a name joins its words: renewEvery, renew-every, RENEW_EVERY.
func plain(name string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(name))
}

func last(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// distance counts the letters to insert, delete or replace to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j]+1, row[j+1]+1, replace)
		}
	}
	return row[len(b)]
}
