package config

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// unknown returns the end of an error about a name that is no setting.
func unknown(name string, known []string) string {
	return cmp.Or(Suggest(name, known), ";") + " worker --help lists all"
}

// Suggest returns the end of an error, with the known name that a misspelt one is closest to; ""
// without such a name. A setting of the right name in the wrong section is close, too.
func Suggest(name string, known []string) string {
	last := func(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }
	like := closest(name, known, min(2, (len(last(name))+1)/2))
	if same := slices.IndexFunc(known, func(one string) bool { return last(one) == last(name) }); same >= 0 {
		like = known[same]
	}
	if like == "" {
		return ""
	}
	return "; did you mean " + like + "?"
}

// closest returns the name that differs in the fewest letters, at most so many, or that another one begins; "" for none.
func closest(name string, known []string, most int) string {
	var commands cobra.Command // cobra looks for what a misspelt command may be
	for _, one := range known {
		commands.AddCommand(&cobra.Command{Use: one, Run: func(*cobra.Command, []string) {}})
	}
	for ; commands.SuggestionsMinimumDistance <= most; commands.SuggestionsMinimumDistance++ {
		if like := commands.SuggestionsFor(name); len(like) > 0 {
			return like[0]
		}
	}
	return ""
}
