package queue_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// acquires counts the guard's calls for locks. One that finds its script unknown is made
// again, and counted once.
type acquires struct{ atomic.Int32 }

func (n *acquires) tap(_ context.Context, cmd redis.Cmder, send func() error) error {
	err := send()
	if isAcquire(cmd) && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		n.Add(1)
	}
	return err
}

// guarded is a task as any program sends it that names a resource.
func guarded(kind, resource string, payload []byte) *asynq.Task {
	return asynq.NewTaskWithHeaders(kind, payload, map[string]string{queue.HeaderResource: resource})
}

func (b *bundle) enqueueTask(t *testing.T, task *asynq.Task, opts ...asynq.Option) string {
	t.Helper()
	client := asynq.NewClientFromRedisClient(b.rdb)
	info, err := client.EnqueueContext(t.Context(), task, append(opts, asynq.Queue(b.queue))...)
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// lockOf returns what is at the key of a resource's lock, "" for nothing.
func (b *bundle) lockOf(t *testing.T, resource string) string {
	t.Helper()
	return b.rdb.Get(t.Context(), "lock:"+resource).Val()
}

// soonFree wants a lock released, long before its TTL.
func (b *bundle) soonFree(t *testing.T, resource string) {
	t.Helper()
	start := time.Now()
	poll.Eventually(t, "a free lock", func() bool { return b.lockOf(t, resource) == "" })
	if took := time.Since(start); took > prompt {
		t.Errorf("want the lock released, have it free after %v", took)
	}
}

// On a single Redis a free lock comes with its task, whatever its name: the guard asks
// for none.
func TestLockComesWithTheTask(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kind     string
		resource string // "" for one of the bundle's
		fill     int    // bytes that it has in all
		asked    bool
	}{
		"short":       {resource: "r"},
		"127 bytes":   {fill: 127},
		"128 bytes":   {fill: 128},
		"512 bytes":   {fill: 512},
		"unicode":     {resource: "größe/尺寸 \"1\"\\'"},
		"kind of 100": {kind: "test:" + strings.Repeat("k", 95)},
		"kind of 128": {kind: "test:" + strings.Repeat("k", 123), asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := setupAlone(t)
			var asked acquires
			fences := make(chan int64, 1)
			p := &plain{onLocks: asked.tap}
			p.start(t, b, func(ctx context.Context, _ *asynq.Task) error {
				fences <- lock.Fence(ctx, queue.InfoFrom(ctx).Resource)
				return nil
			})
			t.Cleanup(func() { p.stop(t) })
			kind, resource := tt.kind, tt.resource
			if kind == "" {
				kind = "test:job"
			}
			if resource == "" {
				resource = b.resource + strings.Repeat("x", max(0, tt.fill-len(b.resource)))
			}
			b.enqueueTask(t, guarded(kind, resource, nil), asynq.TaskID("1"))
			if fence := within(t, patience, "a run", fences); fence == 0 {
				t.Error("want a fence, have none")
			}
			if have := asked.Load() > 0; have != tt.asked {
				t.Errorf("want a lock asked for: %v, have %v", tt.asked, have)
			}
			b.soonFree(t, resource)
		})
	}
}

