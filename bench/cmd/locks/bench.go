package main

import (
	"context"
	"fmt"
	"io"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/delay"
	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/bench/internal/report"
)

const (
	// processes is the number of clients over which waiters are spread, at most.
	processes = 10
	// atOnce is how many waiters are watched at once.
	atOnce = 20
	// turns is how often a round measures an uncontended lock. One measurement takes little time,
	// and depends on the cores of client and server.
	turns = 5
	// some goroutines take uncontended locks at once, and many show what it is worth that calls go together.
	some, many = 16, 256
)

// A bench measures all contenders on one Redis.
type bench struct {
	options
	addr    string        // as the contenders reach it
	client  *redis.Client // for Redis's own figures
	network func()        // ends what lies in between
	results report.Results
}

func newBench(ctx context.Context, addr string, o options) (*bench, error) {
	far, network, err := delay.Between(ctx, addr, o.rtt)
	if err != nil {
		return nil, err
	}
	return &bench{options: o, addr: far, client: redis.NewClient(&redis.Options{Addr: addr}), network: network}, nil
}

func (b *bench) close() {
	_ = b.client.Close()
	b.network()
}

// round measures everything. Which contender comes first changes with the round.
func (b *bench) round(ctx context.Context, round int) error {
	took, err := redisstat.RoundTrip(ctx, b.addr)
	if err != nil {
		return err
	}
	b.results.AddRoundTrip(took)
	each := func(what string, clients int, measure func(context.Context, course) error) error {
		for _, c := range contest.Turns(b.contenders, round) {
			err := c.run(ctx, b.addr, clients, func(ctx context.Context, opened []client) error {
				before, err := redisstat.ReadUsage(ctx, b.client)
				if err != nil {
					return err
				}
				return measure(ctx, course{c, what, opened, before})
			})
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.Name, what, err)
			}
		}
		return nil
	}
	for _, n := range []int{1, some, many} {
		for range turns {
			err := each(fmt.Sprintf("uncontended, %d at once", n), 1, func(ctx context.Context, c course) error {
				return b.uncontended(ctx, c, n)
			})
			if err != nil {
				return err
			}
		}
	}
	for _, waiters := range b.waiters {
		spread := min(waiters+1, processes)
		for _, clients := range []int{1, spread} {
			err := each(fmt.Sprintf("waiters %d, processes %d", waiters, clients), clients, func(ctx context.Context, c course) error {
				return b.handOffs(ctx, c, waiters)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// A course is one case with the clients of one contender.
type course struct {
	contender

	what    string
	clients []client
	before  redisstat.Usage
}

// uncontended lets so many goroutines of one client each lock a name of its own.
func (b *bench) uncontended(ctx context.Context, c course, goroutines int) error {
	ops := max(1, b.ops*some/max(goroutines, some)) // of each
	took, err := uncontended(ctx, c.clients[0], goroutines, ops)
	if err != nil {
		return err
	}
	acquisitions := goroutines * ops
	b.results.Add(c.Name, report.Figure{Case: c.what, Name: "acquisitions", Unit: "per second"}, float64(acquisitions)/took.Seconds())
	return b.addCommands(ctx, c, acquisitions)
}

// handOffs lets locks go from one waiter to the next.
func (b *bench) handOffs(ctx context.Context, c course, waiters int) error {
	took, acquisitions, err := pass(ctx, c.clients, waiters, b.options.handOffs)
	if err != nil {
		return err
	}
	b.results.AddPercentiles(c.Name, c.what, "hand-off", took)
	return b.addCommands(ctx, c, acquisitions)
}

func (b *bench) addCommands(ctx context.Context, c course, acquisitions int) error {
	after, err := redisstat.ReadUsage(ctx, b.client)
	if err != nil {
		return err
	}
	used := after.Since(c.before)
	sent := used.Scripts()
	for _, name := range c.direct {
		sent += used.Calls[name]
	}
	b.results.Add(c.Name, report.Figure{Case: c.what, Name: "commands sent", Unit: "per acquisition"}, float64(sent)/float64(acquisitions))
	b.results.Add(c.Name, report.Figure{Case: c.what, Name: "commands run", Unit: "per acquisition"}, float64(used.Run())/float64(acquisitions))
	return nil
}

// writeSetting says what was measured, and on what. The Redis may be one that runs already.
func (b *bench) writeSetting(ctx context.Context, w io.Writer) error {
	info, err := b.client.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	about := fmt.Sprintf("%d rounds, %v added to each round trip", b.rounds, b.rtt)
	return contest.WriteSetting(ctx, w, []string{"Redis " + info["Server"]["redis_version"]}, []string{about}, b.contenders, []contest.Entry(nil))
}
