// Command queues compares ways to run queued tasks of which no two may work on
// the same thing at once: Siding, asynq with a lock, and others. They take turns, scenario by
// scenario and round by round, each with a Redis of its own. See queues -h and ../../README.md.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/delay"
	"github.com/sidingq/siding/bench/internal/program"
)

func main() { os.Exit(program.Run("queues", run)) }

// options say what is measured, and how often.
type options struct {
	*program.Flags

	rounds     int
	scale      float64 // of the numbers of tasks
	limit      time.Duration
	rtt        time.Duration // that a network adds to each round trip; 0 for none
	contenders []contender
	scenarios  []scenario
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, setting, err := parse(args, stdout, stderr)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, o, stderr)
	if err != nil {
		return err
	}
	if err := b.writeSetting(ctx, setting); err != nil {
		return err
	}
	if err := b.run(ctx); err != nil {
		return err
	}
	return b.results.Write(stdout, o.JSON, contest.Names(b.contenders))
}

func parse(args []string, stdout, stderr io.Writer) (o options, setting io.Writer, err error) {
	o.Flags = program.NewFlags("queues", stderr)
	o.IntVar(&o.rounds, "rounds", 3, "how often everything is measured")
	o.Float64Var(&o.scale, "scale", 1, "makes the scenarios smaller (or larger) by this `factor`")
	o.DurationVar(&o.limit, "limit", 20*time.Second, "ends each run; a contender that is not done by then is not tried again")
	delay.Flag(o.FlagSet, &o.rtt)
	contest.Flag(o.FlagSet, "contenders", "which `names` take part", contenders(), &o.contenders)
	contest.Flag(o.FlagSet, "scenarios", "which `names` are run", scenarios(), &o.scenarios)
	if setting, err = o.Read(args, stdout, stderr); err != nil {
		return o, nil, err
	}
	if o.rounds < 1 || o.scale <= 0 || o.limit <= 0 {
		err = errors.New("want at least 1 for -rounds, and more than 0 for -scale and -limit")
	}
	return o, setting, err
}
