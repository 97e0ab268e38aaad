package queue_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

const (
	// soon is how long a resource may stand free after a fault while tasks wait for it.
	soon = 3 * time.Second
	// afterPause is how long it may after a pause.
	afterPause = 2 * time.Second
)

// promised is what a test wants of a time. The machine on which make test runs may be busy with other
// things; make verify wants the promise.
func promised(d time.Duration) time.Duration {
	if verify.All() {
		return d
	}
	return max(d, prompt)
}

// An idleness measures for how long resources stand free between runs, from some time on.
type idleness struct {
	work func(context.Context, job) error

	mu      sync.Mutex
	from    time.Time // zero before that
	freed   map[string]time.Time
	longest time.Duration
	runs    map[string]int // by resource, from then on
}

func newIdleness(work func(context.Context, job) error) *idleness {
	return &idleness{work: work, freed: make(map[string]time.Time), runs: make(map[string]int)}
}

// run is a handler.
func (i *idleness) run(ctx context.Context, j job) error {
	i.mu.Lock()
	if !i.from.IsZero() {
		free := i.from
		if freed := i.freed[j.Res]; freed.After(free) {
			free = freed
		}
		i.longest = max(i.longest, time.Since(free))
	}
	i.runs[j.Res]++
	i.mu.Unlock()
	err := i.work(ctx, j)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.freed[j.Res] = time.Now()
	return err
}

// begin begins to measure, as a rule when a fault has ended.
func (i *idleness) begin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.from = time.Now()
	clear(i.runs)
}

// fewest returns how many runs there were on the one of these resources that has had the fewest.
func (i *idleness) fewest(resources []string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	fewest := math.MaxInt
	for _, resource := range resources {
		fewest = min(fewest, i.runs[resource])
	}
	return fewest
}

// want compares the longest time for which a resource has stood free.
func (i *idleness) want(tb testing.TB, most time.Duration) {
	tb.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	tb.Logf("free for %v at most, in runs of %v", i.longest.Round(time.Millisecond), i.runs)
	if !verify.All() {
		most *= 3 // other tests run beside it
	}
	expect.That(tb, len(i.runs) != 0 && i.longest <= most, "want a resource free for %v at most, have %v in runs of %v", most, i.longest, i.runs)
}

// wantAfter says that the fault has ended, waits for the tasks, and compares.
func (i *idleness) wantAfter(b *bundle, most time.Duration, ids ...string) {
	b.Helper()
	i.begin()
	b.awaitGone(ids...)
	i.want(b, most)
}

// The slot of a lock is being moved to another master, and the release is refused meanwhile.
func TestNoIdleResourceWhileASlotMoves(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	cluster := redistest.StartCluster(t, 2)
	b := setupOn(t, redis.UniversalOptions{Addrs: slices.Clone(cluster.Addrs), IsClusterMode: true})
	idle := newIdleness(b.run)
	b.serve(queue.ServerConfig{}, idle.run)
	holder := b.occupy()
	ids := b.park(1, 2, 3)
	finish := cluster.MoveHalf(t, b.lockKey(), "{"+b.lockKey()+"}:queue")
	holder.open()
	_ = sleep.For(t.Context(), 4*time.Second) // while the slot is between them
	finish()
	idle.wantAfter(b, promised(soon), ids...)
	b.wantOrder(0, 1, 2, 3)
}

