package queue_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/lock/redlock"
	"github.com/sidingq/siding/queue"
)

// A lineless is one process's way to locks that have neither a line nor a fence, like
// those on a quorum of nodes.
type lineless struct {
	lock.Store // and no Listener

	down       atomic.Bool  // it cannot be asked
	recoveries atomic.Int32 // claims by who looks for crashed tasks
	split      atomic.Bool  // its nodes cannot tell them who has a lock
}

func newLineless(memory *locktest.Memory) *lineless { return &lineless{Store: memory} }

func (s *lineless) Acquire(ctx context.Context, c lock.Claim) (lock.Answer, error) {
	if s.down.Load() {
		return lock.Answer{}, io.ErrUnexpectedEOF
	}
	if strings.Contains(c.Token, ":recovery on ") && !strings.Contains(c.Key, "siding-recovery:") {
		s.recoveries.Add(1)
		if s.split.Load() {
			return lock.Answer{Split: true, Holder: "siding:1:another worker", Left: c.TTL}, nil
		}
	}
	c.Waiter = ""
	a, err := s.Store.Acquire(ctx, c)
	a.Fence = 0
	return a, err
}

func (s *lineless) Renew(ctx context.Context, key, token string, ttl, keep time.Duration) error {
	if s.down.Load() {
		return io.ErrUnexpectedEOF
	}
	return s.Store.Renew(ctx, key, token, ttl, keep)
}

func (s *lineless) Release(ctx context.Context, key, token string, line lock.Line) (*lock.Turn, error) {
	if s.down.Load() {
		return nil, io.ErrUnexpectedEOF
	}
	return s.Store.Release(ctx, key, token, line)
}

// newLocker returns a Locker that is closed when the servers of the test have gone.
func newLocker(t *testing.T, store lock.Store, cfg lock.Config) *lock.Locker {
	t.Helper()
	locker, err := lock.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	return locker
}

