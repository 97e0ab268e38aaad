package queue_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/poll"
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
func newLocker(t *testing.T, store lock.Store, cfg lock.Config) *lock.Locker {
	t.Helper()
	locker, err := lock.New(store, cfg)
	must(t, err)
	t.Cleanup(locker.Close)
	return locker
}

// holdBy holds the bundle's resource for the test, until the returned function is called.
func (b *bundle) holdBy(t *testing.T, locker *lock.Locker) (release func()) {
	t.Helper()
	lease, err := locker.Acquire(t.Context(), b.resource, nil)
	must(t, err)
	release = func() {
		if err := lease.Release(context.Background()); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	t.Cleanup(release) // a second call does nothing
	return release
}

// noTimers is for servers whose waiting tasks the test calls itself.
const noTimers = time.Hour

func unfencedStage(t *testing.T) *stage {
	t.Helper()
	st := newStage(t)
	st.unfenced = true
	return st
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
		store, err := redlock.New(t.Context(), nodes, redlock.Config{NodeTimeout: time.Second, RestartDelay: redlock.NoRestartDelay})
		must(t, err)
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
	b, st, j := setup(t), unfencedStage(t), &journal{}
	test := newLocker(t, open(), lock.Config{})
	ids, of := make([]string, tasks), func(n int) string { return b.resource + ":" + strconv.Itoa(n%resources) }
	var leases []*lock.Lease
	for n := range resources {
		lease, err := test.Acquire(t.Context(), of(n), nil)
		must(t, err)
		t.Cleanup(func() { _ = lease.Release(context.Background()) }) // the second time does nothing
		leases = append(leases, lease)
	}
	for n := range ids {
		ids[n] = b.enqueue(t, job{Res: of(n), N: n}, queue.Options{Retries: queue.NoRetries})
	}
	b.serve(t, queue.ServerConfig{Store: open(), Observe: j.observe}, st.run)
	b.serve(t, queue.ServerConfig{Store: open(), Observe: j.observe}, st.run)
	(&plain{guardConfig: queue.ServerConfig{Store: open(), Observe: j.observe}}).serve(t, b, st)
	for _, id := range ids {
		e := j.await(t, queue.EventParked, id, 1)
		if e.Parked != 1 || !errors.Is(e.Err, lock.ErrBusy) {
			t.Errorf("parked: have %+v", e)
		}
	}
	if have := st.order(); len(have) != 0 {
		t.Errorf("while the locks are held: want no run, have %v", have)
	}
	for n, lease := range leases {
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("release %d: %v", n, err)
		}
	}
	b.awaitGone(t, ids...)
	if have := len(st.order()); have != tasks {
		t.Errorf("runs: want %d, have %d", tasks, have)
	}
	if info := b.stats(t); info.Processed != tasks || info.Failed != 0 || info.Size != 0 {
		t.Errorf("want %d processed, none failed, none left, have %+v", tasks, info)
	}
	for _, e := range j.of(queue.EventAcquired, "") {
		if e.Fence != 0 {
			t.Errorf("acquired: want no fence, have %+v", e)
		}
	}
	for n := range resources {
		lease, err := test.Acquire(t.Context(), of(n), nil)
		if err != nil {
			t.Errorf("lock %d: want it free, have %v", n, err)
			continue
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("lock %d: %v", n, err)
		}
		if v := b.lockOf(t, of(n)); v != "" {
			t.Errorf("lock %d on the tasks' Redis: want none, have %q", n, v)
		}
	}
}

// While somebody who is no task holds a lock on an external store, the first waiter asks about once
// a second. The others stay in line, and run in their order once the lock is free.
func TestExternalStoreIsAskedByTheFirst(t *testing.T) {
	t.Parallel()
	const tasks = 8
	b, st, j, memory := setup(t), unfencedStage(t), &journal{}, locktest.NewMemory()
	var asked atomic.Int32
	release := b.holdBy(t, newLocker(t, newQueueless(memory), lock.Config{}))
	for range 2 {
		store := countedAcquires{newQueueless(memory), &asked}
		b.serve(t, queue.ServerConfig{Store: store, Observe: j.observe}, st.run)
	}
	ids, want := make([]string, tasks), make([]int, tasks)
	for i := range ids {
		ids[i], want[i] = b.enqueue(t, b.job(i), queue.Options{Retries: queue.NoRetries}), i
		j.await(t, queue.EventParked, ids[i], 1)
	}
	start, before := time.Now(), len(j.of(queue.EventParked, ids[0]))
	j.await(t, queue.EventParked, ids[0], before+3)
	if took := time.Since(start); took < time.Second || took > prompt {
		t.Errorf("want it asked for once a second or so, have three times in %v", took)
	}
	line := "siding:{" + b.queue + "}:line:" + b.waitLockKey()
	poll.Eventually(t, "all of them in line, in order", func() bool { // the first may ask just now
		return slices.Equal(b.rdb.ZRange(t.Context(), line, 0, -1).Val(), ids)
	})
	if have := len(j.of(queue.EventParked, ids[1])); have != 1 {
		t.Errorf("the second: want it refused once, have %d times", have)
	}
	if have, most := int(asked.Load()), len(j.of(queue.EventParked, ids[0]))+1; have > most {
		t.Errorf("want only the first to ask, %d times, have %d", most, have)
	}
	release()
	b.awaitGone(t, ids...)
	st.wantOrder(want...)
	if info := b.stats(t); info.Processed != tasks || info.Failed != 0 || info.Size != 0 {
		t.Errorf("want %d processed, none failed, none left, have %+v", tasks, info)
	}
}

