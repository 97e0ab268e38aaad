package queue_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/lock/redlock"
	"github.com/sidingq/siding/queue"
)

// A queueless is one process's store of locks without wait queues and fences, like those on a
// quorum of nodes.
type queueless struct {
	lock.Store // and no Listener

	down atomic.Bool // it cannot be asked
}

func newQueueless(memory *locktest.Memory) *queueless { return &queueless{Store: memory} }

func (s *queueless) Acquire(ctx context.Context, c store.Request) (store.Result, error) {
	if s.down.Load() {
		return store.Result{}, io.ErrUnexpectedEOF
	}
	c.Waiter = ""
	a, err := s.Store.Acquire(ctx, c)
	a.Fence = 0
	return a, err
}

func (s *queueless) Renew(ctx context.Context, key, token string, ttl, keep time.Duration) error {
	if s.down.Load() {
		return io.ErrUnexpectedEOF
	}
	return s.Store.Renew(ctx, key, token, ttl, keep)
}

func (s *queueless) Release(ctx context.Context, key, token string, how store.Release) error {
	if s.down.Load() {
		return io.ErrUnexpectedEOF
	}
	return s.Store.Release(ctx, key, token, how)
}

// newLocker returns a Locker that is closed when the servers of the test have gone.
func newLocker(tb testing.TB, store lock.Store, cfg lock.Config) *lock.Locker {
	tb.Helper()
	locker := expect.Value(lock.New(store, cfg))(tb)
	tb.Cleanup(locker.Close)
	return locker
}

// holdBy holds the bundle's resource for the test, until the returned function is called.
func (b *bundle) holdBy(locker *lock.Locker) (release func()) {
	b.Helper()
	lease := expect.Value(locker.Acquire(b.Context(), b.resource, nil))(b)
	release = func() {
		if err := lease.Release(context.Background()); err != nil {
			b.Errorf("release: %v", err)
		}
	}
	b.Cleanup(release) // a second call does nothing
	return release
}

// noTimers is for servers whose waiting tasks the test calls itself.
const noTimers = time.Hour

// setupUnfenced is setup for locks without fences.
func setupUnfenced(t *testing.T) *bundle {
	t.Helper()
	b := setup(t)
	b.unfenced = true
	return b
}

// quorum starts three servers and returns what opens one more client of the locks on them.
func quorum(t *testing.T) (open func() lock.Store) {
	t.Helper()
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	return func() lock.Store {
		var nodes []*redis.Client
		for _, server := range servers {
			nodes = append(nodes, server.Client(t))
		}
		// No node restarts here, and the machine may be busy.
		store := expect.Value(redlock.New(t.Context(), nodes, redlock.Config{NodeTimeout: time.Second, RestartDelay: redlock.NoRestartDelay}))(t)
		return store
	}
}

// Tasks of two processes, and of a team's own server, exclude each other by locks without wait
// queues. All of them have to wait. None uses a retry, and none has any.
func TestExternalStoreExcludes(t *testing.T) {
	t.Parallel()
	t.Run("in memory", func(t *testing.T) {
		t.Parallel()
		memory := locktest.NewMemory()
		externalStoreExcludes(t, func() lock.Store { return newQueueless(memory) })
	})
	t.Run("on a quorum", func(t *testing.T) {
		t.Parallel()
		verify.Long(t)
		externalStoreExcludes(t, quorum(t))
	})
}

