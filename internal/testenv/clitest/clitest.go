// Package clitest tests what the programs for people at a terminal have in common.
package clitest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock/locktest"
)

// Away checks that command lines of a program end soon, whatever is wrong with Redis: with status 1, and
// an error that names the address and the cause. hint follows the cause if nobody is there. run runs the
// program, and returns what it wrote to standard error.
func Away(t *testing.T, program, hint string, commands [][]string, run func(t *testing.T, args ...string) (errs string, status int)) {
	t.Helper()
	server := redistest.Start(t, "--requirepass", "secret")
	hole := locktest.NewProxy(t, server.Addr)
	hole.BlackHole(true)
	for name, c := range map[string]struct{ addr, want string }{
		"nobody there":       {"127.0.0.1:1", "connection refused" + hint},
		"no such host":       {"no-such-host.invalid:6379", "no-such-host.invalid"},
		"password is wanted": {server.Addr, "NOAUTH Authentication required. (set SIDING_REDIS_PASSWORD"},
		"no answer":          {hole.Addr, "timeout"},
	} {
		asked := commands
		if name != "nobody there" { // they all connect by the same call
			asked = commands[:min(2, len(commands))]
		}
		for _, args := range asked {
			t.Run(name+" "+strings.Join(args, " "), func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				errs, status := run(t, slices.Concat(args, []string{"--redis", c.addr})...)
				if status != cli.StatusFault || !strings.HasPrefix(errs, program+": redis "+c.addr+": ") || !strings.Contains(errs, c.want) {
					t.Errorf("want status 1 and an error with the address and %q, have status %d and %q", c.want, status, errs)
				}
				if took, most := time.Since(start), cli.Patience+15*time.Second; took > most {
					t.Errorf("want the error within %v, have %v", most, took)
				}
			})
		}
	}
}

// Flags checks that each flag of a command, and of those below it, says what it wants if its value is none
// of that.
func Flags(t *testing.T, root *cobra.Command) {
	t.Helper()
	refused := 0
	check := func(flags *pflag.FlagSet) {
		flags.VisitAll(func(f *pflag.Flag) {
			err := flags.Set(f.Name, "no value")
			if err == nil {
				return // a text, or one that others check
			}
			refused++
			have := config.FlagError(flags, err).Error()
			if !strings.HasPrefix(have, "--"+f.Name+": want ") || !strings.HasSuffix(have, ", have \"no value\"") {
				t.Errorf("%s --%s: want what is wanted, and the value, have %s", root.Name(), f.Name, have)
			}
		})
	}
	check(root.Flags())
	check(root.PersistentFlags())
	for _, cmd := range root.Commands() {
		Flags(t, cmd)
	}
	if refused == 0 && !root.HasParent() {
		t.Errorf("%s: want a flag that refuses its value", root.Name())
	}
}
