package inspect_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// limited is a server whose resources have so many holders each, and rates.
func limited(holders int, rates ...lock.Rate) queue.ServerConfig {
	return queue.ServerConfig{Limits: map[string]queue.Limit{"res:*": {Holders: holders, Rates: rates}}}
}

// setLimit sets a limit of the bed's resource, as an operator does.
func (b *bed) setLimit(holders int, rates ...lock.Rate) {
	b.Helper()
	b.must(queue.SetLimit(b.Context(), b.rdb, queue.LimitOverride{Pattern: b.resource, Holders: holders, Rates: rates, By: "alice", Reason: "stock count"}))
}

// awaitRead returns once the server goes by all limits that have been set: it pauses one more resource,
// and reads them all at once.
func (b *bed) awaitRead() {
	b.Helper()
	probe := b.resource + ":probe"
	b.must(queue.SetLimit(b.Context(), b.rdb, queue.LimitOverride{Pattern: probe, By: "alice", Reason: "probe"}))
	expect.Eventually(b.T, "a server that has read the limits", func() bool {
		b.enqueue(job{probe, 100})
		l, _, err := b.inspector.Show(b.Context(), probe, 1, 0)
		return err == nil && l.State == inspect.Free && l.Waiting > 0
	})
}

// awaitWrong waits until the verdict on a task has a text.
func (b *bed) awaitWrong(id, want string) inspect.Explanation {
	b.Helper()
	var e inspect.Explanation
	expect.Eventually(b.T, "the verdict: "+want, func() bool {
		e = b.why(id)
		expect.Need(b, !strings.Contains(e.Verdict.Wrong, "not Siding's"), "want no other program, have %+v", e)
		return strings.Contains(e.Verdict.Wrong, want)
	})
	return e
}

// wantHolders checks a lock that tasks hold by permits.
func (b *bed) wantHolders(l *inspect.Lock, ids []string) {
	b.Helper()
	expect.Need(b, l != nil && l.State == inspect.Held && l.Holder == fmt.Sprintf("%d holders", len(ids)) && l.Task == nil && !l.Gone && len(l.Permits) == len(ids), "want %d holders, have %+v", len(ids), l)
	fences := make(map[int64]bool)
	for _, p := range l.Permits {
		named := slices.ContainsFunc(ids, func(id string) bool { return strings.HasPrefix(p.Holder, "test:job "+id+" on ") })
		expect.That(b, named && p.State == inspect.Held && p.Left > 0 && time.Since(p.Since) <= time.Minute && p.Worker != nil && !p.Gone, "want one of %q with a live worker, have %+v", ids, p)
		fences[p.Fence] = true
	}
	expect.That(b, len(fences) == len(ids) && !fences[0], "want a fence each, have %v", fences)
	b.wantNoToken(l)
}

