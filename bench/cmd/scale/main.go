// Command scale measures what many waiting tasks cost. It parks them by running a server on tasks
// whose resources are all locked. Then it compares times and sizes with those of few waiting tasks.
// See scale -h and ../../README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/program"
	"github.com/sidingq/siding/bench/internal/report"
)

func main() { os.Exit(program.Run("scale", run)) }

// options say what is measured.
type options struct {
	*program.Flags

	tasks    int
	cases    []int // how many resources each has
	ttl      time.Duration
	handOffs int
	progress io.Writer
	results  *report.Results
	name     string // of the case, in the results
}

func (o options) say(format string, args ...any) {
	_, _ = fmt.Fprintf(o.progress, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, setting, err := parse(args, stdout, stderr)
	if err != nil {
		return err
	}
	own, err := asynqBytes(ctx, o.tasks)
	if err != nil {
		return fmt.Errorf("plain asynq: %w", err)
	}
	_, _ = fmt.Fprintf(setting, "%s, %d CPUs; %d tasks, TTL of the locks %v; %.0f bytes for each in asynq's retry set\n",
		runtime.Version(), runtime.NumCPU(), o.tasks, o.ttl, own)
	var names []string
	for _, resources := range o.cases {
		o.name = fmt.Sprintf("%d tasks on %d resources", o.tasks, resources)
		names = append(names, o.name)
		if err = measure(ctx, o, resources, own); err != nil {
			err = fmt.Errorf("%d resources: %w", resources, err)
			break // the cases before have taken minutes
		}
	}
	return errors.Join(err, o.results.Write(stdout, o.JSON, names))
}

func parse(args []string, stdout, stderr io.Writer) (o options, setting io.Writer, err error) {
	o = options{Flags: program.NewFlags("scale", stderr), cases: []int{1, 1000, 100_000}, progress: stderr, results: &report.Results{}}
	o.IntVar(&o.tasks, "tasks", 1_000_000, "how many tasks wait")
	contest.Numbers(o.FlagSet, "resources", "on how many resources they wait, one case each (default 1,1000,100000)", &o.cases)
	o.DurationVar(&o.ttl, "ttl", 15*time.Second, "TTL of the held locks, which are renewed three times in it")
	o.IntVar(&o.handOffs, "handoffs", 500, "how many hand-offs are timed")
	if setting, err = o.Read(args, stdout, stderr); err != nil {
		return o, nil, err
	}
	most := slices.Max(o.cases)
	switch {
	case min(o.tasks, o.handOffs) < 1:
		err = errors.New("want at least 1 for -tasks and -handoffs")
	case most > o.tasks:
		err = fmt.Errorf("want a task or more for each resource, have %d tasks for %d", o.tasks, most)
	}
	return o, setting, err
}
