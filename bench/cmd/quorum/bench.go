package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/locking"
	"github.com/sidingq/siding/bench/internal/report"
)

const (
	// atOnce is how many waiters are watched at once. They are few, so that a hand-off does not
	// wait for the others' writes to disk.
	atOnce = 5
	// yardstick is how many round trips are timed per round.
	yardstick = 100
)

// A bench measures all contenders.
type bench struct {
	options
	servers map[system]*servers
	results report.Results
}

// newBench starts what the contenders need.
func newBench(ctx context.Context, o options) (*bench, error) {
	b := &bench{options: o, servers: make(map[system]*servers)}
	for _, s := range b.systems() {
		up, err := s.start(ctx)
		if err != nil {
			b.close()
			return nil, fmt.Errorf("start %v: %w", s, err)
		}
		b.servers[s] = up
	}
	return b, nil
}

func (b *bench) close() {
	for _, up := range b.servers {
		up.stop()
	}
}

// systems returns those that the contenders are on.
func (b *bench) systems() []system {
	var all []system
	for _, c := range b.contenders {
		if !slices.Contains(all, c.on) {
			all = append(all, c.on)
		}
	}
	return all
}

// A course is one case with the clients of one contender.
type course struct {
	contender

	what    string
	clients []locking.Client
}

// round measures everything. Which contender comes first changes with the round.
func (b *bench) round(ctx context.Context, round int) error {
	if err := b.roundTrips(ctx); err != nil {
		return err
	}
	each := func(what string, clients int, in func(contender) bool, measure func(context.Context, course) error) error {
		for _, c := range contest.Turns(b.contenders, round) {
			if !in(c) {
				continue
			}
			err := c.Run(ctx, b.servers[c.on].addrs, clients, func(ctx context.Context, opened []locking.Client) error {
				return measure(ctx, course{c, what, opened})
			})
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.Name, what, err)
			}
		}
		return nil
	}
	healthy := func(c contender) bool { return !c.hungOnly }
	if err := each("uncontended, 1 at once", 1, healthy, b.alone); err != nil {
		return err
	}
	if err := each(fmt.Sprintf("uncontended, %d at once", locking.Goroutines), 1, healthy, b.together); err != nil {
		return err
	}
	for _, waiters := range b.waiters {
		what := fmt.Sprintf("waiters %d, processes %d", waiters, waiters+1)
		err := each(what, waiters+1, healthy, func(ctx context.Context, c course) error {
			return b.handOffs(ctx, c, waiters)
		})
		if err != nil {
			return err
		}
	}
	return each("one node hangs", 1, func(c contender) bool { return c.hung > 0 }, b.hung)
}

// roundTrips times the least that can be asked of each system.
func (b *bench) roundTrips(ctx context.Context) error {
	for _, s := range b.systems() {
		if s.kind == redisNodes && s.nodes > 1 {
			continue // each answers by itself, like one
		}
		took, what, err := b.servers[s].roundTrips(ctx, yardstick)
		if err != nil {
			return fmt.Errorf("%v: %w", s, err)
		}
		b.results.AddPercentiles(report.Nobody, fmt.Sprintf("%v, %s", s, what), "round trip", took)
	}
	return nil
}

// alone locks and unlocks, again and again.
func (b *bench) alone(ctx context.Context, c course) error {
	locks, _, both, err := visits(ctx, c.clients[0], b.ops)
	if err != nil {
		return err
	}
	b.results.AddPercentiles(c.Name, c.what, "lock", locks)
	b.results.AddPercentiles(c.Name, c.what, "lock and unlock", both)
	return nil
}

// visits times so many acquisitions, each of a lock of its own.
func visits(ctx context.Context, l locking.Client, times int) (locks, unlocks, both []time.Duration, _ error) {
	for range times {
		name := "alone:" + rand.Text()
		start := time.Now()
		unlock, err := l.Lock(ctx, name)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("lock: %w", err)
		}
		locked := time.Now()
		if err := unlock(ctx); err != nil {
			return nil, nil, nil, fmt.Errorf("unlock: %w", err)
		}
		unlocked := time.Now()
		locks = append(locks, locked.Sub(start))
		unlocks = append(unlocks, unlocked.Sub(locked))
		both = append(both, unlocked.Sub(start))
	}
	return locks, unlocks, both, nil
}

// together lets several goroutines of one client each lock a name of its own.
func (b *bench) together(ctx context.Context, c course) error {
	took, err := locking.Uncontended(ctx, c.clients[0], locking.Goroutines, b.ops)
	if err != nil {
		return err
	}
	acquisitions := float64(locking.Goroutines * b.ops)
	b.results.Add(c.Name, report.Figure{Case: c.what, Name: "acquisitions", Unit: "per second"}, acquisitions/took.Seconds())
	return nil
}

// handOffs lets locks go from one waiter to the next.
func (b *bench) handOffs(ctx context.Context, c course, waiters int) error {
	took, _, err := locking.HandOffs{Waiters: waiters, AtOnce: atOnce, Least: b.options.handOffs}.Run(ctx, c.clients)
	if err != nil {
		return err
	}
	b.results.AddPercentiles(c.Name, c.what, "hand-off", took)
	return nil
}

// hung stops a node, whose connections stay open, and locks and unlocks meanwhile.
func (b *bench) hung(ctx context.Context, c course) error {
	nodes := b.servers[c.on].nodes
	node := nodes[len(nodes)-1]
	node.Pause()
	defer node.Resume()
	locks, unlocks, _, err := visits(ctx, c.clients[0], min(b.ops, c.hung))
	if err != nil {
		return err
	}
	b.results.AddPercentiles(c.Name, c.what, "lock", locks)
	b.results.AddPercentiles(c.Name, c.what, "unlock", unlocks)
	return nil
}

// writeSetting says what was measured, and on what.
func (b *bench) writeSetting(ctx context.Context, w io.Writer) error {
	for _, s := range b.systems() {
		version, err := b.servers[s].version(ctx)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%v: %s\n", s, version); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s, %d CPUs, %d rounds\n", runtime.Version(), runtime.NumCPU(), b.rounds)
	for _, c := range b.contenders {
		if err == nil {
			err = c.WriteSetting(w)
		}
	}
	return err
}
