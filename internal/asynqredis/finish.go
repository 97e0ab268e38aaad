package asynqredis

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
)

var (
	//go:embed finish.lua
	finishSource string
	//go:embed taken.lua
	takenSource string
	//go:embed put_back.lua
	putBackSource string

	putBackScript = ownScript(bellSource + putBackSource)
)

// statsFor is how long asynq keeps the number of tasks processed on a day.
const statsFor = 90 * 24 * time.Hour

// finishScript returns the script of a [Finish]. release is the text that defines release_ahead, or "";
// dequeue is the script that takes the next task.
func finishScript(release, dequeue string) *redis.Script {
	function := func(name, body string) string { return "local function " + name + "\n" + body + "\nend\n" }
	return ownScript(release + function("dequeue(KEYS, ARGV)", dequeue) +
		function("taken(asynq, with)", attemptSource+namedSource+takenSource) + finishSource)
}

// A Finish ends an attempt whose handler has succeeded. One script marks the task done, releases its
// lock, and takes the next task for the worker that becomes free.
type Finish struct {
	attempt   *Attempt
	rdb       redis.Scripter
	name      string // of the next attempt
	leaseEnds int64  // when the lease of the next attempt ends, Unix seconds
	next      wanted // where the next attempt's task may come from
	over      bool   // the attempt is over
	done      bool   // this Finish has ended it
}

// Finish begins to end a. Until [Finish.Close] is called, asynq's own call for a has to wait. Finish
// returns nil if only asynq's call can end a: asynq has made it, asynq is not the known one, or
// [Hook.Prefetch] was not called.
func (a *Attempt) Finish() *Finish {
	h := a.hook
	if h == nil || h.prefetch.rdb == nil || h.Mismatched() || !a.ending.TryLock() {
		return nil
	}
	if a.ended || a.finished.Load() {
		a.ending.Unlock()
		return nil
	}
	f := &Finish{attempt: a, rdb: h.prefetch.rdb, name: h.attemptName(), leaseEnds: time.Now().Add(leaseFor).Unix()}
	if a.fetcher != nil {
		f.next = a.fetcher.wants(a.Queue)
	}
	return f
}

// Close lets asynq's own call go on. That call ends the attempt, unless f has ended it or found it over.
func (f *Finish) Close() {
	f.attempt.finished.Store(f.over)
	f.attempt.ending.Unlock()
}

// Done reports whether the task is done and its lock, if it had one, was not lost before.
func (f *Finish) Done() bool { return f.done }

// Next returns the arguments of lock.Lease.HandOver with which the waiter whose turn it is begins: the
// name of its attempt, and what summon.lua wants. It returns "" if no waiter may begin.
func (f *Finish) Next() (name string, args []any) {
	if !f.next.waiter || f.attempt.hook.ahead == nil {
		return "", nil
	}
	return f.name, []any{f.attempt.Queue, f.leaseEnds, f.attempt.hook.ahead.Host}
}

// Send ends the attempt and takes the next task. With keys and argv, which are those of
// release_ahead, it also releases the lock, and returns what release_ahead returns. Call it once.
func (f *Finish) Send(ctx context.Context, keys []string, argv []any) (released any, err error) {
	start := time.Now()
	got, err := f.attempt.hook.finish.Run(ctx, f.rdb, f.keys(keys), f.argv(argv)...).Slice()
	if err != nil {
		return nil, err // the caller says what it is of
	}
	if len(got) != 4 {
		return nil, fmt.Errorf("%w: %v", errMessage, got)
	}
	f.over = got[0] != "lost"
	if answer, ok := got[1].([]any); ok && len(answer) > 0 {
		f.done = f.over && answer[0] != int64(0)
	} else {
		f.done = f.over
	}
	if got[0] == over {
		f.attempt.hook.ignored(ctx, f.attempt)
	}
	switch from, _ := got[2].(int64); {
	case from > 0 && int(from) <= len(f.next.queues):
		f.take(f.next.queues[from-1], got[3], start)
	case f.over && f.next.elsewhere != "":
		f.takeElsewhere(ctx, f.next.elsewhere)
	}
	return got[1], nil
}

