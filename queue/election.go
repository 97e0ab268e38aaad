package queue

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/election"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/lock"
)

// candidateEvery is how often the others ask whether the elected server has gone. After a fault of
// Redis a server tries again within that time.
const candidateEvery = time.Second

// electionTTL is how long the lock of an election outlives an elected server that died, or that
// ended while Redis did not answer. Until then no server looks after the queues. electionTTL is
// shorter than the TTL of tasks' locks, as a server that loses this lock loses no work.
const electionTTL = 5 * time.Second

// elections make this process a candidate for each set of queues that the guard's servers have. The
// elected process looks after the queues: it recovers tasks whose workers died, sweeps, and warns of
// servers without a guard.
type elections struct {
	mu      sync.Mutex
	known   []string // the queues of all servers
	added   []string // those of known for which this process is no candidate yet
	started bool     // a server has taken a task
}

// serves adds the queues of a server. Other servers of the guard may have started.
func (g *Guard) serves(queues map[string]int) {
	e := &g.elections
	e.mu.Lock()
	defer e.mu.Unlock()
	for queue := range queues {
		if !slices.Contains(e.known, queue) {
			e.known, e.added = append(e.known, queue), append(e.added, queue)
		}
	}
	g.becomeCandidate()
}

// started is called when a server takes its first task.
func (g *Guard) started() {
	g.elections.mu.Lock()
	defer g.elections.mu.Unlock()
	g.elections.started = true
	g.becomeCandidate()
}

// becomeCandidate makes this process a candidate for the queues that were added, once a server has
// taken a task. The caller holds elections.mu.
func (g *Guard) becomeCandidate() {
	e := &g.elections
	if !e.started || len(e.added) == 0 || g.background.Err() != nil {
		return
	}
	queues := slices.Sorted(slices.Values(e.added))
	e.added = nil
	g.work.Go(func() { g.lookAfter(g.background, queues) })
}

// lookAfter looks after queues while this process is the elected one. Otherwise lookAfter tries to
// have the process elected. It ends with ctx.
func (g *Guard) lookAfter(ctx context.Context, queues []string) {
	resource := election.Resource(queues, g.cfg.Recovery.Crashes > 0)
	candidate := &lock.Options{Holder: "elected server on " + g.self, Wait: lock.Forever, Retry: lock.Fixed(candidateEvery)}
	for sleep.For(ctx, rand.N(candidateEvery)) == nil {
		err := g.voting.Do(ctx, resource, candidate, func(ctx context.Context) error {
			var work sync.WaitGroup
			work.Go(func() { g.sweep(ctx, queues) })
			work.Go(func() { g.recoverAll(ctx, queues) })
			work.Go(func() { g.watch(ctx, queues) })
			work.Wait()
			return nil
		})
		g.fault(ctx, "no server could be elected that recovers killed tasks; they may wait until Redis answers, and this is tried again each second", err)
	}
}
