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

// cameInRow is after how many prefetched tasks a fetcher that slept looks at all its queues
// again: while handlers are so quick that the fetcher is woken by them at once, no bell wakes it.
const cameInRow = 10

// A Fetcher is a [Hook] on the connection of one server. An idle server asks one queue
// after the other, sleeps, and asks again. The fetcher lets it find all of them empty
// once; then it holds the dequeue back until a bell rings, and answers it with a task
// of the queue whose bell it was. So the server sleeps, and asks in vain, hardly ever.
//
// The server of an asynq that is not the known one is not held back.
type Fetcher struct {
	*Hook

	bell *Doorbell

	prefetched prefetched
	idle       atomic.Bool // the server was told last that there is no task

	mu     sync.Mutex // held by the one dequeue that is looked after
	queues int        // how many the server has, 0 while that is not known
	round  []string   // those it has asked since it began a round, or since it took a task
	asleep bool       // all were empty, and none has rung since
	came   int        // how many tasks have come while it slept

	dozing atomic.Bool // asleep, and neither woken nor claimed yet
	woken  chan wake
	left   atomic.Int64 // when the server was last told that there is no task, Unix ns
}

// A wake is why a fetcher is to wake.
type wake struct {
	queue      string // that rang; "" to look for itself
	prefetched bool   // there is a prefetched task
}

// held is the time at which a server has left that is held back just now.
const held = math.MaxInt64

// Fetcher returns a hook for a server of its own that waits for bell.
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
		// Where two servers share the connection, the fetcher looks after one at a time.
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

// claim does so for the one server that is looked after, which begins another round with it. If it
// slept it sleeps on when that was the last of its queue.
func (f *Fetcher) claim(queue string) (taken, bool) {
	t, ok := f.claimFor(queue)
	if ok {
		f.came++
		f.round, f.asleep = f.round[:0], f.asleep && t.left == 0 && f.came%cameInRow != 0
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

// look dequeues from a queue on behalf of c. Once all queues were empty, and now the last task
// of the one that rang is taken, they are so again.
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

// hold waits for a bell. Where none rings the server is told that there is no task:
// it sleeps for a moment and asks again.
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
			ended = nil // claimed: word comes
		}
	}
}

// leave has the fetcher woken by no prefetched task from now on; false where it has been woken by one, or been
// woken: then word comes, or the next try succeeds.
func (f *Fetcher) leave() bool {
	f.left.Store(time.Now().UnixNano())
	if f.dozing.Load() {
		return true
	}
	f.left.Store(held)
	return false
}

// doze has the bell wake the fetcher; also again, should it have been taken for gone.
func (f *Fetcher) doze() {
	f.bell.wait(f, f.round)
	if f.prefetched.any() { // since the server asked
		f.bell.deliver(f)
	}
}

// wake wakes the fetcher with the queue that rang; false when it is awake, or its server
// has gone.
func (f *Fetcher) wake(queue string) bool {
	if time.Now().UnixNano()-f.left.Load() > int64(backWithin) || !f.dozing.CompareAndSwap(true, false) {
		return false
	}
	f.woken <- wake{queue: queue}
	return true
}