// takeElsewhere takes the next task by a call of its own: the queue may be on another server of a
// Cluster.
func (f *Finish) takeElsewhere(ctx context.Context, queue string) {
	h, start := f.attempt.hook, time.Now()
	keys := make([]string, 0, 7)
	for _, key := range h.dequeueKeys(queue) {
		keys = append(keys, key.(string)) //nolint:errcheck,forcetypeassert // they are made as such
	}
	if got, err := h.apart.Run(ctx, f.rdb, keys, h.dequeueArgs(queue, f.leaseEnds, f.name)...).Result(); err == nil {
		f.take(queue, got, start)
	} // else the server asks for a task itself
}

func (f *Finish) keys(release []string) []string {
	queue, day := f.attempt.Queue, time.Now().UTC().Format(time.DateOnly)
	own := []string{
		taskKey(queue, f.attempt.ID), activeKey(queue), leaseKey(queue), prefix(queue) + "completed",
		prefix(queue) + "processed:" + day, prefix(queue) + "processed",
	}
	return append(own, release...)
}

func (f *Finish) argv(release []any) []any {
	const longest = 1 << 40 // seconds
	a, now := f.attempt, time.Now()
	kept, until := "", int64(0)
	if a.retention > 0 {
		kept, until = a.completed(now), now.Unix()+int64(min(a.retention, longest))
	}
	argv := make([]any, 0, 32+len(release)+2*len(f.next.queues))
	argv = append(argv, a.name, a.ID, now.Add(statsFor).Unix(), a.unique, kept, until, len(release))
	argv = append(append(argv, release...), len(f.next.queues))
	for _, queue := range f.next.queues {
		argv = append(argv, queue, waiterNames(queue))
	}
	return append(append(argv, f.leaseEnds, f.name), a.hook.aheadArgs()...)
}

// completed returns the encoded task as asynq keeps it once it is done.
func (a *Attempt) completed(now time.Time) string {
	msg := a.encoded
	if a.waited {
		if own, err := withFailure(msg, a.failure); err == nil {
			msg = own
		}
	}
	return withNumber(msg, fieldCompletedAt, uint64(now.Unix())) //nolint:gosec // after 1970
}

// take hands the server the task that a script has taken from queue. got is what dequeue.lua returned.
func (f *Finish) take(queue string, got any, start time.Time) {
	t, refused, err := takenOf(got, start)
	h := f.attempt.hook
	h.refused(queue, refused)
	if err != nil || t.none {
		return
	}
	f.deliver(t, queue)
}

// Begun hands the server the waiter that has begun when the lock was released. grant is the waiter's
// lock, and answer is what summon.lua returned.
func (f *Finish) Begun(grant *lock.Grant, answer []any) {
	t := taken{grant: grant}
	if len(answer) == 3 {
		t.msg, _ = answer[0].(string)
		t.left, _ = strconv.ParseInt(fmt.Sprint(answer[1]), 10, 64)
		ticket, _ := answer[2].(string)
		t.came, _ = strconv.ParseInt(ticket, 10, 64) // with 0 it loses its place if it is put back
	}
	f.deliver(t, f.attempt.Queue)
}

func (f *Finish) deliver(t taken, queue string) {
	fetcher := f.attempt.fetcher
	read, a := f.attempt.hook.begin(t, queue, f.name, f.leaseEnds, fetcher)
	t.msg = read
	fetcher.deliver(t, a)
}

// PutBack puts the task of an attempt that no dequeue has claimed back to the head of its queue. The
// task keeps its ticket. PutBack returns false if the attempt was over.
func (a *Attempt) PutBack(ctx context.Context, rdb redis.Scripter) (bool, error) {
	keys := []string{taskKey(a.Queue, a.ID), activeKey(a.Queue), leaseKey(a.Queue), pendingKey(a.Queue), bellKey(a.Queue)}
	back, err := putBackScript.Run(ctx, rdb, keys, a.name, a.ID, ticketOf(a.Came)).Int()
	if err != nil {
		return false, fmt.Errorf("asynqredis: put %s back: %w", a.ID, err)
	}
	a.hook.running.remove(a)
	return back == 1, nil
}