func externalStoreExcludes(t *testing.T, open func() lock.Store) {
	t.Helper()
	const resources = 6
	tasks := 2 * resources
	if verify.All() {
		tasks = 5 * resources
	}
	b := setupUnfenced(t)
	test := newLocker(t, open(), lock.Config{})
	ids, of := make([]string, tasks), func(n int) string { return b.resource + ":" + strconv.Itoa(n%resources) }
	var leases []*lock.Lease
	for n := range resources {
		lease := expect.Value(test.Acquire(t.Context(), of(n), nil))(t)
		t.Cleanup(func() { _ = lease.Release(context.Background()) }) // the second time does nothing
		leases = append(leases, lease)
	}
	for n := range ids {
		ids[n] = b.enqueue(job{Res: of(n), N: n}, queue.Options{Retries: queue.NoRetries})
	}
	b.serve(queue.ServerConfig{Store: open(), Observe: b.observe}, b.run)
	b.serve(queue.ServerConfig{Store: open(), Observe: b.observe}, b.run)
	(&plain{guardConfig: queue.ServerConfig{Store: open(), Observe: b.observe}}).serve(b)
	for _, id := range ids {
		e := b.await(queue.EventParked, id, 1)
		expect.That(t, e.Parked == 1 && errors.Is(e.Err, lock.ErrBusy), "parked: have %+v", e)
	}
	expect.That(t, len(b.order()) == 0, "while the locks are held: want no run, have %v", b.order())
	for n, lease := range leases {
		expect.That(t, lease.Release(t.Context()) == nil, "want lock %d released", n)
	}
	b.awaitGone(ids...)
	expect.Equal(t, "runs", len(b.order()), tasks)
	b.wantCounts(tasks, 0)
	for _, e := range b.of(queue.EventAcquired, "") {
		expect.That(t, e.Fence == 0, "acquired: want no fence, have %+v", e)
	}
	for n := range resources {
		lease, err := test.Acquire(t.Context(), of(n), nil)
		if err != nil {
			t.Errorf("lock %d: want it free, have %v", n, err)
			continue
		}
		expect.That(t, lease.Release(t.Context()) == nil, "want lock %d released", n)
		expect.Equal(t, fmt.Sprintf("lock %d on the tasks' Redis", n), b.lockOf(of(n)), "")
	}
}

// While somebody who is no task holds a lock on an external store, the first waiter asks about once
// a second. The others stay in line, and run in their order once the lock is free.
func TestExternalStoreIsAskedByTheFirst(t *testing.T) {
	t.Parallel()
	const tasks = 8
	b, memory := setupAlone(t), locktest.NewMemory() // where another test sets a limit, all that wait are looked at
	b.unfenced = true
	var asked atomic.Int32
	release := b.holdBy(newLocker(t, newQueueless(memory), lock.Config{}))
	for range 2 {
		store := countedAcquires{newQueueless(memory), &asked}
		b.serve(queue.ServerConfig{Store: store, Observe: b.observe}, b.run)
	}
	ids, want := make([]string, tasks), make([]int, tasks)
	start := time.Now()
	for i := range ids {
		ids[i], want[i] = b.enqueue(b.job(i), queue.Options{Retries: queue.NoRetries}), i
		b.await(queue.EventParked, ids[i], 1)
	}
	b.await(queue.EventParked, ids[0], 4)
	took := time.Since(start)
	expect.That(t, took >= 2*time.Second && took <= prompt, "want it asked for once a second or so, have three times more in %v", took)
	line := "siding:{" + b.queue + "}:line:" + b.waitLockKey()
	expect.Eventually(t, "all of them in line, in order", func() bool { // the first may ask just now
		return slices.Equal(b.rdb.ZRange(t.Context(), line, 0, -1).Val(), ids)
	})
	expect.Equal(t, "how often the second was refused", len(b.of(queue.EventParked, ids[1])), 1)
	if have, most := int(asked.Load()), len(b.of(queue.EventParked, ids[0]))+1; have > most {
		t.Errorf("want only the first to ask, %d times, have %d", most, have)
	}
	release()
	b.awaitGone(ids...)
	b.wantOrder(want...)
	b.wantCounts(tasks, 0)
}

// A store of locks that does not answer costs no task a retry or its place.
func TestExternalStoreCannotBeAsked(t *testing.T) {
	t.Parallel()
	b := setupUnfenced(t)
	store := newQueueless(locktest.NewMemory())
	store.down.Store(true)
	var asked atomic.Int32
	b.serve(queue.ServerConfig{Store: countedAcquires{store, &asked}}, b.run)
	first := b.enqueue(b.job(0), queue.Options{Retries: queue.NoRetries})
	expect.Eventually(t, "asked twice", func() bool { return asked.Load() >= 2 })
	second := b.enqueue(b.job(1), queue.Options{Retries: queue.NoRetries})
	b.awaitState(second, asynq.TaskStateRetry)
	info := b.awaitState(first, asynq.TaskStateRetry)
	expect.That(t, info.Retried == 0 && strings.Contains(info.LastErr, "unexpected EOF"), "want no retry used with the reason, have %+v", info)
	store.down.Store(false)
	b.awaitGone(first, second)
	b.wantOrder(0, 1)
}

