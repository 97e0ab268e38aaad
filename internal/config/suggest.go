package config

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"
)

// unknown returns the end of an error about a name that is no setting.
func unknown(name string, known []string) string {
	return cmp.Or(Suggest(name, known), ";") + " worker --help lists all"
}

// Suggest returns the end of an error, with the known name that a misspelt one is close to; ""
// without such a name. A setting of the right name in the wrong section is close, too.
func Suggest(name string, known []string) string {
	last := func(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }
	commands := cobra.Command{SuggestionsMinimumDistance: min(2, (len(last(name))+1)/2)} // it knows which of its names are close
	for _, one := range known {
		if last(one) == last(name) {
			return "; did you mean " + one + "?"
		}
		commands.AddCommand(&cobra.Command{Use: one, Run: func(*cobra.Command, []string) {}})
	}
	if like := commands.SuggestionsFor(name); len(like) > 0 {
		return "; did you mean " + like[0] + "?"
	}
	return ""
}
