package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/redisproc"
	"github.com/sidingq/siding/bench/internal/report"
)

const (
	// limit bounds one case of one contender: in that time all must have had the lock.
	limit = time.Minute
	// arrival is the time over which waiters arrive, so that those who poll do
	// not do it in step.
	arrival = 100 * time.Millisecond
	// settled is how long the lock is held after the last has arrived, plus up to
	// once arrival, so that a release falls anywhere between two polls.
	settled = 50 * time.Millisecond
	// processes is the number of clients over which waiters are spread, at most.
	processes = 10
	// atOnce is how many waiters are watched at once, over several locks if
	// there are few at each.
	atOnce = 20
	// turns is how often a round measures what is uncontended: it is soon done, and
	// depends on which of the machine's cores client and server run.
	turns = 5
	// goroutines is how many take uncontended locks at once.
	goroutines = 16
	// yardstick is how many empty scripts are timed per round.
	yardstick = 500
)

// A bench measures all contenders on one Redis.
type bench struct {
	options
	addr    string
	client  *redis.Client // for the yardstick and Redis's own figures
	results report.Results
}

func newBench(ctx context.Context, addr string, o options) (*bench, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &bench{options: o, addr: addr, client: client}, nil
}

func (b *bench) close() { _ = b.client.Close() }

// round measures everything. Which contender comes first changes with the round.
func (b *bench) round(ctx context.Context, round int) error {
	if err := b.roundTrip(ctx); err != nil {
		return err
	}
	each := func(what string, clients int, measure func(context.Context, course) error) error {
		for _, c := range contest.Turns(b.contenders, round) {
			if err := b.prepared(ctx, c, clients, what, measure); err != nil {
				return fmt.Errorf("%s, %s: %w", c.name, what, err)
			}
		}
		return nil
	}
	for _, n := range []int{1, goroutines} {
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

// roundTrip times scripts that do nothing: no lock can be faster.
func (b *bench) roundTrip(ctx context.Context) error {
	took, err := redisproc.RoundTrip(ctx, b.client, yardstick)
	if err != nil {
		return err
	}
	b.results.Add(report.Nobody, report.Figure{Case: "an empty script", Name: "round trip p50", Unit: "ms"}, report.MS(report.Percentile(took, 50)))
	return nil
}

// A course is one case with the clients of one contender.
type course struct {
	contender
	what    string
	lockers []locker
	before  redisproc.Usage
}

// prepared opens so many clients, lets each load its scripts, and measures.
func (b *bench) prepared(ctx context.Context, c contender, clients int, what string, measure func(context.Context, course) error) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("not all had the lock in time"))
	defer cancel()
	course := course{contender: c, what: what}
	defer func() {
		for _, l := range course.lockers {
			err = errors.Join(err, l.close())
		}
	}()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}()
	for range clients {
		l, err := c.open(b.addr)
		if err != nil {
			return err
		}
		course.lockers = append(course.lockers, l)
		if err := visit(ctx, l, "warm-up:"+rand.Text()); err != nil {
			return err
		}
	}
	if course.before, err = redisproc.ReadUsage(ctx, b.client); err != nil {
		return err
	}
	return measure(ctx, course)
}

// visit takes a lock that is free and gives it back.
func visit(ctx context.Context, l locker, name string) error {
	unlock, err := l.lock(ctx, name)
	if err != nil {
		return err
	}
	return unlock(ctx)
}

