// Command queues compares ways to run queued tasks of which no two may work on
// the same thing at once: Siding, asynq with a lock, and others. They take turns, scenario by
// scenario and round by round, each with a Redis of its own. See queues -h and ../../README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/delay"
	"github.com/sidingq/siding/bench/internal/program"
)

func main() {
	command := run
	if delay.Asked() {
		command = delay.Main
	}
	os.Exit(program.Run("queues", command))
}

// options say what is measured, and how often.
type options struct {
	rounds     int
	scale      float64 // of the numbers of tasks
	limit      time.Duration
	rtt        time.Duration // that a network adds to each round trip; 0 for none
	orders     string        // path of an order file; "" to look for one
	lines      int           // that are read of it
	contenders []contender
	scenarios  []scenario
	json       bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, o, stderr)
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
	if err := b.run(ctx); err != nil {
		return err
	}
	names := slices.Concat(b.network.servers(), contest.Names(b.contenders, contender.called))
	if o.json {
		return b.results.WriteJSON(stdout, names)
	}
	return b.results.WriteRows(stdout, names)
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("queues", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rounds, "rounds", 3, "how often everything is measured")
	flags.Float64Var(&o.scale, "scale", 1, "makes the scenarios smaller (or larger) by this `factor`")
	flags.DurationVar(&o.limit, "limit", 20*time.Second, "ends each run; a contender that is not done by then is not tried again")
	flags.DurationVar(&o.rtt, "rtt", 0, "adds this much to each round trip between contenders and servers, as a network does (default 0, at most "+longestRTT.String()+")")
	flags.StringVar(&o.orders, "orders", "", "`path` of the order file (default $SIDING_ORDERS, or one that is made up)")
	flags.IntVar(&o.lines, "lines", 10_000, "how many lines of the order file are used")
	flags.BoolVar(&o.json, "json", false, "write JSON lines and no table")
	contest.Flag(flags, "contenders", "which `names` take part", contenders(), contender.called, &o.contenders)
	contest.Flag(flags, "scenarios", "which `names` are run", scenarios(), scenario.called, &o.scenarios)
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	switch {
	case flags.NArg() > 0:
		return options{}, fmt.Errorf("want no arguments, have %q", flags.Args())
	case o.rounds < 1 || o.lines < 1 || o.scale <= 0 || o.limit <= 0:
		return options{}, errors.New("want at least 1 for -rounds and -lines, and more than 0 for -scale and -limit")
	case o.rtt < 0 || o.rtt > longestRTT:
		return options{}, fmt.Errorf("-rtt %v: want 0 to %v", o.rtt, longestRTT)
	}
	return o, nil
}
