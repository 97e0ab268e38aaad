// Command quorum compares locks that outlive the loss of a machine, on several Redis nodes and on
// etcd. It starts the servers itself. They take turns, case by case and round by round. So other
// work of the machine meets all of them. See quorum -h and ../../README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/program"
)

func main() { os.Exit(program.Run("quorum", run)) }

// options say what is measured, and how often.
type options struct {
	rounds     int
	ops        int   // uncontended acquisitions per goroutine and round
	handOffs   int   // at least so many per case and round
	waiters    []int // per lock, one case each
	contenders []contender
	json       bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	setting := stdout
	if o.json {
		setting = stderr
	}
	if err := b.writeSetting(ctx, setting); err != nil {
		return err
	}
	for round := range o.rounds {
		_, _ = fmt.Fprintf(stderr, "round %d of %d\n", round+1, o.rounds)
		if err := b.round(ctx, round); err != nil {
			return err
		}
	}
	if o.json {
		return b.results.WriteJSON(stdout, names(o.contenders))
	}
	return b.results.WriteRows(stdout, names(o.contenders))
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{waiters: []int{1, 10}}
	wait, all := defaultTimeouts(), strings.Join(names(contenders(timeouts{})), ",")
	flags := flag.NewFlagSet("quorum", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rounds, "rounds", 5, "how often everything is measured")
	flags.IntVar(&o.ops, "ops", 200, "uncontended acquisitions per goroutine and round, at most 10 where a node hangs")
	flags.IntVar(&o.handOffs, "handoffs", 50, "least number of hand-offs per case and round")
	flags.BoolVar(&o.json, "json", false, "write JSON lines and no table")
	flags.Func("waiters", "waiters per lock, one case each (default 1,10)", func(list string) (err error) {
		o.waiters, err = contest.Numbers(list)
		return err
	})
	list := flags.String("contenders", all, "which `names` take part")
	flags.Func("node-timeout", "for how long a Redis node is waited for (default 50ms by redlock, 400ms by redsync, as is theirs)", func(text string) error {
		d, err := time.ParseDuration(text)
		wait = timeouts{d, d}
		return err
	})
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	switch {
	case flags.NArg() > 0:
		return options{}, fmt.Errorf("want no arguments, have %q", flags.Args())
	case min(o.rounds, o.ops, o.handOffs) < 1:
		return options{}, errors.New("want at least 1 for -rounds, -ops and -handoffs")
	}
	var err error
	o.contenders, err = contest.Choose(contenders(wait), contender.Called, *list)
	return o, err
}

func names(of []contender) []string { return contest.Names(of, contender.Called) }
