// Command locks compares Redis lock libraries for Go in one run on one real redis-server. They take
// turns, case by case and round by round. So other work of the machine meets all of them. See locks
// -h and ../../README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/delay"
	"github.com/sidingq/siding/bench/internal/program"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

func main() { os.Exit(program.Run("locks", run)) }

// options say what is measured, and how often.
type options struct {
	*program.Flags

	addr       string // of a Redis that runs already; "" to start one
	rounds     int
	rtt        time.Duration // added to each round trip
	ops        int           // uncontended acquisitions per goroutine and turn
	handOffs   int           // at least so many per case and round
	waiters    []int         // per lock, one case each
	contenders []contender
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, setting, err := parse(args, stdout, stderr)
	if err != nil {
		return err
	}
	addr := o.addr
	if addr == "" {
		server, err := redistest.Run(ctx)
		if err != nil {
			return err
		}
		defer server.Stop()
		addr = server.Addr
	}
	b, err := newBench(ctx, addr, o)
	if err != nil {
		return err
	}
	defer b.close()
	if err := b.writeSetting(ctx, setting); err != nil {
		return err
	}
	for round := range o.rounds {
		_, _ = fmt.Fprintf(stderr, "round %d of %d\n", round+1, o.rounds)
		if err := b.round(ctx, round); err != nil {
			return err
		}
	}
	return b.results.Write(stdout, o.JSON, contest.Names(o.contenders))
}

func parse(args []string, stdout, stderr io.Writer) (o options, setting io.Writer, err error) {
	o.Flags, o.waiters = program.NewFlags("locks", stderr), []int{1, 10, 100}
	o.StringVar(&o.addr, "redis", "", "`address` of a Redis to use, which nobody else should use meanwhile; empty starts redis-server")
	o.IntVar(&o.rounds, "rounds", 5, "how often everything is measured")
	o.IntVar(&o.ops, "ops", 200, "uncontended acquisitions per goroutine and turn, of which a round has 5")
	o.IntVar(&o.handOffs, "handoffs", 50, "least number of hand-offs per case and round")
	delay.Flag(o.FlagSet, &o.rtt)
	contest.Numbers(o.FlagSet, "waiters", "waiters per lock, one case each (default 1,10,100)", &o.waiters)
	contest.Flag(o.FlagSet, "contenders", "which `names` take part", contenders(), &o.contenders)
	if setting, err = o.Read(args, stdout, stderr); err != nil {
		return o, nil, err
	}
	if min(o.rounds, o.ops, o.handOffs) < 1 {
		err = errors.New("want at least 1 for -rounds, -ops and -handoffs")
	}
	return o, setting, err
}