// All holders of a lock with a limit are shown, and who waits is told of them.
func TestHoldersOfALimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(limited(3))
	b.awaitServers(1)
	var ids []string
	for n := range 3 {
		ids = append(ids, b.running(n))
	}
	waiting := b.waiting(3, 2)
	l, waiters := b.show(1, 10)
	b.wantHolders(&l, ids)
	expect.That(t, len(waiters) == 2 && l.Waiting == 2 && l.Limit == nil, "want two waiters and no limit of an operator, have %+v and %+v", l, waiters)
	expect.Eventually(t, "a list with the tasks", func() bool {
		held := b.held(b.resource)
		b.wantHolders(held, ids)
		return !slices.ContainsFunc(held.Permits, func(p inspect.Permit) bool { return p.Task == nil || p.Task.Queue != b.queue })
	})
	all := b.scan()
	b.wantHolders(find(all, b.resource), ids)

	e := b.awaitWrong(waiting[1], "No: 3 permits of "+b.resource+" are held or reserved, by ")
	if e.State != inspect.StateWaiting || e.Position != 2 || e.Lock.Holder != "3 holders" || e.Lock.Task != nil || e.Verdict.Trouble ||
		!strings.Contains(e.Verdict.Clears, "When one of them ends, the first waiter gets its permit at once.") {
		t.Errorf("want the holders, have %+v", e)
	}
	e = b.why(ids[1])
	expect.That(t, e.State == inspect.StateRunning && strings.HasPrefix(e.Lock.Holder, "test:job "+ids[1]+" on ") && !e.Verdict.Trouble && e.Lock.Task != nil && e.Lock.Task.ID == ids[1], "want a running task with its own permit, have %+v", e)

	b.setLimit(3)
	e = b.awaitWrong(waiting[0], "No: 3 of 3 permits of "+b.resource+" are held or reserved, by ")
	if !strings.Contains(e.Verdict.Wrong, "alice has set this limit for "+b.resource+" at ") || !strings.HasSuffix(e.Verdict.Wrong, ": stock count.") ||
		!strings.Contains(e.Verdict.Do, "`lockctl limit set --reason TEXT "+b.resource+" HOLDERS`") || e.Lock.Limit == nil || e.Lock.Limit.Holders != 3 {
		t.Errorf("want the limit, have %+v", e.Verdict)
	}
	b.setLimit(0)
	e = b.awaitWrong(waiting[0], "Yes: alice has paused "+b.resource+" at ")
	if !e.Verdict.Trouble || !strings.HasSuffix(e.Verdict.Wrong, ": stock count.") || e.Verdict.Do != "Resume it: `lockctl limit unset "+b.resource+"`." ||
		!strings.Contains(e.Verdict.Clears, "are still at work") {
		t.Errorf("want who paused it, why, and how to resume it, have %+v", e.Verdict)
	}
	b.awaitRead()
	b.let(0, 1, 2)
	expect.Eventually(t, "a free lock", func() bool {
		l, _ = b.show(1, 10)
		return l.State == inspect.Free && len(l.Permits) == 0 && l.Waiting == len(waiting)
	})
	expect.That(t, l.Limit != nil && l.Limit.By == "alice" && l.Limit.Holders == 0, "want the pause, have %+v", l.Limit)
	e = b.awaitWrong(waiting[1], "Yes: alice has paused ")
	expect.That(t, !strings.Contains(e.Verdict.Clears, "at work") && strings.Contains(e.Verdict.Clears, "keeps its place"), "want nobody at work, have %+v", e.Verdict)
}

// A task that waits for its time is told of the rates.
func TestRatesDelay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(limited(2, lock.Rate{Starts: 1, Period: time.Hour}))
	b.awaitServers(1)
	b.running(0)
	id := b.waiting(1, 1)[0]
	b.awaitWrong(id, "The limit or the rates in the settings of the workers let no other task start yet.")
	b.let(0)
	e := b.awaitWrong(id, "No: nobody holds "+b.resource+". The rates in the settings of the workers may let the next task start later.")
	expect.That(t, e.Lock.State == inspect.Free && !e.Verdict.Trouble, "want a free lock, have %+v", e)
	l, _ := b.show(1, 0)
	expect.That(t, l.Rated && l.State == inspect.Free, "want a free lock with rates, have %+v", l)
	b.setLimit(2, lock.Rate{Starts: 1, Period: 30 * time.Minute})
	e = b.awaitWrong(id, "No: the rates of "+b.resource+" let no other task start before ")
	if !strings.Contains(e.Verdict.Wrong, "alice has set them for "+b.resource) || !strings.Contains(e.Verdict.Clears, "(in 30 min)") && !strings.Contains(e.Verdict.Clears, "(in 29 min)") {
		t.Errorf("want when the rates allow it, have %+v", e.Verdict)
	}
}

