// Command idle measures what servers cost a Redis while there are no tasks. See idle -h
// and ../../README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/sidingq/siding/bench/internal/program"
)

func main() { os.Exit(program.Run("idle", run)) }

// A fleet is some servers that have nothing to do.
type fleet struct {
	Servers int    `json:"servers"`
	Queues  int    `json:"queues"`
	Shards  int    `json:"shards"` // of each queue
	Variant string `json:"variant"`
}

// variants are the servers that are idle. Those of asynq never ask for a task: what they cost is the rest of what
// asynq does by itself.
var variants = []struct { //nolint:gochecknoglobals // a table
	name string
	off  bool
}{
	{name: "asynq, dequeueing off", off: true},
	{name: "siding"},
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("idle", flag.ContinueOnError)
	flags.SetOutput(stderr)
	watch := flags.Duration("watch", 20*time.Second, "how long each fleet is watched: some rounds of all that it does from time to time")
	asJSON := flags.Bool("json", false, "write JSON lines and no table")
	large := flags.Int("servers", 20, "the number of servers of the large fleet, on 16 queues")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("want no arguments, have %q", flags.Args())
	case *watch <= 0 || *large < 1:
		return errors.New("want more than 0 for -watch and -servers")
	}
	var fleets []fleet
	for _, size := range []fleet{{Servers: 1, Queues: 1}, {Servers: *large, Queues: 16}} {
		for _, v := range variants {
			size.Variant = v.name
			fleets = append(fleets, size)
		}
	}
	for _, shards := range []int{24, 96} {
		fleets = append(fleets, fleet{Servers: 1, Queues: 1, Shards: shards, Variant: "siding"})
	}
	var all []cost
	for _, f := range fleets {
		_, _ = fmt.Fprintf(stderr, "%s %d servers, %d queues, %d shards: %s\n", time.Now().Format(time.TimeOnly), f.Servers, f.Queues, f.Shards, f.Variant)
		c, err := measure(ctx, f, *watch)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Variant, err)
		}
		if *asJSON {
			if err := json.NewEncoder(stdout).Encode(c); err != nil {
				return err
			}
		}
		all = append(all, c)
	}
	if *asJSON {
		return nil
	}
	return write(stdout, all)
}

// write writes a line for each fleet.
func write(w io.Writer, all []cost) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(table, "%s, %d CPUs\n\nservers\tqueues\tshards\t\tsent per second\trun per second\tCPU of Redis\tconnections\n", runtime.Version(), runtime.NumCPU())
	for _, c := range all {
		_, _ = fmt.Fprintf(table, "%d\t%d\t%d\t%s\t%.1f\t%.1f\t%.1f %%\t%d\n", c.Servers, c.Queues, c.Shards, c.Variant, c.Sent, c.Run, 100*c.CPU, c.Connections)
	}
	return table.Flush() // tells of the errors of the lines before, too
}