// If the header does not name the resource, or the dequeue cannot tell who is next, the guard asks for
// the lock. If a task holds the lock, the dequeue parks the task and nobody asks.
func TestLockIsAskedFor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		put   func(t *testing.T, b *bundle)
		runs  bool
		quiet bool // nobody asks
	}{
		"no header": {runs: true},
		"held":      {quiet: true, put: func(t *testing.T, b *bundle) { t.Helper(); b.take(t, lock.Config{}) }},
		"another program's": {put: func(t *testing.T, b *bundle) {
			t.Helper()
			b.rdb.Set(t.Context(), b.lockKey(), "5c8d9a1f00", time.Minute)
		}},
		"reserved for another": {quiet: true, put: func(t *testing.T, b *bundle) {
			t.Helper()
			b.rdb.Set(t.Context(), b.lockKey(), "siding-reserved:n:1:3:abc:d", time.Minute)
		}},
		"somebody in the wait queue": {runs: true, put: func(t *testing.T, b *bundle) { // who has gone
			t.Helper()
			b.rdb.ZAdd(t.Context(), "{"+b.lockKey()+"}:queue", redis.Z{Score: 1, Member: "3:abc:d"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st := setupFast(t), newStage(t)
			var asked acquires
			(&plain{onLocks: asked.tap, guardConfig: queue.GuardConfig{Resources: resources()}}).serve(t, b, st)
			if tt.put == nil {
				b.awaitGone(t, b.enqueuePlain(t, b.job(1)))
			} else {
				tt.put(t, b)
				id := b.enqueue(t, b.job(1))
				if tt.runs {
					b.awaitGone(t, id)
				} else {
					b.awaitState(t, id, asynq.TaskStateRetry)
					b.wantWaiters(t, id)
				}
			}
			if have := asked.Load() == 0; have != tt.quiet {
				t.Errorf("want no lock asked for: %v, have %v", tt.quiet, have)
			}
		})
	}
}

// A dequeue parks a waiter. Once the waiter was woken, its dequeue brings the lock that was
// reserved for it.
func TestWokenWaiterGetsItsLockWithTheTask(t *testing.T) {
	t.Parallel()
	b, st, j := setupFast(t), newStage(t), &journal{}
	var asked acquires
	holder := b.holdElsewhere(t, st, longTimeout)
	(&plain{onLocks: asked.tap, guardConfig: queue.GuardConfig{Observe: j.observe}}).serve(t, b, st)
	ids := b.park(t, 1, 2, 3)
	holder.open()
	b.awaitGone(t, ids...)
	st.wantOrder(0, 1, 2, 3)
	if have := asked.Load(); have != 0 {
		t.Errorf("want no call for the lock, not even when they were refused, have %d", have)
	}
	for _, id := range ids {
		if e := j.await(t, queue.EventAcquired, id, 1); e.HandOff <= 0 {
			t.Errorf("%s: want a hand-off, have %+v", id, e)
		}
	}
}

// A payload may look like a header. The lock that the payload names is released at once, and the
// task's own is taken.
func TestPayloadThatImitatesAHeader(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.resource + ":other"
	entered, leave := make(chan int64), make(chan struct{})
	p := &plain{}
	p.start(t, b, func(ctx context.Context, _ *asynq.Task) error {
		entered <- lock.Fence(ctx, queue.InfoFrom(ctx).Resource)
		<-leave
		return nil
	})
	t.Cleanup(func() { p.stop(t) })
	imitation := "\x0a\x0fsiding-resource\x12" + string(rune(len(other))) + other
	b.enqueueTask(t, guarded("test:job", b.resource, []byte(imitation)))
	if fence := within(t, patience, "a run", entered); fence == 0 {
		t.Error("want a fence, have none")
	}
	b.soonFree(t, other)
	if v := b.value(t); !strings.HasPrefix(v, "siding:") {
		t.Errorf("want its own lock held, have %q", v)
	}
	close(leave)
	b.soonFree(t, b.resource)
}

// A header that is no resource takes no lock; a character that only the guard refuses takes one
// that is released.
func TestBadResourceLeavesNoLock(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	(&plain{}).serve(t, b, st)
	for name, resource := range map[string]string{
		"empty":     "",
		"braces":    b.resource + "{1}",
		"control":   b.resource + "\n1",
		"late":      b.resource + "\u0085",
		"oversized": b.resource + strings.Repeat("x", store.MaxResource),
	} {
		t.Log(name)
		b.awaitState(t, b.enqueueTask(t, guarded("test:job", resource, nil)), asynq.TaskStateArchived)
		b.soonFree(t, resource)
	}
	if have := st.order(); len(have) != 0 {
		t.Errorf("want no run, have %v", have)
	}
}

// A lock that came with a task whose handler never asks for it is released.
func TestUnusedLockIsGivenBack(t *testing.T) {
	t.Parallel()
	t.Run("its deadline has passed", func(t *testing.T) {
		t.Parallel()
		b, st := setup(t), newStage(t)
		(&plain{}).serve(t, b, st)
		if err := b.inspector.PauseQueue(b.queue); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(time.Second)
		id := b.enqueue(t, b.job(1), queue.Options{Deadline: deadline, Retries: queue.NoRetries})
		poll.Eventually(t, "the deadline", func() bool { return time.Since(deadline) > time.Second })
		if err := b.inspector.UnpauseQueue(b.queue); err != nil {
			t.Fatal(err)
		}
		b.awaitState(t, id, asynq.TaskStateArchived)
		b.soonFree(t, b.resource)
		if have := st.order(); len(have) != 0 {
			t.Errorf("want no run, have %v", have)
		}
	})
	t.Run("without Middleware", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p := &plain{unguarded: true}
		p.start(t, b, func(context.Context, *asynq.Task) error { return nil })
		t.Cleanup(func() { p.stop(t) })
		id := b.enqueue(t, b.job(1))
		poll.Eventually(t, "its end", func() bool { s := b.state(id); return s == 0 || s == asynq.TaskStateRetry })
		b.soonFree(t, b.resource)
	})
	t.Run("it cannot be read", func(t *testing.T) {
		t.Parallel()
		b, st := setupFast(t), newStage(t) // only there a dequeue takes the lock
		header := "\x0a\x0fsiding-resource\x12" + string(rune(len(b.resource))) + b.resource
		msg := "\x0a\x08test:job" + "\x07\x00" + "z" + string(rune(len(header))) + header
		if err := errors.Join(
			b.rdb.HSet(t.Context(), b.taskKey("1"), "msg", msg, "state", "pending").Err(),
			b.rdb.LPush(t.Context(), b.key("pending"), "1").Err(),
		); err != nil {
			t.Fatal(err)
		}
		(&plain{}).serve(t, b, st)
		poll.Eventually(t, "its dequeue", func() bool { return b.rdb.LLen(t.Context(), b.key("pending")).Val() == 0 })
		poll.Eventually(t, "its lock", func() bool { return b.rdb.Exists(t.Context(), "{"+b.lockKey()+"}:fence").Val() == 1 })
		b.soonFree(t, b.resource)
	})
}

