package config

import "strings"

// suggest returns the known name that a misspelt one is close to, as the end
// of an error; empty when there is none.
func suggest(name string, known []string) string {
	best, least := "", 0
	for _, candidate := range known {
		d := distance(plain(name), plain(candidate))
		// A setting of the right name in the wrong section is close, too.
		if last(name) == last(candidate) {
			d = 1
		}
		// Up to a third of the letters may be wrong; a short name has two.
		if d <= max(2, len(candidate)/3) && (best == "" || d < least) {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
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
