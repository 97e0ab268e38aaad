// Package contest has the contenders of a benchmark take turns, and selects them by name.
package contest

import (
	"flag"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// Choose returns those of all that a list of names, with commas between, asks for.
func Choose[T any](all []T, name func(T) string, list string) ([]T, error) {
	var chosen []T
	for want := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(c T) bool { return name(c) == want })
		if i < 0 {
			return nil, fmt.Errorf("want some of %s, have %q", strings.Join(Names(all, name), ", "), want)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Flag defines a flag that chooses some of all by their names. Without the flag all are chosen.
func Flag[T any](flags *flag.FlagSet, flagName, usage string, all []T, name func(T) string, chosen *[]T) {
	*chosen = all
	usage = fmt.Sprintf("%s (default %s)", usage, strings.Join(Names(all, name), ","))
	flags.Func(flagName, usage, func(list string) (err error) {
		*chosen, err = Choose(all, name, list)
		return err
	})
}

// Names returns the name of each.
func Names[T any](all []T, name func(T) string) []string {
	var names []string
	for _, c := range all {
		names = append(names, name(c))
	}
	return names
}

// Numbers reads a list like "1,10".
func Numbers(list string) ([]int, error) {
	var all []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("want numbers above 0, have %q", text)
		}
		all = append(all, n)
	}
	return all, nil
}

// Turns returns all in the order in which they take their turns in a round: each
// round begins with another.
func Turns[T any](all []T, round int) []T {
	first := round % len(all)
	return slices.Concat(all[first:], all[:first])
}

// Version returns that of a module in this program, "" if it is not known.
func Version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == module })
	if i < 0 || info.Deps[i].Replace != nil {
		return ""
	}
	return info.Deps[i].Version
}
