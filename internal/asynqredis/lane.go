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

// seatsInRow is after how many tasks that came by a [Seat] a lane looks at all its queues
// again: while handlers are so quick that the lane is claimed at once, no bell wakes it.
const seatsInRow = 10

// A Lane is a [Hook] on the connection of one server. An idle server asks one queue
// after the other, sleeps, and asks again. The lane lets it find all of them empty
// once; then it holds the dequeue back until a bell rings, and answers it with a task
// of the queue whose bell it was. So the server sleeps, and asks in vain, hardly ever.
//
// The server of an asynq that is not the known one is not held back.
type Lane struct {
	*Hook

	bell *Doorbell

	mu     sync.Mutex // held by the one dequeue that is looked after
	queues int        // how many the server has, 0 while that is not known
	round  []string   // those it has asked since it began a round, or since it took a task
	asleep bool       // all were empty, and none has rung since
	seated int        // how many tasks have come by a seat

	dozing    atomic.Bool // asleep, and neither woken nor claimed yet
	woken     chan wake
	left      atomic.Int64 // when the server was last told that there is no task, Unix ns
	leaseEnds atomic.Int64 // when that of a task ends which it takes while it is held back, Unix seconds
}

// A wake is why a lane is to wake.
type wake struct {
	queue string // that rang; "" to look for itself
	task  *taken // that has come to it
	vain  bool   // or none has
}

// held is the time at which a server has left that is held back just now.
const held = math.MaxInt64

// Lane returns a hook for a server of its own that waits for bell.
func (h *Hook) Lane(bell *Doorbell) *Lane {
	return &Lane{Hook: h, bell: bell, woken: make(chan wake, 1)}
}

// ProcessHook sends asynq's calls on, see [Hook.ProcessHook], and holds back dequeues.
func (l *Lane) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c := parse(cmd)
		// Where two servers share the connection, the lane looks after one at a time.
		if c.op != opDequeue || l.Mismatched() || !l.mu.TryLock() {
			return l.process(ctx, next, cmd, c)
		}
		defer l.mu.Unlock()
		if l.gate.held(ctx) {
			return answer(cmd, "", redis.Nil)
		}
		t, err := l.dequeueOrWait(ctx, next, c)
		return answer(cmd, t.msg, err)
	}
}

func (l *Lane) dequeueOrWait(ctx context.Context, next redis.ProcessHook, c call) (taken, error) {
	if slices.Contains(l.round, c.queue) {
		l.queues = max(l.queues, len(l.round))
		l.round = l.round[:0]
	}
	l.round = append(l.round, c.queue)
	if !l.asleep {
		if t, err := l.look(ctx, next, c, c.queue); !empty(t, err) {
			return t, err
		}
		l.asleep = l.queues > 0 && len(l.round) == l.queues
	}
	if !l.asleep || len(l.round) < l.queues {
		return taken{}, redis.Nil // the last of a round is held back for all
	}
	return l.hold(ctx, next, c)
}

// look dequeues from a queue on behalf of c. Once all queues were empty, and now the last task
// of the one that rang is taken, they are so again.
func (l *Lane) look(ctx context.Context, next redis.ProcessHook, c call, queue string) (taken, error) {
	t, err := l.take(ctx, next, queue, c.argv[0])
	if !empty(t, err) {
		l.round = l.round[:0]
		l.asleep = err == nil && t.left == 0 && (l.asleep || l.queues == 1)
	}
	return t, err
}

// empty reports whether a queue was found empty.
func empty(t taken, err error) bool { return errors.Is(err, redis.Nil) && t.left == 0 }

// hold waits for a bell. Where none rings the server is told that there is no task:
// it sleeps for a moment and asks again.
func (l *Lane) hold(ctx context.Context, next redis.ProcessHook, c call) (taken, error) {
	leaseEnds, _ := c.argv[0].(int64)
	l.leaseEnds.Store(leaseEnds)
	l.doze()
	defer func() { l.left.Store(time.Now().UnixNano()) }()
	timer := time.NewTimer(holdFor)
	defer timer.Stop()
	ended := ctx.Done()
	for {
		select {
		case w := <-l.woken:
			switch {
			case w.task != nil:
				l.seated++
				l.round, l.asleep = l.round[:0], w.task.left == 0 && l.seated%seatsInRow != 0
				return *w.task, nil
			case w.vain: // there was no task for it
			case w.queue == "":
				l.round, l.asleep = l.round[:0], false
				return taken{}, redis.Nil
			default:
				if t, err := l.look(ctx, next, c, w.queue); !empty(t, err) {
					return t, err
				} // else somebody else has it
			}
			l.doze()
		case <-timer.C:
			if !l.leave() || l.bell.deaf(l.round) && l.wake("") {
				timer.Reset(backWithin)
				continue
			}
			return taken{}, redis.Nil
		case <-ended:
			if l.leave() {
				return taken{}, redis.Nil
			}
			ended = nil // claimed: word comes
		}
	}
}

// leave has the lane claimed by no seat from now on; false where it is claimed, or has been
// woken: then word comes, or the next try succeeds.
func (l *Lane) leave() bool {
	l.left.Store(time.Now().UnixNano())
	if l.dozing.Load() {
		return true
	}
	l.left.Store(held)
	return false
}

// doze has the bell wake the lane; also again, should it have been taken for gone.
func (l *Lane) doze() { l.bell.wait(l, l.round) }

// wake wakes the lane with the queue that rang; false when it is awake, or its server
// has gone.
func (l *Lane) wake(queue string) bool {
	if time.Now().UnixNano()-l.left.Load() > int64(backWithin) || !l.dozing.CompareAndSwap(true, false) {
		return false
	}
	l.woken <- wake{queue: queue}
	return true
}