// A store of locks that does not answer costs no task a retry or its position.
func TestExternalStoreCannotBeAsked(t *testing.T) {
	t.Parallel()
	b, st := setup(t), unfencedStage(t)
	store := newQueueless(locktest.NewMemory())
	store.down.Store(true)
	var asked atomic.Int32
	b.serve(t, queue.ServerConfig{Store: countedAcquires{store, &asked}}, st.run)
	first := b.enqueue(t, b.job(0), queue.Options{Retries: queue.NoRetries})
	poll.Eventually(t, "asked twice", func() bool { return asked.Load() >= 2 })
	second := b.enqueue(t, b.job(1), queue.Options{Retries: queue.NoRetries})
	b.awaitState(t, second, asynq.TaskStateRetry)
	if info := b.awaitState(t, first, asynq.TaskStateRetry); info.Retried != 0 || !strings.Contains(info.LastErr, "unexpected EOF") {
		t.Errorf("want no retry used with the reason, have %+v", info)
	}
	store.down.Store(false)
	b.awaitGone(t, first, second)
	st.wantOrder(0, 1)
}

// A task that asks an external store about once a second looks when its MaxWait is over, and not a second later.
func TestMaxWaitForAnExternalStore(t *testing.T) {
	t.Parallel()
	const maxWait = 2500 * time.Millisecond
	b, st, j, memory := setup(t), unfencedStage(t), &journal{}, locktest.NewMemory()
	release := b.holdBy(t, newLocker(t, newQueueless(memory), lock.Config{}))
	defer release()
	b.serve(t, queue.ServerConfig{Store: newQueueless(memory), Observe: j.observe}, st.run)
	id := b.enqueue(t, b.job(1), queue.Options{Policy: &queue.Policy{MaxWait: maxWait}})
	if e := j.await(t, queue.EventWaitedTooLong, id, 1); e.Waited < maxWait || e.Waited > maxWait+900*time.Millisecond {
		t.Errorf("want it ended after %v, have it after %v", maxWait, e.Waited)
	}
}

// With many tasks on few resources the lock goes from one to the next without a pause.
func TestExternalStoreHandsOff(t *testing.T) {
	t.Parallel()
	const tasks, resources, each = 40, 4, 20 * time.Millisecond
	const limit = 2 * time.Second * busyFactor / 2 // by asking once a second it would take 10 s
	b, st := setup(t), unfencedStage(t)
	open := quorum(t)
	b.serve(t, queue.ServerConfig{Store: open()}, func(ctx context.Context, j job) error {
		busy := time.NewTimer(each)
		defer busy.Stop()
		<-busy.C
		return st.run(ctx, j)
	})
	ids := make([]string, tasks)
	start := time.Now()
	for n := range ids {
		ids[n] = b.enqueue(t, job{Res: b.resource + ":" + strconv.Itoa(n%resources), N: n})
	}
	b.awaitGone(t, ids...)
	took := time.Since(start)
	t.Logf("%d tasks of %v on %d resources, locks on a quorum: %v", tasks, each, resources, took)
	if took > limit {
		t.Errorf("want them within %v, have %v", limit, took)
	}
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
	b, st, j := setup(t), newStage(t), &journal{}
	locks := redistest.Start(t).Client(t)
	for range 2 {
		b.serve(t, queue.ServerConfig{Store: lock.Redis(locks), Lock: longTimeout, Observe: j.observe}, st.run)
	}
	holder := b.occupy(t, st)
	ids := b.park(t, 1, 2, 3, 4, 5)
	for _, id := range ids {
		info := b.awaitState(t, id, asynq.TaskStateRetry)
		if want := "waits for " + b.resource + ", held by test:job "; !strings.HasPrefix(info.LastErr, want) {
			t.Errorf("reason: want %q, have %q", want, info.LastErr)
		}
	}
	start := time.Now()
	holder.open()
	b.awaitGone(t, ids...)
	st.wantOrder(0, 1, 2, 3, 4, 5)
	wantSoon(t, start, "want them called at once") // nobody is asked again
	for _, id := range ids {
		if e := j.await(t, queue.EventAcquired, id, 1); e.HandOff <= 0 || e.Fence <= 0 {
			t.Errorf("want it handed on, with a fence, have %+v", e)
		}
	}
	if v := b.value(t); v != "" {
		t.Errorf("lock on the tasks' Redis: want none of its name, have %q", v)
	}
}