// uncontended lets so many goroutines of one client each lock a name of its own.
func (b *bench) uncontended(ctx context.Context, c course, goroutines int) error {
	all, work := errgroup.WithContext(ctx)
	start := time.Now()
	for range goroutines {
		all.Go(func() error {
			name := "uncontended:" + rand.Text()
			for range b.ops {
				if err := visit(work, c.lockers[0], name); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	acquisitions := goroutines * b.ops
	b.results.Add(c.name, report.Figure{Case: c.what, Name: "acquisitions", Unit: "per second"}, float64(acquisitions)/time.Since(start).Seconds())
	return b.addCommands(ctx, c, acquisitions)
}

// handOffs lets locks go from one waiter to the next until each has had it once.
func (b *bench) handOffs(ctx context.Context, c course, waiters int) error {
	locks := max(1, atOnce/waiters)
	times := (b.options.handOffs + locks*waiters - 1) / (locks * waiters)
	drains := make([]*drain, locks*times)
	for i := range times {
		all, work := errgroup.WithContext(ctx)
		for j := range locks {
			d := &drain{lockers: c.lockers, name: "hand-off:" + rand.Text(), start: time.Now()}
			drains[i*locks+j] = d
			all.Go(func() error { return d.run(work, waiters) })
		}
		if err := all.Wait(); err != nil {
			return err
		}
	}
	var latencies []time.Duration
	for _, d := range drains {
		latencies = append(latencies, d.latencies...)
	}
	b.results.Add(c.name, report.Figure{Case: c.what, Name: "hand-off p50", Unit: "ms"}, report.MS(report.Percentile(latencies, 50)))
	b.results.Add(c.name, report.Figure{Case: c.what, Name: "hand-off p99", Unit: "ms"}, report.MS(report.Percentile(latencies, 99)))
	return b.addCommands(ctx, c, len(drains)*(waiters+1))
}

func (b *bench) addCommands(ctx context.Context, c course, acquisitions int) error {
	after, err := redisproc.ReadUsage(ctx, b.client)
	if err != nil {
		return err
	}
	used := after.Since(c.before)
	sent := used.Scripts()
	for _, name := range c.direct {
		sent += used.Calls[name]
	}
	b.results.Add(c.name, report.Figure{Case: c.what, Name: "commands sent", Unit: "per acquisition"}, float64(sent)/float64(acquisitions))
	b.results.Add(c.name, report.Figure{Case: c.what, Name: "commands run", Unit: "per acquisition"}, float64(used.Run())/float64(acquisitions))
	return nil
}

// A drain is one lock with one holder and a number of waiters, each of whom
// releases the lock as soon as it has it and does not come again.
type drain struct {
	lockers []locker
	name    string
	start   time.Time

	inside    atomic.Int64
	released  atomic.Int64    // when the last holder called release, since start
	latencies []time.Duration // appended to under the lock itself, which mu makes known to the race detector
	mu        sync.Mutex
}

func (d *drain) run(ctx context.Context, waiters int) error {
	unlock, err := d.enter(ctx, d.lockers[0])
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	var arrived sync.WaitGroup
	for i := range waiters {
		arrived.Add(1)
		all.Go(func() error {
			err := contest.Pause(ctx, mathrand.N(arrival))
			arrived.Done()
			if err != nil {
				return err
			}
			return d.wait(ctx, d.lockers[(i+1)%len(d.lockers)])
		})
	}
	arrived.Wait()
	if err := contest.Pause(ctx, settled+mathrand.N(arrival)); err != nil {
		return errors.Join(err, all.Wait())
	}
	return errors.Join(d.leave(ctx, unlock), all.Wait())
}

// wait is the life of a waiter.
func (d *drain) wait(ctx context.Context, l locker) error {
	unlock, err := d.enter(ctx, l)
	if err != nil {
		return err
	}
	latency := time.Since(d.start) - time.Duration(d.released.Load())
	d.mu.Lock()
	d.latencies = append(d.latencies, latency)
	d.mu.Unlock()
	return d.leave(ctx, unlock)
}

// enter takes the lock and checks that nobody else is inside.
func (d *drain) enter(ctx context.Context, l locker) (func(context.Context) error, error) {
	unlock, err := l.lock(ctx, d.name)
	if err != nil {
		return nil, err
	}
	if n := d.inside.Add(1); n != 1 {
		return nil, fmt.Errorf("%d hold the lock at once", n)
	}
	return unlock, nil
}

func (d *drain) leave(ctx context.Context, unlock func(context.Context) error) error {
	d.inside.Add(-1)
	d.released.Store(int64(time.Since(d.start)))
	return unlock(ctx)
}

// writeSetting says what was measured, and on what.
func (b *bench) writeSetting(ctx context.Context, w io.Writer) error {
	info, err := b.client.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "Redis %s, %s, %d CPUs, %d rounds\n", info["Server"]["redis_version"], runtime.Version(), runtime.NumCPU(), b.rounds)
	for _, c := range b.contenders {
		if err == nil {
			_, err = fmt.Fprintf(w, "  %s: %s; %s\n", c.name, strings.TrimSpace(c.module+" "+contest.Version(c.module)), c.config)
		}
	}
	return err
}
