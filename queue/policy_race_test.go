package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

func isReplaced(cmd redis.Cmder) bool { return hasKeys(cmd, ":t:", ":retry") }
func isEqual(cmd redis.Cmder) bool    { return hasKeys(cmd, ":queue", ":paused", ":equal:") }

// Two tasks find the same one waiting. The later of the two replaces it. The earlier one does not run
// after the later.
func TestTwoReplaceOne(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		var asked, replaced atomic.Int32
		reached, laterDeleted, earlierMet := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var race atomic.Bool
		p := &plain{guardConfig: queue.GuardConfig{Observe: j.observe}, onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			switch {
			case !race.Load():
			case isReplaced(cmd) && replaced.Add(1) == 1: // of the earlier one
				close(reached)
				<-laterDeleted
			case isReplaced(cmd) && replaced.Load() == 2: // of the later one
				err := send()
				close(laterDeleted)
				<-earlierMet
				return err
			case isEqual(cmd) && asked.Add(1) == 3: // the earlier one comes back
				err := send()
				close(earlierMet)
				return err
			}
			return send()
		}}
		p.serve(t, b, st)
		g := b.occupy(t, st)
		replace := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace}}
		b.enqueueWaiter(t, 1, 1, replace)
		b.enqueueWaiter(t, 1, 1, replace) // so Redis knows the scripts
		race.Store(true)
		early := b.enqueue(t, b.job(2), replace)
		within(t, patience, "the earlier one", reached)
		late := b.enqueue(t, b.job(3), replace)
		j.await(t, queue.EventParked, late, 1)
		b.awaitState(t, late, asynq.TaskStateRetry)
		poll.Eventually(t, "the earlier one parked or gone", func() bool { s := b.state(early); return s == 0 || s == asynq.TaskStateRetry })
		g.open()
		b.awaitGone(t, early, late)
		if have := st.order(); have[len(have)-1] != 3 {
			t.Errorf("want the latest run last, have %v", have)
		}
	})
}

// The lock is reserved for a task that then takes the position of another. It is woken by the ticket of that
// position, not by the one of the reservation. Only a client that wakes stepwise can come that late.
func TestATaskThatReplacesIsWokenByItsNewTicket(t *testing.T) {
	t.Parallel()
	b := setupStepwise(t)
	st, j := newStage(t), &journal{}
	reserved, earlyParked, lateParked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once
	p := &plain{guardConfig: queue.GuardConfig{Observe: j.observe}, onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
		of := func(id string) bool { return strings.Contains(fmt.Sprint(cmd.Args()...), ":"+id) }
		switch {
		case hasKeys(cmd, "lock:", ":fence", ":queue", ":paused") && of("early"):
			<-reserved
		case isEqual(cmd) && of("late"):
			<-earlyParked
		case hasKeys(cmd, ":t:late", ":retry", ":pending", ":paused", "notify"):
			once.Do(func() { close(reserved) })
			<-lateParked
		}
		return send()
	}}
	p.serve(t, b, st)
	g := b.occupy(t, st)
	for n, id := range []string{"early", "late"} {
		b.enqueue(t, b.job(n+1), queue.Options{TaskID: id, Policy: &queue.Policy{OnBusy: queue.OnBusyReplace}})
		b.awaitState(t, id, asynq.TaskStateActive)
	}
	poll.Eventually(t, "the later one waits", func() bool { return len(b.waiters(t)) == 1 })
	g.open()
	j.await(t, queue.EventParked, "early", 1)
	b.awaitState(t, "early", asynq.TaskStateRetry)
	close(earlyParked)
	j.await(t, queue.EventParked, "late", 1)
	b.awaitState(t, "late", asynq.TaskStateRetry)
	close(lateParked)
	b.awaitGone(t, "early", "late")
	if via := j.await(t, queue.EventAcquired, "late", 1).Via; via != queue.ViaHandOff {
		t.Errorf("want it woken by the release, have %v", via)
	}
	if have := st.order(); !slices.Equal(have, []int{0, 2}) {
		t.Errorf("want the later one alone run, have %v", have)
	}
}

// Two tasks have the same id, one after the other. The second is registered with the time at which a
// worker took it, not with that of the first.
func TestReplaceWithAnIdThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		b.serve(t, queue.ServerConfig{}, st.run)
		replace := queue.Options{TaskID: "x", Policy: &queue.Policy{OnBusy: queue.OnBusyReplace}}
		var began time.Time
		for n := range 2 {
			g := st.hold(0)
			holder := b.enqueue(t, b.job(0))
			within(t, patience, "the holder", g.entered)
			began = time.Now()
			b.enqueueWaiter(t, n+1, 1, replace)
			if n == 1 {
				break
			}
			g.open()
			b.awaitGone(t, holder, "x")
		}
		equals := b.rdb.Keys(t.Context(), "{lock:"+b.resource+"}:equal:*").Val()
		if len(equals) != 1 {
			t.Fatalf("want one registered, have %q", equals)
		}
		came, _, _ := strings.Cut(b.rdb.Get(t.Context(), equals[0]).Val(), " ")
		if us, err := strconv.ParseInt(came, 10, 64); err != nil || time.UnixMicro(us).Before(began) {
			t.Errorf("want a time since %v, have %v, %v", began, time.UnixMicro(us), err)
		}
	})
}