// The task of a dead worker runs again once its lock has expired, and uses no retry. That holds on
// each store.
func TestExternalStoreRecovery(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	b, st, j, memory := setup(t), unfencedStage(t), &journal{}, locktest.NewMemory()
	st.unsafe = true // the killed one's handler goes on
	store := newQueueless(memory)
	victim := &mortal{plain: plain{guardConfig: queue.ServerConfig{Store: store, Lock: quickRecovery.Lock}}}
	victim.serve(t, b, st)
	zombie, id := b.begin(t, st, 0)
	waiter := b.park(t, 1)
	again := st.hold(0)
	victim.dead.Store(true)
	store.down.Store(true)
	b.silence(t, id)

	b.serve(t, queue.ServerConfig{Store: newQueueless(memory), Lock: quickRecovery.Lock, Observe: j.observe}, st.run)
	within(t, patience, "the second attempt", again.entered)
	info := b.awaitState(t, id, asynq.TaskStateActive)
	if crashes := b.rdb.HGet(t.Context(), b.taskKey(id), "siding_crashes").Val(); info.Retried != 0 || crashes != "1" {
		t.Errorf("want no retry used, with one crash counted, have %s, %+v", crashes, info)
	}
	again.open()
	b.awaitGone(t, append(waiter, id)...)
	if have := j.of(queue.EventRecovered, id); len(have) != 1 {
		t.Errorf("want one recovery told, have %+v", have)
	}
	if info := b.stats(t); info.Failed != 0 || info.Processed != 2 || info.Size != 0 {
		t.Errorf("want 2 processed, none failed, none left, have %+v", info)
	}
	zombie.open()
}

// A server makes the Locker of its Store, gives it to those who ask, and closes it.
func TestServerOwnsItsLocker(t *testing.T) {
	t.Parallel()
	cfg := lock.Config{Prefix: "own:", TTL: 20 * time.Second}
	for name, store := range map[string]lock.Store{"elsewhere": locktest.NewMemory(), "on the Redis of the tasks": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			guarded := queue.ServerConfig{Store: store, Lock: cfg}
			p := &plain{guardConfig: guarded}
			p.serve(t, b, newStage(t))
			s := b.serve(t, queue.ServerConfig{Store: store, Lock: cfg}, func(ctx context.Context, j job) error { return nil })
			held, err := p.server.Locker().Acquire(t.Context(), b.resource, nil)
			must(t, err)
			if left := time.Until(held.Deadline()); left < cfg.TTL/2 || left > cfg.TTL {
				t.Errorf("want a lease of %v, have %v", cfg.TTL, left)
			}
			if _, err := s.Locker().Acquire(t.Context(), b.resource, nil); !errors.Is(err, lock.ErrBusy) {
				t.Errorf("want lockers of the same locks, have %v", err)
			}
			if err := held.Release(t.Context()); err != nil {
				t.Error(err)
			}
			p.stop(t)
			shutdown(t, s)
			for _, locker := range []*lock.Locker{p.server.Locker(), s.Locker()} {
				if _, err := locker.Acquire(t.Context(), b.resource, nil); !errors.Is(err, lock.ErrClosed) {
					t.Errorf("want it closed, have %v", err)
				}
			}
		})
	}
}

// A task whose id is longer than a holder's note can be takes its lock on an external store, too.
func TestExternalStoreAndALongID(t *testing.T) {
	t.Parallel()
	b, st := setup(t), unfencedStage(t)
	b.serve(t, queue.ServerConfig{Store: newQueueless(locktest.NewMemory())}, st.run)
	id := b.enqueue(t, b.job(1), queue.Options{TaskID: strings.Repeat("x", 220)})
	b.awaitGone(t, id)
}