// A lock whose part of the store does not answer does not keep the slots from other resources, and does not rest for long once it does.
func TestExternalStoreThatIsSilent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	store := silent{Store: locktest.NewMemory(), key: b.lockKey(), asked: make(chan struct{}, 100), speaks: new(atomic.Bool)}
	b.serve(queue.ServerConfig{Store: store, Asynq: asynq.Config{Concurrency: 1}}, b.run)
	id := b.enqueue(b.job(0))
	<-store.asked
	start := time.Now()
	b.awaitGone(b.enqueue(job{Res: b.resource + ".other", N: 1}))
	took := time.Since(start)
	expect.That(t, took < 10*time.Second, "want the slot back after about 1 s, have %v", took)
	<-store.asked
	store.speaks.Store(true)
	start = time.Now()
	b.awaitGone(id)
	took = time.Since(start)
	expect.That(t, took < 8*time.Second, "want it asked again after 2 to 4 s, have %v", took)
}

// A task that asks an external store about once a second looks when its MaxWait is over, and not a second later.
func TestMaxWaitForAnExternalStore(t *testing.T) {
	t.Parallel()
	const maxWait = 2500 * time.Millisecond
	b, memory := setupUnfenced(t), locktest.NewMemory()
	release := b.holdBy(newLocker(t, newQueueless(memory), lock.Config{}))
	defer release()
	b.serve(queue.ServerConfig{Store: newQueueless(memory), Observe: b.observe}, b.run)
	id := b.enqueue(b.job(1), queue.Options{Policy: &queue.Policy{MaxWait: maxWait}})
	e := b.await(queue.EventWaitedTooLong, id, 1)
	expect.That(t, e.Waited >= maxWait && e.Waited <= maxWait+900*time.Millisecond, "want it ended after %v, have it after %v", maxWait, e.Waited)
}

// The wait of such a task ends in time also behind one that came later, has a higher priority, and holds the lock for long.
func TestMaxWaitBehindAHigherPriority(t *testing.T) {
	t.Parallel()
	const maxWait = 3 * time.Second
	b, memory := setupUnfenced(t), locktest.NewMemory()
	release := b.holdBy(newLocker(t, newQueueless(memory), lock.Config{}))
	b.serve(queue.ServerConfig{Store: newQueueless(memory), Observe: b.observe}, b.run)
	id := b.enqueue(b.job(1), queue.Options{Policy: &queue.Policy{MaxWait: maxWait}})
	b.await(queue.EventParked, id, 1)
	holder := b.hold(2)
	defer holder.open()
	b.await(queue.EventParked, b.enqueue(b.job(2), queue.Options{Priority: queue.MaxPriority}), 1)
	release()
	within(t, patience, "the one with the higher priority", holder.entered)
	e := b.await(queue.EventWaitedTooLong, id, 1)
	expect.That(t, e.Waited >= maxWait && !isClosed(holder.ended), "want it ended after %v, while the other is at work, have it after %v", maxWait, e.Waited)
}

// countedAcquires counts the requests of tasks.
type countedAcquires struct {
	lock.Store

	n *atomic.Int32
}

func (s countedAcquires) Acquire(ctx context.Context, c store.Request) (store.Result, error) {
	if strings.Contains(c.Token, "test:job ") {
		s.n.Add(1)
	}
	return s.Store.Acquire(ctx, c)
}