// holdBy holds the bundle's resource for the test, until the returned function is called.
func (b *bundle) holdBy(t *testing.T, locker *lock.Locker) (release func()) {
	t.Helper()
	lease, err := locker.Acquire(t.Context(), b.resource)
	if err != nil {
		t.Fatal(err)
	}
	lease.Keep(context.Background())
	release = func() {
		if err := lease.Release(context.Background()); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	t.Cleanup(release) // a second call does nothing
	return release
}

// run makes a task pending, as an operator may, instead of its timer.
func (b *bundle) run(t *testing.T, id string) {
	t.Helper()
	if err := b.inspector.RunTask(b.queue, id); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
}

// Tasks of two processes, and of a team's own server, exclude each other by locks that have
// no line. All of them have to wait, and all are done by their timers; nothing is charged,
// although none may be retried.
func TestGivenLockerExcludes(t *testing.T) {
	t.Parallel()
	t.Run("in memory", func(t *testing.T) {
		t.Parallel()
		memory := locktest.NewMemory()
		givenLockerExcludes(t, func() lock.Store { return newLineless(memory) })
	})
	t.Run("on a quorum", func(t *testing.T) {
		t.Parallel()
		verify.Long(t)
		givenLockerExcludes(t, quorum(t))
	})
}

func givenLockerExcludes(t *testing.T, open func() lock.Store) {
	t.Helper()
	const resources = 6
	tasks := 2 * resources
	if verify.All() {
		tasks = 5 * resources
	}
	b, st, j := setup(t), unfencedStage(t), &journal{}
	fleet := func() *lock.Locker { return newLocker(t, open(), lock.Config{}) }
	test := fleet()
	ids, of := make([]string, tasks), func(n int) string { return b.resource + ":" + strconv.Itoa(n%resources) }
	var leases []*lock.Lease
	for n := range resources {
		lease, err := test.Acquire(t.Context(), of(n))
		if err != nil {
			t.Fatal(err)
		}
		lease.Keep(context.Background())
		t.Cleanup(func() { _ = lease.Release(context.Background()) }) // the second time does nothing
		leases = append(leases, lease)
	}
	for n := range ids {
		ids[n] = b.enqueue(t, job{Res: of(n), N: n}, queue.Options{Retries: queue.NoRetries})
	}
	b.serve(t, queue.ServerConfig{Locker: fleet(), Observe: j.observe}, st.run)
	b.serve(t, queue.ServerConfig{Locker: fleet(), Observe: j.observe}, st.run)
	(&plain{guardConfig: queue.GuardConfig{Locker: fleet(), Observe: j.observe}}).serve(t, b, st)
	for _, id := range ids {
		e := j.await(t, queue.EventParked, id, 1)
		if e.Refusals != 1 || !errors.Is(e.Err, lock.ErrBusy) {
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
		if e.HandOff != 0 || e.Fence != 0 {
			t.Errorf("acquired: want neither a hand-off nor a fence, have %+v", e)
		}
	}
	for n := range resources {
		lease, err := test.Acquire(t.Context(), of(n))
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

// timers are the bounds of a task's delay in seconds after its n-th refusal in a row.
var timers = [][2]float64{{0.5, 1.5}, {1, 3}, {2, 6}, {4, 12}, {8, 24}, {10, 30}, {10, 30}, {10, 30}}

// wantTimer compares the timer of a task that has been refused for the n-th time in a row, after start.
func (b *bundle) wantTimer(t *testing.T, id string, n int, start time.Time) time.Time {
	t.Helper()
	info := b.awaitState(t, id, asynq.TaskStateRetry)
	bounds := timers[n-1]
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	// Timers are kept in whole seconds, rounded down.
	least, most := start.Add(seconds(bounds[0])-time.Second), time.Now().Add(seconds(bounds[1]))
	if info.NextProcessAt.Before(least) || info.NextProcessAt.After(most) {
		t.Errorf("refusal %d: want the timer from %v to %v, have %v", n, least, most, info.NextProcessAt)
	}
	if have := b.rdb.HGet(t.Context(), b.taskKey(id), "siding_refusals").Val(); have != strconv.Itoa(n) {
		t.Errorf("want refusal %d kept with the task, have %q", n, have)
	}
	return info.NextProcessAt
}

// A task in no line waits the longer the more often it has been refused, wherever it is next
// dequeued, up to a limit; those who are refused at the same time come at different times. It
// is charged nothing and not archived, although it is not to be retried.
func TestGivenLockerTimersGrow(t *testing.T) {
	t.Parallel()
	const tasks = 8
	b, st, j, memory := setup(t), unfencedStage(t), &journal{}, locktest.NewMemory()
	release := b.holdBy(t, newLocker(t, newLineless(memory), lock.Config{}))
	for range 2 { // the number is in no process
		b.serve(t, queue.ServerConfig{Locker: newLocker(t, newLineless(memory), lock.Config{}), Observe: j.observe, TimerInterval: noTimers}, st.run)
	}
	start, ids := time.Now(), make([]string, tasks)
	for i := range ids {
		ids[i] = b.enqueue(t, b.job(i), queue.Options{Retries: queue.NoRetries})
	}
	for n := 1; n <= len(timers); n++ {
		times := map[time.Time]bool{}
		for _, id := range ids {
			if e := j.await(t, queue.EventParked, id, n); e.Refusals != n {
				t.Errorf("refusals: want %d, have %+v", n, e)
			}
			times[b.wantTimer(t, id, n, start)] = true
		}
		if n >= 5 && len(times) < 2 {
			t.Errorf("refusal %d: want timers that differ, have all of them at %v", n, times)
		}
		start = time.Now()
		if n == len(timers) {
			release()
		}
		for _, id := range ids {
			b.run(t, id)
			if n == len(timers) {
				b.awaitGone(t, id) // one by one, as there is no line
			}
		}
	}
	if info := b.stats(t); info.Processed != tasks || info.Failed != 0 || info.Size != 0 {
		t.Errorf("want %d processed, none failed, none left, have %+v", tasks, info)
	}
}

// A task that had its lock begins anew, whatever became of it.
func TestGivenLockerTimersBeginAnew(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err     error
		retried int
		parked  int // how often by then, for which reason ever
	}{
		"own failure": {errors.New("own failure"), 1, 5},
		"lease lost":  {lock.ErrStale, 0, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, j, memory := setup(t), unfencedStage(t), &journal{}, locktest.NewMemory()
			test := newLocker(t, newLineless(memory), lock.Config{})
			release := b.holdBy(t, test)
			b.serve(t, queue.ServerConfig{Locker: newLocker(t, newLineless(memory), lock.Config{}), Observe: j.observe, TimerInterval: noTimers}, st.run)
			st.act(0, func() error { return tt.err })
			start := time.Now()
			id := b.enqueue(t, b.job(0), queue.Options{Retries: 5})
			for n := 1; n <= 4; n++ {
				j.await(t, queue.EventParked, id, n)
				b.wantTimer(t, id, n, start)
				if n == 4 {
					release()
				}
				start = time.Now()
				b.run(t, id)
			}
			j.await(t, queue.EventAcquired, id, 1)
			poll.Eventually(t, "the lock to be released", func() bool { return memory.Value(b.lockKey()) == "" })
			info := b.awaitState(t, id, asynq.TaskStateRetry)
			if info.Retried != tt.retried {
				t.Errorf("want %d retries charged, have %+v", tt.retried, info)
			}
			if have, err := b.rdb.HExists(t.Context(), b.taskKey(id), "siding_refusals").Result(); err != nil || have {
				t.Errorf("want no refusals kept, have %v, %v", have, err)
			}
			b.holdBy(t, test)
			start = time.Now()
			b.run(t, id)
			if e := j.await(t, queue.EventParked, id, 5); e.Refusals != tt.parked {
				t.Errorf("refusals: want all of them told, %d, have %d", tt.parked, e.Refusals)
			}
			b.wantTimer(t, id, 1, start)
		})
	}
}

// A store of locks that does not answer is asked less and less often, too.
func TestGivenLockerCannotBeAsked(t *testing.T) {
	t.Parallel()
	b, st := setup(t), unfencedStage(t)
	store := newLineless(locktest.NewMemory())
	store.down.Store(true)
	b.serve(t, queue.ServerConfig{Locker: newLocker(t, store, lock.Config{}), TimerInterval: noTimers}, st.run)
	start := time.Now()
	id := b.enqueue(t, b.job(0), queue.Options{Retries: queue.NoRetries})
	for n := 1; n <= 3; n++ {
		poll.Eventually(t, fmt.Sprintf("refusal %d", n), func() bool {
			return b.rdb.HGet(t.Context(), b.taskKey(id), "siding_parked").Val() == strconv.Itoa(n)
		})
		b.wantTimer(t, id, n, start)
		if info := b.awaitState(t, id, asynq.TaskStateRetry); info.Retried != 0 || !strings.Contains(info.LastErr, "unexpected EOF") {
			t.Errorf("want it uncharged with the reason, have %+v", info)
		}
		store.down.Store(n < 3)
		start = time.Now()
		b.run(t, id)
	}
	b.awaitGone(t, id)
	st.wantOrder(0)
}

// Tasks that wait without a line keep no worker, so they do not delay tasks on other resources.
func TestGivenLockerDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	const each = 60
	b, st, memory := setup(t), unfencedStage(t), locktest.NewMemory()
	release := b.holdBy(t, newLocker(t, newLineless(memory), lock.Config{}))
	var waiting, others []string
	for n := range each {
		waiting = append(waiting, b.enqueue(t, b.job(n)))
		others = append(others, b.enqueue(t, job{Res: b.resource + ":" + strconv.Itoa(n), N: 1000 + n}))
	}
	b.serve(t, queue.ServerConfig{Locker: newLocker(t, newLineless(memory), lock.Config{}), Concurrency: 3, TimerInterval: noTimers}, st.run)
	start := time.Now()
	b.awaitGone(t, others...)
	if took := time.Since(start); took > prompt {
		t.Errorf("want the others at once, have them after %v", took)
	}
	poll.Eventually(t, "all the waiting tasks parked", func() bool { return b.stats(t).Retry == each })
	if have := len(st.order()); have != each {
		t.Errorf("runs: want %d, have %d", each, have)
	}
	release()
	for _, id := range waiting {
		b.run(t, id)
		b.awaitGone(t, id)
	}
}

// Without Conn nobody counts, and tasks come back every second.
func TestGivenLockerUnhooked(t *testing.T) {
	t.Parallel()
	b, st, memory := setup(t), unfencedStage(t), locktest.NewMemory()
	var looks atomic.Int32
	release := b.holdBy(t, newLocker(t, newLineless(memory), lock.Config{}))
	counting := countedAcquires{newLineless(memory), &looks}
	p := &plain{unhooked: true, guardConfig: queue.GuardConfig{Locker: newLocker(t, counting, lock.Config{})}}
	p.serve(t, b, st)
	start := time.Now()
	id := b.enqueue(t, b.job(0), queue.Options{Retries: 1})
	const want = 4
	poll.Eventually(t, "looks at the lock", func() bool { return looks.Load() >= want })
	if took := time.Since(start); took > prompt {
		t.Errorf("want %d looks within some 6 s, have them after %v", want, took)
	}
	release()
	b.awaitGone(t, id)
	if info := b.stats(t); info.Processed != 1 || info.Failed != 0 {
		t.Errorf("want 1 processed, none failed, have %+v", info)
	}
}

// countedAcquires counts the claims for tasks.
type countedAcquires struct {
	lock.Store

	n *atomic.Int32
}

func (s countedAcquires) Acquire(ctx context.Context, c lock.Claim) (lock.Answer, error) {
	if strings.Contains(c.Token, ":test:job ") {
		s.n.Add(1)
	}
	return s.Store.Acquire(ctx, c)
}

// A Locker on another Redis than that of the tasks has a line, and tasks wait in it and are
// called, by the guard itself.
func TestGivenLockerWithALine(t *testing.T) {
	t.Parallel()
	b, st, j := setup(t), newStage(t), &journal{}
	locks := redistest.Start(t).Client(t)
	given := func() *lock.Locker { return newLocker(t, lock.Redis(locks), longGrace) }
	serve := func(cfg queue.ServerConfig) {
		cfg.Locker, cfg.Observe, cfg.TimerInterval = given(), j.observe, noTimers
		b.serve(t, cfg, st.run)
	}
	elsewhere := b.queue + ".elsewhere"
	serve(queue.ServerConfig{Queues: map[string]int{elsewhere: 1}})
	holder := st.hold(0)
	b.enqueue(t, b.job(0), queue.Options{Queue: elsewhere})
	within(t, patience, "the holder", holder.entered)
	serve(queue.ServerConfig{})
	serve(queue.ServerConfig{})
	ids := b.park(t, 1, 2, 3, 4, 5)
	waiters, err := locks.ZRange(t.Context(), "{"+b.lockKey()+"}:line", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	var line []string
	for i, w := range waiters {
		line = append(line, w[strings.LastIndex(w, ":")+1:])
		info := b.awaitState(t, ids[i], asynq.TaskStateRetry)
		if want := "held by test:job "; !strings.Contains(info.LastErr, want) || !strings.Contains(info.LastErr, "in line") {
			t.Errorf("reason: want it with %q and a place, have %q", want, info.LastErr)
		}
	}
	if diff := cmp.Diff(ids, line); diff != "" {
		t.Errorf("line (-want +have):\n%s", diff)
	}
	b.wantLine(t) // of the tasks' own Redis
	start := time.Now()
	holder.open()
	b.awaitGone(t, ids...)
	st.wantOrder(0, 1, 2, 3, 4, 5)
	if took := time.Since(start); took > prompt { // no timer is looked at
		t.Errorf("want them called at once, have %v", took)
	}
	for _, id := range ids {
		if e := j.await(t, queue.EventAcquired, id, 1); e.HandOff <= 0 || e.Fence <= 0 {
			t.Errorf("want it handed on, with a fence, have %+v", e)
		}
	}
	if v := b.value(t); v != "" {
		t.Errorf("lock on the tasks' Redis: want none, have %q", v)
	}
}

// The task of a dead worker runs again once its lock has run out, uncharged, wherever the locks are.
func TestGivenLockerRecovery(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	b, st, j, memory := setup(t), unfencedStage(t), &journal{}, locktest.NewMemory()
	st.unsafe = true // the killed one's handler goes on
	store := newLineless(memory)
	victim := &mortal{plain: plain{guardConfig: queue.GuardConfig{Locker: newLocker(t, store, quickRecovery.Lock)}}}
	victim.serve(t, b, st)
	zombie := st.hold(0)
	id := b.enqueue(t, b.job(0))
	within(t, patience, "the first attempt", zombie.entered)
	waiter := b.park(t, 1)
	again := st.hold(0)
	victim.dead.Store(true)
	store.down.Store(true)
	b.silence(t, id)

	b.serve(t, queue.ServerConfig{Locker: newLocker(t, newLineless(memory), quickRecovery.Lock), Observe: j.observe}, st.run)
	within(t, patience, "the second attempt", again.entered)
	info := b.awaitState(t, id, asynq.TaskStateActive)
	if crashes := b.rdb.HGet(t.Context(), b.taskKey(id), "siding_crashes").Val(); info.Retried != 0 || crashes != "1" {
		t.Errorf("want it uncharged, with one crash counted, have %s, %+v", crashes, info)
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

// A silent task that holds its lock, wherever that is, is at work; and may be where a quorum
// cannot tell.
func TestGivenLockerSilentTaskIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, split := range map[string]bool{"holder is known": false, "votes are split": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSilentTaskIsLeftAlone(t, split)
		})
	}
}

func testSilentTaskIsLeftAlone(t *testing.T, split bool) {
	t.Helper()
	b, st, memory := setup(t), unfencedStage(t), locktest.NewMemory()
	m := &mortal{plain: plain{guardConfig: queue.GuardConfig{Locker: newLocker(t, newLineless(memory), lock.Config{}), Recovery: queue.Recovery{Crashes: -1}}}}
	m.mute.Store(true)
	m.serve(t, b, st)
	holder := st.hold(0)
	id := b.enqueue(t, b.job(0))
	within(t, patience, "the holder", holder.entered)
	b.silence(t, id)
	looks := newLineless(memory)
	looks.split.Store(split)
	b.serve(t, queue.ServerConfig{Locker: newLocker(t, looks, lock.Config{})}, st.run)
	claims := int32(2)
	if split {
		claims *= 5 // each is asked for so often
	}
	poll.Eventually(t, "two looks at its lock", func() bool { return looks.recoveries.Load() >= claims })
	if have := b.state(id); have != asynq.TaskStateActive {
		t.Errorf("want it active, have it %v", have)
	}
	holder.open()
	b.awaitGone(t, id)
	st.wantOrder(0)
}

// The caller's Locker is what the guard's users get, and remains the caller's to close.
func TestGivenLockerIsNotClosed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	given := newLocker(t, newLineless(locktest.NewMemory()), lock.Config{})
	p := &plain{guardConfig: queue.GuardConfig{Locker: given}}
	p.serve(t, b, unfencedStage(t))
	s := b.newServer(t, queue.ServerConfig{Locker: given})
	queue.Handle(s, func(context.Context, job) error { return nil })
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.guard.Locker() != given || s.Locker() != given {
		t.Errorf("want the given locker, have %p and %p", p.guard.Locker(), s.Locker())
	}
	p.stop(t)
	shutdown(t, s)
	lease, err := given.Acquire(t.Context(), b.resource)
	if err != nil {
		t.Fatalf("want it open, have %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}

	own := &plain{}
	own.serve(t, b, newStage(t))
	own.stop(t)
	if _, err := own.guard.Locker().Acquire(t.Context(), b.resource); !errors.Is(err, lock.ErrClosed) {
		t.Errorf("the guard's own: want it closed, have %v", err)
	}
}

// A Locker has a configuration of its own.
func TestGivenLockerAndLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	given := newLocker(t, newLineless(locktest.NewMemory()), lock.Config{})
	const want = "queue: lock and locker: "
	if _, err := queue.NewGuard(b.rdb, queue.GuardConfig{Locker: given, Lock: shortTimers}); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("guard: want %q, have %v", want, err)
	}
	if err := (queue.ServerConfig{Locker: given, Lock: shortTimers}).Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("server: want %q, have %v", want, err)
	}
	if err := (queue.ServerConfig{Locker: given}).Validate(); err != nil {
		t.Errorf("a locker alone: want no error, have %v", err)
	}
}