// A zombie that comes to the guard when its context has ended does not run. The lock that came with
// its task is released.
func TestZombieLeavesTheLockOfItsTask(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	returned := make(chan struct{}, 100)
	p := &plain{outermost: func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			defer func() { returned <- struct{}{} }()
			<-ctx.Done()
			return next.ProcessTask(ctx, task)
		})
	}}
	p.serve(t, b, st)
	id := b.enqueue(t, b.job(1), queue.Options{Timeout: time.Second, Retries: queue.NoRetries})
	within(t, patience, "the zombie's end", returned)
	poll.Eventually(t, "its time to count, or another attempt", func() bool { return b.state(id) != asynq.TaskStateActive })
	b.soonFree(t, b.resource)
	if have := st.order(); len(have) != 0 {
		t.Errorf("want no run, have %v", have)
	}
}

// An answer to a dequeue that comes late brings a lock that must not be trusted. The guard asks for
// another.
func TestLockThatComesTooLate(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	cfg := lock.Config{TTL: time.Second}
	var asked acquires
	var late atomic.Bool
	p := &plain{
		guardConfig: queue.GuardConfig{Lock: cfg},
		onLocks:     asked.tap,
		onTasks: func(ctx context.Context, cmd redis.Cmder, send func() error) error {
			err := send()
			if isDequeue(cmd) && err == nil && !late.Swap(true) {
				timer := time.NewTimer(cfg.TTL)
				defer timer.Stop()
				select {
				case <-timer.C:
				case <-ctx.Done():
				}
			}
			return err
		},
	}
	p.serve(t, b, st)
	b.awaitGone(t, b.enqueue(t, b.job(1)))
	st.wantOrder(1)
	if asked.Load() == 0 {
		t.Error("want the lock asked for")
	}
	b.soonFree(t, b.resource)
}

// A server that shuts down between the dequeue and its handler leaves no lock behind.
func TestShutdownLeavesNoLock(t *testing.T) {
	t.Parallel()
	b, st := setupFast(t), newStage(t)
	entered, leave, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
	p := &plain{outermost: func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			defer close(returned) // asynq does not wait for it, nor does the guard before it knows of it
			close(entered)
			<-leave
			return next.ProcessTask(ctx, task)
		})
	}}
	p.serve(t, b, st)
	id := b.enqueue(t, b.job(1))
	within(t, patience, "the handler", entered)
	if v := b.value(t); !strings.HasPrefix(v, "siding:") {
		t.Errorf("want the lock taken with the task, have %q", v)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); p.server.Shutdown() }()
	b.awaitState(t, id, asynq.TaskStatePending)
	b.soonFree(t, b.resource)
	close(leave)
	within(t, patience, "the server's end", stopped)
	within(t, patience, "the handler's end", returned)
	p.stop(t)
	b.soonFree(t, b.resource)
}

// A lock that was taken with a task, and that the task does not need, was revoked or has expired
// meanwhile. Nothing is left to release, and nothing is logged.
func TestUnusedLockThatIsLost(t *testing.T) {
	t.Parallel()
	b, logs := setupFast(t), newLogs(t)
	guard, err := queue.NewGuard(b.rdb, queue.GuardConfig{Logger: logs.logger})
	if err != nil {
		t.Fatal(err)
	}
	token := "siding:" + uuid.NewString() + ":a task"
	for name, value := range map[string]string{
		"expired": "",
		"another": "siding:" + uuid.NewString() + ":another task",
		"revoked": strings.Replace(token, "siding:", "siding:revoked-", 1),
	} {
		b.rdb.Del(t.Context(), b.lockKey())
		if value != "" {
			b.rdb.Set(t.Context(), b.lockKey(), value, time.Minute)
		}
		queue.ReleaseUnused(guard, store.Grant{Resource: b.resource, Token: token, Fence: 1, HandOff: -1, Start: time.Now()})
		if have := logs.lines("could not be released"); len(have) > 0 {
			t.Errorf("%s: have %v", name, have)
		}
		if have := b.value(t); (have != "") != (name == "another") {
			t.Errorf("%s: want only another's lock left, have %q", name, have)
		}
	}
	if err := guard.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