// Tasks whose locks are on another Redis wait in line on their own Redis, and start from there.
func TestExternalStoreOnAnotherRedis(t *testing.T) {
	t.Parallel()
	b := setup(t)
	locks := redistest.Start(t).Client(t)
	for range 2 {
		b.serve(queue.ServerConfig{Store: lock.Redis(locks), Lock: longTimeout, Observe: b.observe}, b.run)
	}
	holder := b.occupy()
	ids := b.park(1, 2, 3, 4, 5)
	for _, id := range ids {
		info := b.awaitState(id, asynq.TaskStateRetry)
		want := "waits for " + b.resource + ", held by test:job "
		expect.That(t, strings.HasPrefix(info.LastErr, want), "reason: want %q, have %q", want, info.LastErr)
	}
	start := time.Now()
	holder.open()
	b.awaitGone(ids...)
	b.wantOrder(0, 1, 2, 3, 4, 5)
	wantSoon(t, start, "want them called at once") // nobody is asked again
	for _, id := range ids {
		e := b.await(queue.EventAcquired, id, 1)
		expect.That(t, e.HandOff > 0 && e.Fence > 0, "want it handed on, with a fence, have %+v", e)
	}
	expect.Equal(t, "lock on the tasks' Redis", b.value(), "")
}

// takeAway has the lock expire, and another process hold it for a moment.
func (b *bundle) takeAway(memory *locktest.Memory) {
	b.Helper()
	memory.Put(b.lockKey(), "", 0)
	held := expect.Value(expect.Value(lock.New(memory, lock.Config{}))(b).Acquire(b.Context(), b.resource, nil))(b)
	expect.OK(b, held.Release(b.Context()))
}

// A lock on an external store is lost. The task has neither succeeded nor failed, however its handler ended, and comes again.
func TestExternalStoreLosesALock(t *testing.T) {
	t.Parallel()
	eachOf(t, onOne, map[string]func(ctx context.Context, lose func()){
		"a panic":                     func(ctx context.Context, lose func()) { lose(); <-ctx.Done(); panic("no lock") },
		"Goexit":                      func(ctx context.Context, lose func()) { lose(); <-ctx.Done(); runtime.Goexit() },
		"nil":                         func(ctx context.Context, lose func()) { lose(); <-ctx.Done() },
		"nil, before it notices":      func(_ context.Context, lose func()) { lose() },
		"nil, after its time is over": func(ctx context.Context, lose func()) { <-ctx.Done(); lose() },
	}, func(b *bundle, end func(ctx context.Context, lose func())) {
		memory, runs := locktest.NewMemory(), new(atomic.Int32)
		b.serve(queue.ServerConfig{Store: memory, Lock: shortTimes, Observe: b.observe}, func(ctx context.Context, _ job) error {
			if runs.Add(1) == 1 {
				end(ctx, func() { b.takeAway(memory) }) //nolint:contextcheck // another process does it
			}
			return nil
		})
		id := b.enqueue(b.job(0), queue.Options{Retries: queue.NoRetries, Timeout: time.Second})
		b.awaitGone(id)
		expect.Equal(b, "runs", int(runs.Load()), 2)
		b.await(queue.EventLost, id, 1)
		b.wantEvents(queue.EventReleased, id, 1) // the second run's
	})
}

// So is one that is lost after the end of the context, as the server shuts down.
func TestExternalStoreLosesALockAtTheEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	memory, entered, runs := locktest.NewMemory(), make(chan struct{}), new(atomic.Int32)
	run := func(ctx context.Context, _ job) error {
		if runs.Add(1) == 1 {
			close(entered)
			<-ctx.Done()
			b.takeAway(memory) //nolint:contextcheck // another process does it
		}
		return nil
	}
	s := b.serve(queue.ServerConfig{Store: memory, Lock: shortTimes, Observe: b.observe}, run)
	id := b.enqueue(b.job(0), queue.Options{Retries: queue.NoRetries})
	within(t, patience, "the task", entered)
	shutdown(t, s)
	b.await(queue.EventLost, id, 1)
	b.serve(queue.ServerConfig{Store: memory, Lock: shortTimes}, run)
	b.awaitGone(id)
	expect.Equal(t, "runs", int(runs.Load()), 2)
}

