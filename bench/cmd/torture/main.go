// Command torture breaks the workers, the connections and the servers of task queues in use, and
// says what became of the tasks: of Siding's, and of those of others that keep tasks of one key
// apart. See torture -h and ../../README.md.
package main

import (
	"context"
	"errors"
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
		command = takePart
	}
	os.Exit(program.Run("torture", command))
}

// options say who is tortured, and how.
type options struct {
	*program.Flags

	contenders []contender
	scenarios  []scenario
	seed       uint64
	timeout    time.Duration // of each scenario
	keep       string        // folder; "" for none
}

// keys is how many keys there are, and each how many tasks a key has. Each key has tasks waiting nearly all the time.
const keys, each = 6, 20

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, setting, err := parse(args, stdout, stderr)
	if err != nil {
		return err
	}
	logging.Disable() // servers go down here, and the Redis client would say so on standard error
	b := &bench{options: o, log: stderr}
	if b.contenders, b.node, err = contest.Meet(ctx, b.contenders, stderr); err != nil {
		return err
	}
	if err := b.writeSetting(ctx, setting); err != nil {
		return err
	}
	for _, s := range o.scenarios {
		if err := b.torture(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	write := b.writeTable
	if o.JSON {
		write = b.writeJSON
	}
	return errors.Join(write(stdout), b.broken())
}

func parse(args []string, stdout, stderr io.Writer) (o options, setting io.Writer, err error) {
	o.Flags = program.NewFlags("torture", stderr)
	o.Uint64Var(&o.seed, "seed", 1, "makes the tasks: the same `number`, the same tasks in the same order")
	o.DurationVar(&o.timeout, "timeout", 3*time.Minute, "ends each scenario; a task that has not ended by then is lost")
	o.StringVar(&o.keep, "keep", "", "copy what the handlers wrote into this `folder`")
	contest.Flag(o.FlagSet, "contenders", "which `names` take part", contenders(), &o.contenders)
	contest.Flag(o.FlagSet, "scenarios", "which `names` are run", scenarios(), &o.scenarios)
	if setting, err = o.Read(args, stdout, stderr); err != nil {
		return o, nil, err
	}
	if o.timeout < time.Minute {
		err = fmt.Errorf("-timeout %v: want at least 1m0s", o.timeout)
	}
	return o, setting, err
}
