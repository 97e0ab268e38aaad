package words

import (
	"regexp/syntax"
	"slices"
)

// stemsOf returns texts of which each text that matches the pattern has one or more, nil if it knows none.
func stemsOf(pattern string) []string {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil // regexp.MustCompile says why
	}
	return stems(re)
}

func stems(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return []string{string(re.Rune)}
		}
	case syntax.OpCapture, syntax.OpPlus:
		return stems(re.Sub[0])
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			some := stems(sub)
			if some == nil {
				return nil
			}
			all = append(all, some...)
		}
		return all
	case syntax.OpConcat: // those of one part are enough, and long ones are rarer
		var best []string
		for _, sub := range re.Sub {
			if some := stems(sub); some != nil && (best == nil || shortest(some) > shortest(best)) {
				best = some
			}
		}
		return best
	default: // an optional part, a class of letters, a boundary
	}
	return nil
}

func shortest(texts []string) int {
	return len(slices.MinFunc(texts, func(a, b string) int { return len(a) - len(b) }))
}