// That a task has waited for its own lock gives it no head start at another one.
func TestWaitCountsForTheOwnLockAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	waited := make(chan time.Duration, 1)
	store := lock.Redis(redistest.Start(t).Client(t))
	release := b.holdBy(newLocker(t, store, longTimeout))
	b.serve(queue.ServerConfig{Store: store, Lock: longTimeout, Observe: b.observe}, func(ctx context.Context, _ job) error {
		waited <- lease.Waited(ctx)
		return nil
	})
	b.await(queue.EventParked, b.enqueue(b.job(0)), 1)
	release()
	expect.Equal(t, "what a handler has waited for", within(t, patience, "the handler", waited), 0)
}

// A silent store answers no request for a lock.
type silent struct {
	lock.Store

	key    string
	asked  chan struct{}
	speaks *atomic.Bool
}

func (s silent) Acquire(ctx context.Context, c store.Request) (store.Result, error) {
	if c.Key != s.key || s.speaks.Load() {
		return s.Store.Acquire(ctx, c)
	}
	s.asked <- struct{}{}
	<-ctx.Done()
	return store.Result{}, ctx.Err()
}

// A task without retries has not run while its attempt asks for the lock: if its worker dies then, it comes again.
func TestExternalStoreRecoveryBeforeTheLock(t *testing.T) {
	t.Parallel()
	b := setupUnfenced(t)
	locks := newQueueless(locktest.NewMemory())
	asked := make(chan struct{}, 10)
	victim := &mortal{plain: plain{guardConfig: queue.ServerConfig{Store: silent{locks, b.lockKey(), asked, new(atomic.Bool)}, Lock: quickRecovery.Lock}}}
	victim.serve(b)
	id := b.enqueue(b.job(0), queue.Options{Retries: queue.NoRetries})
	within(t, patience, "its request", asked)
	victim.dead.Store(true)
	b.serve(queue.ServerConfig{Store: silent{Store: locks}, Lock: quickRecovery.Lock, Observe: b.observe}, b.run)
	b.wantEvents(queue.EventRecovered, id, 1)
	b.awaitGone(id)
	b.wantOrder(0)
}

// A server makes the Locker of its Store, gives it to those who ask, and closes it.
func TestServerOwnsItsLocker(t *testing.T) {
	t.Parallel()
	cfg := lock.Config{Prefix: "own:", TTL: 20 * time.Second}
	stores := map[string]lock.Store{"elsewhere": locktest.NewMemory(), "on the Redis of the tasks": nil}
	eachOf(t, onOne, stores, func(b *bundle, store lock.Store) {
		guarded := queue.ServerConfig{Store: store, Lock: cfg}
		p := &plain{guardConfig: guarded}
		p.serve(b)
		s := b.serve(queue.ServerConfig{Store: store, Lock: cfg}, func(ctx context.Context, j job) error { return nil })
		held := expect.Value(p.server.Locker().Acquire(b.Context(), b.resource, nil))(b)
		left := time.Until(held.Deadline())
		expect.That(b, left >= cfg.TTL/2 && left <= cfg.TTL, "want a lease of %v, have %v", cfg.TTL, left)
		expect.Is(b, "acquire", expect.Err(s.Locker().Acquire(b.Context(), b.resource, nil)), lock.ErrBusy)
		expect.OK(b, held.Release(b.Context()))
		p.stop(b)
		shutdown(b, s)
		for _, locker := range []*lock.Locker{p.server.Locker(), s.Locker()} {
			expect.Is(b, "acquire", expect.Err(locker.Acquire(b.Context(), b.resource, nil)), lock.ErrClosed)
		}
	})
}

// A task takes its lock on an external store also if its id is longer than a holder's note can be, or if it may run for longer than a
// [time.Duration] can say.
func TestExternalStoreAndLongTasks(t *testing.T) {
	t.Parallel()
	b := setupUnfenced(t)
	b.serve(queue.ServerConfig{Store: newQueueless(locktest.NewMemory()), Overrun: lock.Forever}, b.run)
	for i, opts := range []queue.Options{
		{TaskID: strings.Repeat("x", 220)},
		{Deadline: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)},
	} {
		b.awaitGone(b.enqueue(b.job(i), opts))
	}
}