// awaitEnd waits until a task is done. It fails the test if the task is archived.
func (b *bundle) awaitEnd(t *testing.T, id string) {
	t.Helper()
	var state asynq.TaskState
	poll.Eventually(t, "the end of task "+id, func() bool { state = b.state(id); return state == 0 || state == asynq.TaskStateArchived })
	if state != 0 {
		info, _ := b.inspector.GetTaskInfo(b.queue, id)
		t.Fatalf("want it done, have it archived: %s", info.LastErr)
	}
}

// A task that replaces one of a higher level has not waited for the head start of that one.
func TestReplaceOneOfAHigherLevel(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Observe: j.observe}}, st.run)
		g := b.occupy(t, st)
		replace := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReplace, MaxWait: time.Minute}}
		high := replace
		high.Priority = queue.MaxPriority
		b.enqueueWaiter(t, 1, 1, high)
		low := b.enqueue(t, b.job(2), replace)
		j.await(t, queue.EventParked, low, 1)
		b.awaitState(t, low, asynq.TaskStateRetry)
		b.wantWaiters(t, low)
		g.open()
		b.awaitEnd(t, low)
		st.wantOrder(0, 2)
		if e := j.await(t, queue.EventAcquired, low, 1); e.Waited > patience {
			t.Errorf("want how long it has waited, have %v", e.Waited)
		}
	})
}

// backdate lets a task that waits for the bundle's resource have come earlier. If one is registered for the
// tasks that are equal, it is that task.
func (b *bundle) backdate(t *testing.T, id string, by time.Duration) {
	t.Helper()
	equals, err := b.rdb.Keys(t.Context(), "{lock:"+b.resource+"}:equal:*").Result()
	if err != nil || len(equals) > 1 {
		t.Fatalf("want one registered at most, have %q, %v", equals, err)
	}
	came, waiter := time.Now().Add(-by).UnixMicro(), "siding-task:"+b.queue+":"+id
	b.do(t, "HSET", b.taskKey(id), "siding_ticket", came)
	b.do(t, "ZADD", b.waitQueueKey(), "XX", came, waiter)
	for _, equal := range equals {
		b.do(t, "SET", equal, strconv.FormatInt(came, 10)+" "+waiter, "KEEPTTL")
	}
}

// A task is not coalesced into one that has waited for too long already, and will not run.
func TestCoalesceIntoOneThatIsTooLate(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{
			Asynq: asynq.Config{DelayedTaskCheckInterval: time.Hour},
			Guard: queue.GuardConfig{Observe: j.observe},
		}, st.run)
		g := b.occupy(t, st)
		coalesce := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyCoalesce, MaxWait: time.Minute}}
		late := b.enqueueWaiter(t, 1, 1, coalesce)
		b.backdate(t, late, 2*time.Minute)
		again := b.enqueue(t, b.job(1), coalesce)
		poll.Eventually(t, "it has come", func() bool { return len(j.of(queue.EventParked, again))+len(j.of(queue.EventCoalesced, again)) > 0 })
		if len(j.of(queue.EventCoalesced, again)) > 0 {
			t.Fatal("want it to wait, have it dropped")
		}
		g.open()
		b.awaitState(t, late, asynq.TaskStateArchived)
		b.awaitEnd(t, again)
		st.wantOrder(0, 1)
	})
}

// A task that keeps the first place, as the external store did not answer, is not rejected because
// of that.
func TestRejectWithAnExternalStoreThatFails(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := unfencedStage(t)
		store := newQueueless(locktest.NewMemory())
		store.down.Store(true)
		b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Store: store}}, st.run)
		id := b.enqueue(t, b.job(1), queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyReject}})
		b.awaitState(t, id, asynq.TaskStateRetry)
		store.down.Store(false)
		b.awaitEnd(t, id)
		st.wantOrder(1)
	})
}

// A task that waits at its worker uses no retry, also if its time is shorter than its wait.
func TestWaitAtWorkAndTimeout(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		b.serve(t, queue.ServerConfig{}, st.run)
		g := b.occupy(t, st)
		id := b.enqueue(t, b.job(1), queue.Options{Timeout: 2 * time.Second, Policy: &queue.Policy{OnBusy: queue.OnBusyWait, Wait: time.Minute}})
		info := b.awaitState(t, id, asynq.TaskStateRetry)
		if info.Retried != 0 || !strings.HasPrefix(info.LastErr, "waiting for") {
			t.Errorf("want it parked, have %d retries used, and %q", info.Retried, info.LastErr)
		}
		g.open()
		b.awaitGone(t, id)
	})
}