// A lock with one holder and a permit looks like one without. Its mark may have lost its TTL, as by PERSIST; the holder has its own.
func TestOnePermit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(limited(1, lock.Rate{Starts: 1000, Period: time.Minute}))
	id := b.running(0)
	l, _ := b.show(1, 10)
	expect.That(t, l.State == inspect.Held && l.Task != nil && l.Task.ID == id && l.Worker != nil && len(l.Permits) == 1 && l.Permits[0].Fence == l.Fence && !l.Since.IsZero(), "want the task, have %+v", l)
	b.awaitServers(1)
	waiting := b.waiting(1, 1)
	expect.OK(t, b.rdb.Persist(t.Context(), "lock:"+b.resource).Err())
	e := b.awaitWrong(waiting[0], "No: 1 permit of "+b.resource+" is held or reserved, by ")
	expect.That(t, !e.Lock.Endless, "want a lock that ends with its permit, have %+v", e.Lock)
}

// A holder from before the limit keeps the others out, and they are told of it.
func TestLimitOnAHeldLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve()
	b.awaitServers(1)
	holder := b.running(0)
	waiting := b.waiting(1, 1)
	b.setLimit(3)
	e := b.awaitWrong(waiting[0], "No: the task "+holder+" on ")
	expect.That(t, e.Lock.Task != nil && e.Lock.Task.ID == holder, "want the holder, have %+v", e)
}

// While all slots are in use nobody looks at the ready set. So an entry that is due says nothing of a lock that is kept from its
// waiters: by those who hold its permits, by a pause, or by a line that is held.
func TestDueIsNotFree(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]func(b *bed, id string){
		"free": func(*bed, string) {},
		"permits": func(b *bed, _ string) {
			for n := range 2 { // two hold it, as far as an operator knows
				b.do("SET", fmt.Sprintf("{%s}:permit:%d", b.lockKey(), n+1), fmt.Sprintf("siding:x-%d:a service", n), "PX", 60000)
				b.do("HSET", "{"+b.lockKey()+"}:permits", n+1, us(time.Now()))
			}
			b.do("SET", b.lockKey(), "siding-limited", "PX", 60000)
		},
		"paused": func(b *bed, _ string) { b.setLimit(0) },
		"held": func(b *bed, id string) {
			b.do("ZADD", "siding:{"+b.queue+"}:held", us(time.Now().Add(time.Hour)), b.lockKey())
			b.do("HSET", b.taskKey(id), "siding_held", us(time.Now().Add(time.Hour)))
		},
		"stopped": func(b *bed, id string) {
			b.do("ZADD", "siding:{"+b.queue+"}:held", "+inf", b.lockKey())
			b.do("HSET", b.taskKey(id), "siding_held", "stop", "state", "archived")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupAlone(t)
			b.seed(1, 1)
			b.resource = b.seeded(0)
			b.do("DEL", b.lockKey())
			b.do("ZADD", "siding:{"+b.queue+"}:ready", us(time.Now().Add(-time.Minute)), b.lockKey())
			keep(b, "task-0")
			want := name == "free"
			shown, _ := b.show(1, 1)
			expect.That(t, shown.Unserved > 0 == want, "show: want it unserved: %t, have %+v", want, shown)
			held := b.held(b.resource)
			expect.That(t, held.Unserved > 0 == want, "list: want it unserved: %t, have %+v", want, held)
			state := b.why("task-0").State
			expect.That(t, state == inspect.StateReady == want, "why: want it ready: %t, have %s", want, state)
		})
	}
}

// A permit that was freed is not served if no server has a slot for those who wait, also while another permit is in use.
func TestFreePermitIsNotServed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.queue + ".other"
	holders := limited(2)
	holders.Asynq.Queues = map[string]int{other: 1}
	b.serve(holders)
	for n := range 2 {
		b.hold(n)
		b.enqueue(job{b.resource, n}, queue.Options{Queue: other})
		b.awaitRun(n)
	}
	busy := limited(2)
	busy.Asynq.Concurrency = 1
	b.serve(busy)
	id := b.waiting(2, 1)[0]
	b.runningNote()
	b.let(0)
	expect.Eventually(t, "a permit that nobody takes", func() bool {
		l, _ := b.show(1, 0)
		return len(l.Permits) == 1 && l.Unserved > 0
	})
	e := b.awaitWhy(id, inspect.StateReady)
	expect.That(t, strings.Contains(e.Verdict.Wrong, "no server of the queue"), "want it not served, have %+v", e.Verdict)
}
