// Command scale measures what many waiting tasks cost. It parks them by running a server on tasks
// whose resources are all locked. Then it compares times and sizes with those of few waiting tasks.
// See scale -h and ../../README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/program"
)

func main() { os.Exit(program.Run("scale", run)) }

// options say what is measured.
type options struct {
	tasks     int
	resources []int // one case each
	ttl       time.Duration
	watch     time.Duration
	handOffs  int
	json      bool
	progress  io.Writer
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	costs, err := measureCosts(ctx, o)
	if err != nil {
		return fmt.Errorf("cost of a task: %w", err)
	}
	own, err := asynqBytes(ctx, o.tasks)
	if err != nil {
		return fmt.Errorf("plain asynq: %w", err)
	}
	setting := stdout
	if o.json {
		setting = stderr
	}
	_, _ = fmt.Fprintf(setting, "%s, %d CPUs; %d tasks; %.0f bytes for each in asynq's retry set\n", runtime.Version(), runtime.NumCPU(), o.tasks, own)
	if o.json {
		for _, c := range costs {
			if err := c.writeJSON(stdout); err != nil {
				return err
			}
		}
	}
	results, err := measureAll(ctx, o, own, stdout)
	if o.json {
		return err
	}
	return errors.Join(err, writeTable(stdout, results), writeCosts(stdout, costs))
}

// measureAll measures one case after the other. With an error it returns the results of the
// cases before, which have taken minutes.
func measureAll(ctx context.Context, o options, own float64, stdout io.Writer) (all []result, err error) {
	for _, resources := range o.resources {
		r, err := measure(ctx, o, resources)
		if err != nil {
			return all, fmt.Errorf("%d resources: %w", resources, err)
		}
		r.Bytes -= own
		all = append(all, r)
		if o.json {
			if err := r.writeJSON(stdout); err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{resources: []int{1, 1000, 100_000}, progress: stderr}
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.tasks, "tasks", 1_000_000, "how many tasks wait")
	flags.Func("resources", "on how many resources they wait, one case each (default 1,1000,100000)", func(list string) (err error) {
		o.resources, err = contest.Numbers(list)
		return err
	})
	flags.DurationVar(&o.ttl, "ttl", 15*time.Second, "TTL of the held locks, which are renewed three times in it")
	flags.DurationVar(&o.watch, "watch", 70*time.Second, "for how long Redis is watched while all wait")
	flags.IntVar(&o.handOffs, "handoffs", 500, "how many hand-offs are timed")
	flags.BoolVar(&o.json, "json", false, "write JSON lines and no table")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	switch {
	case flags.NArg() > 0:
		return options{}, fmt.Errorf("want no arguments, have %q", flags.Args())
	case min(o.tasks, o.handOffs) < 1 || o.watch < 0:
		return options{}, errors.New("want at least 1 for -tasks and -handoffs, and 0 for -watch")
	}
	for _, n := range o.resources {
		if n > o.tasks {
			return options{}, fmt.Errorf("want a task or more for each resource, have %d tasks for %d", o.tasks, n)
		}
	}
	return o, nil
}
