package asynqredis

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// holdFor is how long a dequeue is held back at most. asynq has fixed the end of the
// task's lease, in 30 s, before it, and a hold takes that much away from it. It is also
// what a server that ends without [Doorbell.Close] may have to wait for.
const holdFor = time.Second

// backWithin is how soon a server that lives asks again: asynq sleeps for some ms.
const backWithin = 200 * time.Millisecond

// claimsInRow is after how many prefetched tasks a fetcher asks all its queues again, although it
// took them for empty. Quick handlers may wake it with such tasks so soon that no bell wakes it.
const claimsInRow = 10

// A Fetcher is a [Hook] on the connection of one server. An idle server asks one queue after the
// other, sleeps, and asks again. The fetcher lets the server find all queues empty once. Then it
// holds the dequeue back until a bell rings, and answers with a task of the queue whose bell it was.
// So the server hardly ever sleeps, or asks in vain. The fetcher also keeps the tasks that were
// prefetched for its server, until a dequeue claims them.
//
// A fetcher does not hold back a server of an asynq that is not the known one.
type Fetcher struct {
	*Hook

	bell *Doorbell

	prefetched prefetched
	idle       atomic.Bool // its last answer to the server was that there is no task

	mu     sync.Mutex // held by the one dequeue that is looked after
	queues int        // how many the server has, 0 while that is not known
	round  []string   // those it has asked since it began a round, or since it took a task
	asleep bool       // all were empty, and none has rung since
	claims int        // how many prefetched tasks it has claimed

	dozing atomic.Bool // asleep, and not woken yet
	woken  chan wake
	left   atomic.Int64 // when the server was last told that there is no task, Unix ns; or held
}

// A wake says why a fetcher wakes.
type wake struct {
	queue      string // the queue that rang; "" has the fetcher look for itself
	prefetched bool   // there is a prefetched task
}

// held is the value of left while a dequeue is held back.
const held = math.MaxInt64

// Fetcher returns a hook for the connection of one server, which waits for bell.
func (h *Hook) Fetcher(bell *Doorbell) *Fetcher {
	f := &Fetcher{Hook: h, bell: bell, woken: make(chan wake, 1)}
	h.prefetch.mu.Lock()
	defer h.prefetch.mu.Unlock()
	h.prefetch.fetchers = append(h.prefetch.fetchers, f)
	return f
}

// ProcessHook sends asynq's calls on, see [Hook.ProcessHook], and holds back dequeues.
func (f *Fetcher) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c := parse(cmd)
		if c.op != opDequeue || f.Mismatched() {
			return f.process(ctx, next, cmd, c)
		}
		if f.gate.held(ctx) {
			return answer(cmd, "", redis.Nil)
		}
		// Two servers may share the connection: the fetcher looks after one at a time.
		if !f.mu.TryLock() {
			if t, ok := f.claimFor(c.queue); ok {
				return answer(cmd, t.msg, nil)
			}
			return f.process(ctx, next, cmd, c)
		}
		defer f.mu.Unlock()
		t, err := f.dequeueOrWait(ctx, next, c)
		f.idle.Store(errors.Is(err, redis.Nil))
		return answer(cmd, t.msg, err)
	}
}

// claimFor takes a prefetched task for a server that asks for tasks of queue.
func (f *Fetcher) claimFor(queue string) (t taken, ok bool) {
	if !f.gives(queue) {
		return t, false
	}
	return f.prefetched.claim()
}

// claim takes a prefetched task for the server that the fetcher looks after. The server then begins
// another round. A fetcher that was asleep stays so if the task was the last of its queue.
func (f *Fetcher) claim(queue string) (taken, bool) {
	t, ok := f.claimFor(queue)
	if ok {
		f.claims++
		f.round, f.asleep = f.round[:0], f.asleep && t.left == 0 && f.claims%claimsInRow != 0
	}
	return t, ok
}

func (f *Fetcher) dequeueOrWait(ctx context.Context, next redis.ProcessHook, c call) (taken, error) {
	if t, ok := f.claim(c.queue); ok {
		return t, nil
	}
	if slices.Contains(f.round, c.queue) {
		f.queues = max(f.queues, len(f.round))
		f.round = f.round[:0]
	}
	f.round = append(f.round, c.queue)
	if !f.asleep {
		if t, err := f.look(ctx, next, c, c.queue); !empty(t, err) {
			return t, err
		}
		f.asleep = f.queues > 0 && len(f.round) == f.queues
	}
	if !f.asleep || len(f.round) < f.queues {
		return taken{}, redis.Nil // the last of a round is held back for all
	}
	return f.hold(ctx, next, c)
}

// look dequeues from a queue on behalf of c. If all queues were empty before, and it takes the last
// task of the one that rang, all are empty again.
func (f *Fetcher) look(ctx context.Context, next redis.ProcessHook, c call, queue string) (taken, error) {
	t, err := f.take(ctx, next, queue, c.argv[0], f)
	if !empty(t, err) {
		f.round = f.round[:0]
		f.asleep = err == nil && t.left == 0 && (f.asleep || f.queues == 1)
	}
	return t, err
}

// empty reports whether a queue was found empty.
func empty(t taken, err error) bool { return errors.Is(err, redis.Nil) && t.left == 0 }

// hold waits for a bell, or for a prefetched task. If neither comes, the server is told that there is
// no task. It then sleeps for a moment and asks again.
func (f *Fetcher) hold(ctx context.Context, next redis.ProcessHook, c call) (taken, error) {
	f.doze()
	defer func() { f.left.Store(time.Now().UnixNano()) }()
	timer := time.NewTimer(holdFor)
	defer timer.Stop()
	ended := ctx.Done()
	for {
		select {
		case w := <-f.woken:
			switch {
			case w.prefetched:
				if t, ok := f.claim(c.queue); ok {
					return t, nil
				}
			case w.queue == "":
				f.round, f.asleep = f.round[:0], false
				return taken{}, redis.Nil
			default:
				if t, err := f.look(ctx, next, c, w.queue); !empty(t, err) {
					return t, err
				} // else somebody else has it
			}
			f.doze()
		case <-timer.C:
			if !f.leave() || f.bell.deaf(f.round) && f.wake("") {
				timer.Reset(backWithin)
				continue
			}
			return taken{}, redis.Nil
		case <-ended:
			if f.leave() {
				return taken{}, redis.Nil
			}
			ended = nil // f.woken says what comes
		}
	}
}

// leave has no prefetched task wake the fetcher from now on. It returns false if the fetcher has been
// woken already: then f.woken says why, or the next try succeeds.
func (f *Fetcher) leave() bool {
	f.left.Store(time.Now().UnixNano())
	if f.dozing.Load() {
		return true
	}
	f.left.Store(held)
	return false
}

// doze has the bell wake the fetcher, even if the bell took its server for gone before.
func (f *Fetcher) doze() {
	f.bell.wait(f, f.round)
	if f.prefetched.any() { // one may have come since the server asked
		f.bell.deliver(f)
	}
}

// wake wakes the fetcher with the queue that rang. It returns false if the fetcher is awake, or if its
// server has gone.
func (f *Fetcher) wake(queue string) bool {
	if time.Now().UnixNano()-f.left.Load() > int64(backWithin) || !f.dozing.CompareAndSwap(true, false) {
		return false
	}
	f.woken <- wake{queue: queue}
	return true
}
