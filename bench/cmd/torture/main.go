// Command torture breaks the workers, the connections and the servers of task queues in use, and
// says what became of the tasks: of Siding's, and of those of others that keep tasks of one key
// apart. See torture -h and ../../README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/program"
)

func main() {
	command := run
	if asked() {
		command = work
	}
	os.Exit(program.Run("torture", command))
}

// options say who is tortured, and how.
type options struct {
	contenders []contender
	scenarios  []scenario
	seed       uint64
	each       int           // tasks of each key
	timeout    time.Duration // of each scenario
	json       bool
	keep       string // folder; "" for none
}

// keys is how many keys there are. Each has tasks waiting nearly all the time.
const keys = 6

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	logging.Disable() // servers go down here, and the Redis client would say so on standard error
	b := &bench{options: o, log: stderr}
	if err := b.meetNeeds(ctx); err != nil {
		return err
	}
	setting := stdout
	if o.json {
		setting = stderr
	}
	if err := b.writeSetting(ctx, setting); err != nil {
		return err
	}
	for _, s := range o.scenarios {
		if err := b.torture(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	write := b.writeTable
	if o.json {
		write = b.writeJSON
	}
	return errors.Join(write(stdout), b.broken())
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Uint64Var(&o.seed, "seed", 1, "makes the tasks: the same `number`, the same tasks in the same order")
	flags.IntVar(&o.each, "tasks", 20, "how many tasks each key has")
	flags.DurationVar(&o.timeout, "timeout", 3*time.Minute, "ends each scenario; a task that has not ended by then is lost")
	flags.BoolVar(&o.json, "json", false, "write a line of JSON for each contender and scenario, and no table")
	flags.StringVar(&o.keep, "keep", "", "copy what the handlers wrote into this `folder`")
	contest.Flag(flags, "contenders", "which `names` take part", contenders(), contender.called, &o.contenders)
	contest.Flag(flags, "scenarios", "which `names` are run", scenarios(), scenario.called, &o.scenarios)
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	switch {
	case flags.NArg() > 0:
		return options{}, fmt.Errorf("want no arguments, have %q", flags.Args())
	case o.each < 1:
		return options{}, fmt.Errorf("-tasks %d: want at least 1", o.each)
	case o.timeout < time.Minute:
		return options{}, fmt.Errorf("-timeout %v: want at least 1m0s", o.timeout)
	}
	return o, nil
}
