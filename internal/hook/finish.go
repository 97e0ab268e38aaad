package hook

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/fetch"
	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/store"
)

var (
	//go:embed finish.lua
	finishSource string
	//go:embed taken.lua
	takenSource string
)

// statsFor is how long asynq keeps the number of tasks processed on a day.
const statsFor = 90 * 24 * time.Hour

// finishScript returns the script of a [Finish]. release is the text that defines release_lock, or
// ""; dequeue is the script that takes the next task.
func finishScript(release, dequeue string) *redis.Script {
	function := func(name, body string) string { return "local function " + name + "\n" + body + "\nend\n" }
	return asynqredis.OwnScript(release + function("dequeue(KEYS, ARGV)", dequeue) +
		function("taken(asynq, with)", asynqredis.AttemptLua+asynqredis.NamedLua+takenSource) + finishSource)
}

// A Finish ends an attempt whose handler has succeeded. One script marks the task done, releases its
// lock, and takes the next task for the worker that becomes free.
type Finish struct {
	attempt   *Attempt
	name      string       // of the next attempt
	leaseEnds int64        // when the lease of the next attempt ends, Unix seconds
	next      fetch.Wanted // where the next attempt's task may come from
	over      bool         // the attempt is over
	done      bool         // this Finish has ended it
}

// Prefetch lets attempts end by [Attempt.Finish]. The calls go to rdb, which is another client than the
// hook's. Call Prefetch before the servers start.
func (h *Hook) Prefetch(rdb redis.Scripter) { h.rdb = rdb }

// Finish starts to end a. Until [Finish.Close] is called, asynq's own call for a has to wait.
// Finish returns nil if only asynq's call can end a. That is so if asynq has made its call, if
// asynq is not the known one, or without a [Hook.Prefetch].
func (a *Attempt) Finish() *Finish {
	s := a.server
	if s.rdb == nil || s.Mismatched() || !a.ending.TryLock() {
		return nil
	}
	if a.ended || a.finished.Load() {
		a.ending.Unlock()
		return nil
	}
	f := &Finish{attempt: a, name: s.attemptName(), leaseEnds: time.Now().Add(asynqredis.LeaseFor).Unix()}
	if !s.gate.isShut() {
		f.next = s.fetcher.Wants(a.Queue, s.locking != nil)
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

// Next returns the arguments of lease.Lease.HandOffBy with which the next waiter starts. They are
// the name of its attempt, and the arguments of wake_next.lua. The name is "" if no waiter may
// start.
func (f *Finish) Next() (name string, args []any) {
	locking := f.attempt.server.locking
	if !f.next.Waiter || locking == nil {
		return "", nil
	}
	return f.name, []any{f.attempt.Queue, f.leaseEnds, locking.Host}
}

// Send ends the attempt and takes the next task. With keys and argv, which are those of
// release_lock, it also releases the lock, and returns what release_lock returns. Call it once.
func (f *Finish) Send(ctx context.Context, keys []string, argv []any) (released any, err error) {
	s, start := f.attempt.server, time.Now()
	got, err := s.finish.Run(ctx, s.rdb, f.keys(keys), f.argv(argv)...).Slice()
	if err != nil {
		return nil, err // the caller adds the task
	}
	if len(got) != 4 {
		return nil, fmt.Errorf("%w: want 4 values, have %d", asynqredis.ErrEncoding, len(got)) // without them: a token is secret
	}
	release := redisreply.List(got, 1)
	f.over = got[0] != "lost"
	f.done = f.over && (len(release) == 0 || release[0] != int64(0))
	if got[0] == over {
		s.ignored(ctx, f.attempt)
	}
	switch from := int(redisreply.Int(got, 2)); {
	case from > 0 && from <= len(f.next.Queues):
		f.take(f.next.Queues[from-1], got[3], start)
	case f.over && f.next.Elsewhere != "":
		f.takeElsewhere(ctx, f.next.Elsewhere)
	}
	return got[1], nil
}

// takeElsewhere takes the next task by a separate call, as the queue may be on another server of a
// Cluster.
func (f *Finish) takeElsewhere(ctx context.Context, queue string) {
	s, start := f.attempt.server, time.Now()
	keys := make([]string, 0, 7)
	for _, key := range s.dequeueKeys(queue) {
		keys = append(keys, key.(string)) //nolint:errcheck,forcetypeassert // dequeueKeys makes strings
	}
	if got, err := s.apart.Run(ctx, s.rdb, keys, s.dequeueArgs(queue, f.leaseEnds, f.name)...).Result(); err == nil {
		f.take(queue, got, start)
	} // else the next dequeue of the server asks for a task
}

func (f *Finish) keys(release []string) []string {
	queue, day := f.attempt.Queue, time.Now().UTC().Format(time.DateOnly)
	own := []string{
		f.attempt.key, asynqredis.ActiveKey(queue), asynqredis.LeaseKey(queue), asynqredis.Prefix(queue) + "completed",
		asynqredis.Prefix(queue) + "processed:" + day, asynqredis.Prefix(queue) + "processed",
	}
	return append(own, release...)
}

func (f *Finish) argv(release []any) []any {
	const longest = 1 << 40 // seconds
	a, now := f.attempt, time.Now()
	completed, until := "", int64(0)
	if a.message.Retention > 0 {
		completed, until = a.message.Completed(a.encoded, now), now.Unix()+int64(min(a.message.Retention, longest))
	}
	argv := make([]any, 0, 32+len(release)+2*len(f.next.Queues))
	argv = append(argv, a.Name, a.ID, now.Add(statsFor).Unix(), a.message.Unique, completed, until, len(release))
	argv = append(append(argv, release...), len(f.next.Queues))
	for _, queue := range f.next.Queues {
		argv = append(argv, queue, asynqredis.WaiterNames(queue))
	}
	return append(append(argv, f.leaseEnds, f.name), a.server.lockingArgs()...)
}

// take hands the server the task that a script has taken from queue. got is what dequeue.lua returned.
func (f *Finish) take(queue string, got any, start time.Time) {
	if t, err := f.attempt.server.takenOf(got, queue, start); err == nil && !t.none {
		f.deliver(t, queue)
	}
}

// Started hands the server the waiter that has started when the lock was released. grant is the waiter's
// lock, and answer is what wake_next.lua returned.
func (f *Finish) Started(grant *store.Grant, answer []any) {
	t := taken{grant: grant, came: redisreply.Int(answer, 2)} // with 0 the task loses its position if it is requeued
	t.Message, t.Left = redisreply.Text(answer, 0), redisreply.Int(answer, 1)
	f.deliver(t, f.attempt.Queue)
}

func (f *Finish) deliver(t taken, queue string) {
	s := f.attempt.server
	if next := s.begin(t, queue, f.name, f.leaseEnds); next.Attempt != nil { // else asynq's own recovery deals with the task
		s.fetcher.Deliver(next)
	}
}

// Requeue requeues the task of an attempt that no dequeue took; see [asynqredis.Attempt.Requeue].
func (a *Attempt) Requeue(ctx context.Context, rdb redis.Scripter) (bool, error) {
	moved, err := a.Attempt.Requeue(ctx, rdb)
	if err == nil {
		a.server.running.remove(a)
	}
	return moved, err //nolint:wrapcheck // the error names the task
}