// The slot of a queue moves to another master, which has all of the queue's keys but the tasks for a while. Nothing is lost meanwhile,
// loses its lock or runs twice.
func TestSlotOfAQueueMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	b := setupOn(t, redis.UniversalOptions{Addrs: slices.Clone(cluster.Addrs), IsClusterMode: true})
	often := lock.Config{RenewEvery: 500 * time.Millisecond}
	b.serve(queue.ServerConfig{Asynq: asynq.Config{Concurrency: 2}, Lock: often, Observe: b.observe}, b.run)
	master := expect.Value(b.rdb.(*redis.ClusterClient).MasterForKey(t.Context(), b.key("")))(t) //nolint:errcheck,forcetypeassert // it is one
	keys := func(like string) []string {
		return expect.Value(master.Keys(t.Context(), "*{"+b.queue+"}"+like).Result())(t)
	}
	expect.Eventually(t, "steps in both lanes", func() bool {
		b.enqueue(note{})
		return len(keys("*:step:*")) == 2
	})
	busy, id := b.begin(0)
	ids := append(b.park(1, 2, 3), id)
	other := *b
	other.resource += ".other"
	late, id := other.begin(10)
	ids = append(ids, id)
	ids = append(ids, other.enqueueJobs(11, 13)...)
	ids = append(ids, other.enqueueJobs(14, 16, queue.Options{Delay: time.Second})...)

	first := slices.DeleteFunc(keys("*"), func(key string) bool { return strings.HasPrefix(key, b.taskKey("")) })
	finish := cluster.MoveHalf(t, append([]string{b.key("")}, first...)...)
	_ = sleep.For(t.Context(), 2*time.Second) // the locks are to be renewed, and the delayed tasks become due
	busy.open()
	late.open()
	_ = sleep.For(t.Context(), time.Second) // both have ended
	finish()
	b.awaitGone(ids...)
	runs := b.order()
	slices.Sort(runs)
	expect.Same(t, "jobs that ran", runs, []int{0, 1, 2, 3, 10, 11, 12, 13, 14, 15, 16})
	expect.Equal(t, "locks that were lost", len(b.of(queue.EventLost, "")), 0)
}

// The lock is released while the queue of those who wait is paused. They keep their places:
// tasks of another queue pass meanwhile, newer ones of their own do not.
func TestPauseKeepsTheOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	idle := newIdleness(b.run)
	holder := b.holdElsewhere(lock.Config{})
	b.serve(queue.ServerConfig{}, idle.run)
	ids := b.park(1, 2, 3, 4, 5)
	expect.OK(t, b.inspector.PauseQueue(b.queue))
	ids = append(ids, b.enqueueJobs(10, 11)...)
	holder.open()
	expect.Eventually(t, "a free lock", func() bool { return b.value() == "" })
	passing := b.enqueue(b.job(20), queue.Options{Queue: b.queue + ".elsewhere"})
	b.awaitRuns(2)
	_ = sleep.For(t.Context(), time.Second) // the pause
	expect.OK(t, b.inspector.UnpauseQueue(b.queue))
	idle.wantAfter(b, promised(afterPause), ids...)
	b.awaitGoneFrom(b.queue+".elsewhere", passing)
	b.wantOrder(0, 20, 1, 2, 3, 4, 5, 10, 11)
}

// The lock is released during a short pause of the queue of those who wait. It makes no difference if
// another queue of the server is paused all the while.
func TestNoIdleResourceAfterAShortPause(t *testing.T) {
	t.Parallel()
	eachOf(t, onBoth, map[string]bool{"alone": false, "beside a long one": true}, func(b *bundle, beside bool) {
		other := b.queue + ".other"
		idle := newIdleness(b.run)
		b.serve(queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{b.queue: 1, other: 1}}}, idle.run)
		holder := b.occupy()
		ids := b.park(1, 2, 3)
		if beside {
			b.enqueue(note{}, queue.Options{Queue: other}) // asynq pauses no queue that has had no task
			expect.OK(b, b.inspector.PauseQueue(other))
		}
		expect.OK(b, b.inspector.PauseQueue(b.queue))
		holder.open()
		expect.Eventually(b, "a free lock", func() bool { return b.value() == "" })
		expect.OK(b, b.inspector.UnpauseQueue(b.queue))
		idle.wantAfter(b, promised(afterPause), ids...)
		b.wantOrder(0, 1, 2, 3)
	})
}

// awaitGoneFrom waits until a task of another queue has succeeded.
func (b *bundle) awaitGoneFrom(name, id string) {
	b.Helper()
	expect.Eventually(b, "task "+id+" to succeed", func() bool {
		_, err := b.inspector.GetTaskInfo(name, id)
		return errors.Is(err, asynq.ErrTaskNotFound)
	})
}
