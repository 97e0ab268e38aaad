// Package contest has the contenders of a benchmark take turns, selects them by name, and says what they are.
package contest

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/sidingq/siding/bench/node"
	"github.com/sidingq/siding/internal/testenv/proc"
)

// An Entry is a contender or a scenario, as users choose it and read of it.
type Entry struct {
	Name  string
	About string
	// Modules are where the code of a contender comes from.
	Modules []string
	Needs   Need
}

// A Need is a program that may be missing.
type Need int

// The needs. Each contender on Redis needs Redis, also those in Node.
const (
	Redis Need = iota
	Postgres
	Node
)

// An Entrant is what embeds an [Entry].
type Entrant interface{ entry() Entry }

func (e Entry) entry() Entry { return e }

// describe returns what readers are told.
func (e Entry) describe() string {
	var about []string
	if len(e.Modules) > 0 {
		packages := node.Versions()
		var from []string
		for _, module := range e.Modules {
			from = append(from, strings.TrimSpace(module+" "+cmp.Or(version(module), packages[module])))
		}
		about = append(about, strings.Join(from, ", "))
	}
	return fmt.Sprintf("  %s: %s", e.Name, strings.Join(append(about, e.About), "; "))
}

// WriteSetting writes the versions of the programs that take part and what is done, and then what each contender is, and
// each scenario.
func WriteSetting[C, S Entrant](ctx context.Context, w io.Writer, programs, about []string, contenders []C, scenarios []S) error {
	programs = append(programs, runtime.Version())
	if slices.ContainsFunc(contenders, func(c C) bool { return c.entry().Needs == Node }) {
		out, err := exec.CommandContext(ctx, "node", "--version").Output()
		if err != nil {
			return err
		}
		programs = append(programs, "Node "+strings.TrimSpace(string(out)))
	}
	lines := append([]string{fmt.Sprintf("%s, %d CPUs", strings.Join(programs, ", "), runtime.NumCPU())}, about...)
	for _, c := range contenders {
		lines = append(lines, c.entry().describe())
	}
	for _, s := range scenarios {
		lines = append(lines, s.entry().describe())
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// Meet returns the contenders whose needs are met, and says which are left out. Folder has the programs of those in Node.
func Meet[C Entrant](ctx context.Context, all []C, log io.Writer) (met []C, folder string, err error) {
	missing := make(map[Need]error)
	for _, c := range all {
		need := c.entry().Needs
		if _, tried := missing[need]; !tried {
			switch need {
			case Redis:
				_, missing[need] = proc.Look("redis-server", "redis-server")
			case Postgres:
				_, missing[need] = proc.Look("postgresql", "initdb", "/usr/lib/postgresql/*/bin/initdb")
			case Node:
				folder, missing[need] = node.Install(ctx)
			}
		}
		if err := missing[need]; err != nil {
			_, _ = fmt.Fprintf(log, "skipped: %s: %v\n", c.entry().Name, err)
			continue
		}
		met = append(met, c)
	}
	if len(met) == 0 {
		return nil, "", errors.New("nobody is left to take part")
	}
	return met, folder, nil
}

// Choose returns those of all that a list of names, with commas between, asks for.
func Choose[T Entrant](all []T, list string) ([]T, error) {
	var chosen []T
	for want := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(c T) bool { return c.entry().Name == want })
		if i < 0 {
			return nil, fmt.Errorf("want some of %s, have %q", strings.Join(Names(all), ", "), want)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Flag defines a flag that chooses some of all by their names. Without the flag all are chosen.
func Flag[T Entrant](flags *flag.FlagSet, name, usage string, all []T, chosen *[]T) {
	*chosen = all
	usage = fmt.Sprintf("%s (default %s)", usage, strings.Join(Names(all), ","))
	flags.Func(name, usage, func(list string) (err error) {
		*chosen, err = Choose(all, list)
		return err
	})
}

// Names returns the name of each.
func Names[T Entrant](all []T) []string {
	var names []string
	for _, c := range all {
		names = append(names, c.entry().Name)
	}
	return names
}

// Numbers defines a flag of a list like "1,10".
func Numbers(flags *flag.FlagSet, name, usage string, numbers *[]int) {
	flags.Func(name, usage, func(list string) error {
		*numbers = nil
		for text := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return fmt.Errorf("want numbers above 0, have %q", text)
			}
			*numbers = append(*numbers, n)
		}
		return nil
	})
}

// Turns returns all in the order in which they take their turns in a round: each
// round begins with another.
func Turns[T any](all []T, round int) []T {
	first := round % len(all)
	return slices.Concat(all[first:], all[:first])
}

// version returns that of a module in this program, "" if it is not known.
func version(module string) string {
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
