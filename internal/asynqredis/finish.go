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

// statsFor is how long asynq keeps the counts of a day.
const statsFor = 90 * 24 * time.Hour

// finishing returns the script that ends an attempt and takes the next task by dequeue.
func finishing(release, dequeue string) *redis.Script {
	function := func(name, body string) string { return "local function " + name + "\n" + body + "\nend\n" }
	return ownScript(release + function("dequeue(KEYS, ARGV)", dequeue) +
		function("taken(asynq, with)", attemptSource+namedSource+takenSource) + finishSource)
}

// A Finish is the end of an attempt whose handler has succeeded: in one step its task is done, its
// lock released, and the next task taken for the worker that becomes free.
type Finish struct {
	attempt   *Attempt
	rdb       redis.Scripter
	name      string   // the next attempt's
	leaseEnds int64    // when its lease ends, Unix seconds
	queues    []string // from which the next task is taken, if release brings none
	begins    bool     // the waiter whose turn it is may begin in the release
	over      bool     // the attempt is, by now
	done      bool     // by this Finish
}

// Finish begins to end a. It returns nil where asynq has had its word on a already, or is not the
// known one: its own call ends a then. Until [Finish.Close] that call has to wait.
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
		f.queues, f.begins = a.fetcher.wants(a.Queue)
	}
	return f
}

// Close ends f. asynq's own call ends the attempt if [Finish.Done] says no.
func (f *Finish) Close() {
	f.attempt.finished.Store(f.over)
	f.attempt.ending.Unlock()
}

// Done reports whether the task is done, and its lock, if it had one, was not lost before.
func (f *Finish) Done() bool { return f.done }

// Next returns the name of the next attempt, and with what the waiter whose turn it is can begin
// with it, for lock.Lease.HandOver; nothing where it cannot.
func (f *Finish) Next() (name string, args []any) {
	if !f.begins || f.attempt.hook.ahead == nil {
		return "", nil
	}
	return f.name, []any{f.attempt.Queue, f.leaseEnds, f.attempt.hook.ahead.Host}
}

// Send ends the attempt and, with the KEYS and ARGV of release_ahead if there are any, releases its
// lock. It returns what release_ahead has returned. It is called once.
func (f *Finish) Send(ctx context.Context, keys []string, argv []any) (released any, err error) {
	a, queues := f.attempt, f.queues
	if !a.hook.Together() && len(queues) > 0 && queues[0] != a.Queue {
		f.queues = nil // it may be on another server
	}
	start := time.Now()
	got, err := a.hook.finish.Run(ctx, f.rdb, f.keys(keys), f.argv(argv)...).Slice()
	if err != nil {
		return nil, err //nolint:wrapcheck // it is told by package lock
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
		a.hook.ignored(ctx, a)
	}
	switch from, _ := got[2].(int64); {
	case from > 0 && int(from) <= len(f.queues):
		f.take(f.queues[from-1], got[3], start)
	case f.over && len(queues) > len(f.queues):
		f.takeElsewhere(ctx, queues[0])
	}
	return got[1], nil
}

// takeElsewhere takes the next task from a queue that may be on another server of a Cluster.
func (f *Finish) takeElsewhere(ctx context.Context, queue string) {
	h, start := f.attempt.hook, time.Now()
	keys := make([]string, 0, 7)
	for _, key := range h.dequeueKeys(queue) {
		keys = append(keys, key.(string)) //nolint:errcheck,forcetypeassert // they are made as such
	}
	if got, err := h.apart.Run(ctx, f.rdb, keys, h.dequeueArgs(queue, f.leaseEnds, f.name)...).Result(); err == nil {
		f.take(queue, got, start)
	} // else the server asks itself
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
	argv := make([]any, 0, 32+len(release)+2*len(f.queues))
	argv = append(argv, a.name, a.ID, now.Add(statsFor).Unix(), a.unique, kept, until, len(release))
	argv = append(append(argv, release...), len(f.queues))
	for _, queue := range f.queues {
		argv = append(argv, queue, waiterNames(queue))
	}
	return append(append(argv, f.leaseEnds, f.name), a.hook.aheadArgs()...)
}

// completed returns the encoded task as it is kept when it is done.
func (a *Attempt) completed(now time.Time) string {
	msg := a.encoded
	if a.waited {
		if own, err := withFailure(msg, a.failure); err == nil {
			msg = own
		}
	}
	return withNumber(msg, fieldCompletedAt, uint64(now.Unix())) //nolint:gosec // after 1970
}

// take has the server begin with the task that the script has taken.
func (f *Finish) take(queue string, got any, start time.Time) {
	t, refused, err := takenOf(got, start)
	h := f.attempt.hook
	h.refused(queue, refused)
	if err != nil || t.none {
		return
	}
	f.deliver(t, queue)
}

// Begun has the server begin with the waiter that has begun in the release. answer is what summon.lua
// has said of it.
func (f *Finish) Begun(grant *lock.Grant, answer []any) {
	t := taken{grant: grant}
	if len(answer) == 3 {
		t.msg, _ = answer[0].(string)
		t.left, _ = strconv.ParseInt(fmt.Sprint(answer[1]), 10, 64)
		ticket, _ := answer[2].(string)
		t.came, _ = strconv.ParseInt(ticket, 10, 64) // 0 costs it its place, should it be put back
	}
	f.deliver(t, f.attempt.Queue)
}

func (f *Finish) deliver(t taken, queue string) {
	fetcher := f.attempt.fetcher
	read, a := fetcher.begin(t, queue, f.name, f.leaseEnds, fetcher)
	t.msg = read
	fetcher.deliver(t, a)
}

// PutBack puts the task of an attempt that has not begun back to the head of its queue, where it
// keeps its ticket. It returns false where the attempt was over.
func (a *Attempt) PutBack(ctx context.Context, rdb redis.Scripter) (bool, error) {
	keys := []string{taskKey(a.Queue, a.ID), activeKey(a.Queue), leaseKey(a.Queue), pendingKey(a.Queue), bellKey(a.Queue)}
	back, err := putBackScript.Run(ctx, rdb, keys, a.name, a.ID, ticketOf(a.Came)).Int()
	if err != nil {
		return false, fmt.Errorf("asynqredis: put %s back: %w", a.ID, err)
	}
	a.hook.running.remove(a)
	return back == 1, nil
}
