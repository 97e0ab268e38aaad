package queue

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/lock"
)

// candidateEvery is how often the others ask whether the elected server has gone. After a fault of
// Redis a server tries again within that time.
const candidateEvery = time.Second

// elections make this process a candidate for each set of queues that the guard's servers have. The
// elected process looks after the queues: it recovers tasks whose workers died, sweeps, and warns of
// servers without a guard.
type elections struct {
	mu     sync.Mutex
	known  map[string]bool       // the queues of all servers
	waits  []string              // those of known for which work was not called yet
	work   func(queues []string) // nil until begin is called
	closed bool
	done   sync.WaitGroup
}

// electionTTL is how long the lock of an election outlives an elected server that died, or that ended
// while Redis did not answer. Until then no server looks after the queues. It is shorter than the TTL of
// tasks' locks, as a server that loses this lock loses no work.
const electionTTL = 5 * time.Second

// electionLocker returns the Locker for the locks of elections. They have the prefix of cfg, and its TTL
// if that is shorter than electionTTL.
func electionLocker(rdb redis.Scripter, cfg lease.Config) (*lock.Locker, error) {
	return lock.New(lock.Redis(rdb), lock.Config{Prefix: cfg.Prefix, TTL: min(cfg.TTL, electionTTL)})
}

// serves adds the queues of a server. Other servers of the guard may have started.
func (c *elections) serves(queues map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = make(map[string]bool)
	}
	names := slices.Collect(maps.Keys(queues))
	if len(names) == 0 {
		names = []string{"default"} // as asynq has it
	}
	for _, name := range names {
		if !c.known[name] {
			c.known[name] = true
			c.waits = append(c.waits, name)
		}
	}
	c.look()
}

// begin runs work with the names of the queues. It runs work again with the queues of servers that
// come later, until close. begin is called once.
func (c *elections) begin(work func(queues []string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.work = work
	c.look()
}

// look runs work for the queues in waits. c.mu is held.
func (c *elections) look() {
	if c.work == nil || c.closed || len(c.waits) == 0 {
		return
	}
	work, queues := c.work, slices.Sorted(slices.Values(c.waits))
	c.waits = nil
	c.done.Go(func() { work(queues) })
}

// close waits for the work, whose context has ended.
func (c *elections) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.done.Wait()
}

// electionOf names the resource of an election. Servers of the same queues contend for its lock, if
// all of them recover tasks, or none.
func electionOf(queues []string, recovers bool) string {
	role := "siding-sweeper:"
	if recovers {
		role = "siding-recovery:"
	}
	return role + uuid.NewSHA1(uuid.Nil, []byte(strings.Join(queues, "\n"))).String()
}

// lookAfter looks after queues while this process is the elected one. Otherwise it tries to be
// elected. It returns when ctx ends.
func (g *Guard) lookAfter(ctx context.Context, queues []string) {
	office := electionOf(queues, g.cfg.Recovery.Crashes > 0)
	candidate := &lock.Options{Holder: "elected server on " + g.self, Wait: lock.Forever, Retry: lock.Fixed(candidateEvery)}
	for sleep.For(ctx, rand.N(candidateEvery)) == nil {
		err := g.voting.Do(ctx, office, candidate, func(ctx context.Context) error {
			var work sync.WaitGroup
			work.Go(func() { g.sweep(ctx, queues) })
			work.Go(func() { g.recoverAll(ctx, queues) })
			work.Go(func() { g.watch(ctx, queues) })
			work.Wait()
			return nil
		})
		if ctx.Err() == nil && err != nil {
			g.faults.fault(ctx, g.cfg.Logger, "no server could be elected that recovers killed tasks; they may wait until Redis answers, and this is tried again each second", err)
		}
	}
}

// recoverAll requeues orphans, time and again, until ctx ends.
func (g *Guard) recoverAll(ctx context.Context, queues []string) {
	for {
		if g.hook.Mismatched() {
			return // another asynq may keep the leases of its tasks in another way
		}
		if err := g.recover(ctx, queues); err != nil && ctx.Err() == nil {
			g.faults.fault(ctx, g.cfg.Logger, "killed tasks cannot be looked for", err)
		}
		if sleep.For(ctx, recoveryEvery*9/10+rand.N(recoveryEvery/5)) != nil {
			return
		}
	}
}