// With a limit, a worker that waits gets a permit, and keeps to the limit.
func TestWaitAtWorkWithALimit(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		st.permits = true
		b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Limits: map[string]queue.Limit{"res:*": {Holders: 2}}}}, st.run)
		one, two := st.hold(0), st.hold(1)
		b.enqueue(t, b.job(0))
		b.enqueue(t, b.job(1))
		within(t, patience, "the holder", one.entered)
		within(t, patience, "the holder", two.entered)
		id := b.enqueue(t, b.job(2), queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyWait, Wait: time.Minute}})
		poll.Eventually(t, "its worker waits", func() bool { return len(b.waiters(t)) == 1 })
		three := st.hold(2)
		one.open()
		within(t, patience, "the waiter", three.entered)
		three.open()
		b.awaitGone(t, id)
		two.open()
		b.awaitGone(t, b.enqueue(t, b.job(3)), b.enqueue(t, b.job(4)))
	})
}

// Tasks of all policies meet, and the answer to each of their calls is lost, so the client sends the call
// again. Each task ends, the waiters are gone, and the lock is free.
func TestPolicyCallsAreSentTwice(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		again := func(ctx context.Context, cmd redis.Cmder, send func() error) error {
			if isReplaced(cmd) || isEqual(cmd) {
				if err := send(); err != nil {
					return err
				}
			}
			return twice(ctx, cmd, send)
		}
		for range 2 {
			(&plain{onLocks: again, guardConfig: queue.GuardConfig{Observe: j.observe}}).serve(t, b, st)
		}
		g := b.occupy(t, st)
		policies := []queue.Policy{
			{OnBusy: queue.OnBusyReplace},
			{OnBusy: queue.OnBusyCoalesce, MaxWait: time.Minute},
			{OnBusy: queue.OnBusyReplace, MaxWaiting: 5},
			{OnBusy: queue.OnBusyWait, Wait: 5 * time.Millisecond},
			{OnBusy: queue.OnBusyReject},
			{},
		}
		var ids []string
		for n := range 60 {
			p := policies[n%len(policies)]
			ids = append(ids, b.enqueue(t, b.job(1+n%7), queue.Options{Priority: n % 3, Policy: &p}))
		}
		poll.Eventually(t, "all of them taken", func() bool {
			info := b.stats(t)
			return info.Pending == 0 && info.Active == 1
		})
		g.open()
		for _, id := range ids {
			poll.Eventually(t, "the end of task "+id, func() bool { state := b.state(id); return state == 0 || state == asynq.TaskStateArchived })
		}
		b.wantWaiters(t)
		poll.Eventually(t, "the lock free", func() bool { return b.value(t) == "" })
		for _, e := range j.of(queue.EventLost, "") {
			t.Errorf("want no lock lost, have %+v", e)
		}
		t.Logf("%d ran, %d rejected, %d coalesced, %d replaced", len(st.order()), len(j.of(queue.EventRejected, "")), len(j.of(queue.EventCoalesced, "")), len(j.of(queue.EventReplaced, "")))
	})
}

// A task is not coalesced into another one that has the id of a waiter which an operator has deleted.
func TestCoalesceIntoAnIdThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st, j := newStage(t), &journal{}
		b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Observe: j.observe}}, st.run)
		g := b.occupy(t, st)
		coalesce := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyCoalesce}}
		named := coalesce
		named.TaskID = "x"
		b.enqueueWaiter(t, 1, 1, named)
		if err := b.inspector.DeleteTask(b.queue, "x"); err != nil {
			t.Fatal(err)
		}
		b.enqueue(t, b.job(2), queue.Options{TaskID: "x", Delay: time.Hour})
		id := b.enqueue(t, b.job(1), coalesce)
		poll.Eventually(t, "it has come", func() bool { return len(j.of(queue.EventParked, id))+len(j.of(queue.EventCoalesced, id)) > 0 })
		if len(j.of(queue.EventCoalesced, id)) > 0 {
			t.Error("want it to wait, have it dropped")
		}
		g.open()
		b.awaitEnd(t, id)
	})
}

// A task is not coalesced into one that is about to be rejected, as too many wait.
func TestCoalesceIntoOneThatIsRejected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	st, j := newStage(t), &journal{}
	var race atomic.Bool
	var asked atomic.Int32
	reached, decided := make(chan struct{}), make(chan struct{})
	p := &plain{guardConfig: queue.GuardConfig{Observe: j.observe}, onLocks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
		if race.Load() && isEqual(cmd) && asked.Add(1) == 1 {
			err := send()
			close(reached)
			<-decided
			return err
		}
		return send()
	}}
	p.serve(t, b, st)
	g := b.occupy(t, st)
	o := queue.Options{Policy: &queue.Policy{OnBusy: queue.OnBusyCoalesce, MaxWaiting: 1}}
	b.enqueueWaiter(t, 9, 1, o)
	race.Store(true)
	first := b.enqueue(t, b.job(1), o)
	within(t, patience, "first", reached)
	second := b.enqueue(t, b.job(1), o)
	poll.Eventually(t, "the second decided", func() bool { s := b.state(second); return s == 0 || s == asynq.TaskStateArchived })
	close(decided)
	b.awaitState(t, first, asynq.TaskStateArchived)
	if have := len(j.of(queue.EventCoalesced, "")); have > 0 {
		t.Error("want it rejected, too, have it dropped")
	}
	g.open()
}
