// Package contest has the contenders of a benchmark take turns, selects them by name, and says what they are.
package contest

import (
	"cmp"
	"context"
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
)

// A Contender is what every one has.
type Contender struct {
	Name string
	// Modules are where its code comes from, and Config how it is set up: for readers.
	Modules []string
	Config  string
	Needs   Need
}

// A Scenario is what every one has.
type Scenario struct{ Name, About string }

// A Need is a program that may be missing, besides redis-server.
type Need int

// The needs.
const (
	Nothing Need = iota
	Postgres
	Node
)

// A Named is a contender or a scenario.
type Named interface{ Called() string }

// Called returns the name.
func (c Contender) Called() string { return c.Name }

// Called returns the name.
func (s Scenario) Called() string { return s.Name }

func (c Contender) describe(packages map[string]string) string {
	var from []string
	for _, module := range c.Modules {
		from = append(from, strings.TrimSpace(module+" "+cmp.Or(version(module), packages[module])))
	}
	return fmt.Sprintf("  %s: %s; %s", c.Name, strings.Join(from, ", "), c.Config)
}

func (c Contender) contender() Contender { return c }

func (s Scenario) scenario() Scenario { return s }

// A Contending is what has a [Contender].
type Contending interface {
	Named
	contender() Contender
}

// A Told is what has a [Scenario].
type Told interface {
	Named
	scenario() Scenario
}

// WriteSetting writes the versions of the programs that take part and what is done, and then what each contender is, and
// each scenario.
func WriteSetting[C Contending, S Told](ctx context.Context, w io.Writer, programs, about []string, contenders []C, scenarios []S) error {
	packages := node.Versions()
	programs = append(programs, runtime.Version())
	if slices.ContainsFunc(contenders, func(c C) bool { return c.contender().Needs == Node }) {
		out, err := exec.CommandContext(ctx, "node", "--version").Output()
		if err != nil {
			return err
		}
		programs = append(programs, "Node "+strings.TrimSpace(string(out)))
	}
	lines := append([]string{fmt.Sprintf("%s, %d CPUs", strings.Join(programs, ", "), runtime.NumCPU())}, about...)
	for _, c := range contenders {
		lines = append(lines, c.contender().describe(packages))
	}
	for _, s := range scenarios {
		lines = append(lines, fmt.Sprintf("  %s: %s", s.Called(), s.scenario().About))
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// Meet returns the contenders whose needs are met, and says which are left out. It tries to meet each need once.
func Meet[C Contending](all []C, meet func(Need) error, log io.Writer) []C {
	missing := make(map[Need]error)
	return slices.DeleteFunc(slices.Clone(all), func(c C) bool {
		need := c.contender().Needs
		if _, tried := missing[need]; !tried {
			missing[need] = meet(need)
		}
		err := missing[need]
		if err != nil {
			_, _ = fmt.Fprintf(log, "skipped: %s: %v\n", c.Called(), err)
		}
		return err != nil
	})
}

// Choose returns those of all that a list of names, with commas between, asks for.
func Choose[T Named](all []T, list string) ([]T, error) {
	var chosen []T
	for want := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(c T) bool { return c.Called() == want })
		if i < 0 {
			return nil, fmt.Errorf("want some of %s, have %q", strings.Join(Names(all), ", "), want)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Flag defines a flag that chooses some of all by their names. Without the flag all are chosen.
func Flag[T Named](flags *flag.FlagSet, name, usage string, all []T, chosen *[]T) {
	*chosen = all
	usage = fmt.Sprintf("%s (default %s)", usage, strings.Join(Names(all), ","))
	flags.Func(name, usage, func(list string) (err error) {
		*chosen, err = Choose(all, list)
		return err
	})
}

// Names returns the name of each.
func Names[T Named](all []T) []string {
	var names []string
	for _, c := range all {
		names = append(names, c.Called())
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
