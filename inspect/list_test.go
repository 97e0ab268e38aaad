package inspect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// find returns the lock of a resource in a list.
func find(locks []inspect.Lock, resource string) *inspect.Lock {
	at := slices.IndexFunc(locks, func(l inspect.Lock) bool { return l.Resource == resource })
	if at < 0 {
		return nil
	}
	return &locks[at]
}

func (b *bed) held(resource string) *inspect.Lock {
	b.Helper()
	list := get(b, b.inspector.Held)
	b.wantNoToken(list)
	return find(list.Locks, resource)
}

func TestShow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve()
	holder := b.running(0)
	ids := b.waiting(1, 12)
	for _, tt := range []struct{ from, count, first, n int }{{1, 5, 1, 5}, {6, 3, 6, 3}, {10, 20, 10, 3}, {0, 1, 1, 1}, {13, 5, 0, 0}, {1, 0, 0, 0}, {math.MaxInt, math.MaxInt, 0, 0}, {2, math.MaxInt, 2, 11}} {
		l, waiters := b.show(tt.from, tt.count)
		expect.That(t, l.State == inspect.Held && l.Task != nil && *l.Task == (inspect.Task{Queue: b.queue, ID: holder, Kind: "test:job"}) && l.Worker.PID == os.Getpid() && l.Waiting == 12 && l.Paused == 0, "want the holder and 12 waiters, have %+v", l)
		expect.Need(t, len(waiters) == tt.n, "from %d, %d: want %d waiters, have %d", tt.from, tt.count, tt.n, len(waiters))
		for i, w := range waiters {
			want := tt.first + i
			expect.That(t, w.Position == want && w.Task.ID == ids[want-1] && w.Task.Queue == b.queue && w.Name == "" && w.Waited > 0 && w.Since.Location() == time.UTC, "want number %d, have %+v", want, w)
		}
		b.wantNoToken(l)
	}
	_, _, err := b.inspector.Show(t.Context(), "a{b", 1, 1)
	expect.That(t, errors.Is(err, lock.ErrResource), "want ErrResource, have %v", err)
}

// Those of paused queues are named, and the oldest wait is that of another.
func TestShowPausedWaiters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	paused := b.queue + ".paused"
	b.do("sadd", "asynq:queues", b.queue, paused)
	b.do("set", "asynq:{"+paused+"}:paused", 1)
	wait := func(queue string, waited time.Duration) {
		b.do("zadd", "siding:{"+queue+"}:line:"+b.lockKey(), us(time.Now().Add(-waited)), "t-"+waited.String())
		b.do("zadd", "{"+b.lockKey()+"}:lines", "lt", us(time.Now().Add(-waited)), queue)
	}
	for _, step := range []struct {
		queue  string
		waited time.Duration
		oldest string
		paused int
	}{{paused, time.Hour, "60 min", 1}, {b.queue, 10 * time.Minute, "10 min", 1}, {paused, time.Minute, "10 min", 2}} {
		wait(step.queue, step.waited)
		l, waiters := b.show(1, 10)
		expect.That(t, strings.HasPrefix(l.OldestWait.String(), step.oldest) && l.Paused == step.paused && waiters[0].Paused && waiters[0].Position == 1, "want the oldest wait %s and %d paused, have %+v, %+v", step.oldest, step.paused, l, waiters)
	}
	b.do("zadd", "{"+b.lockKey()+"}:queue", us(time.Now().Add(-2*time.Hour)), "siding-goroutine:x:1")
	l, waiters := b.show(1, 2)
	expect.That(t, strings.HasPrefix(l.OldestWait.String(), "2 h") && l.Waiting == 4 && len(waiters) == 2 && waiters[0].Task == nil && waiters[0].Name == "siding-goroutine:x:1", "want the goroutine first, have %+v, %+v", l, waiters)
}

func TestShowFreeAndRevoked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l, waiters := b.show(1, 10)
	if want := (inspect.Lock{Resource: b.resource, State: inspect.Free}); !reflect.DeepEqual(l, want) || len(waiters) != 0 {
		t.Errorf("want a free lock, have %+v, %v", l, waiters)
	}
	b.do("hset", "{lock:"+b.resource+"}:revoked", "at", us(time.UnixMicro(1_700_000_000_000_000)), "by", "ann", "reason", "stuck", "holder", "x")
	l, _ = b.show(1, 10)
	want := inspect.Revocation{At: time.Unix(1_700_000_000, 0).UTC(), By: "ann", Reason: "stuck", Holder: "x"}
	expect.That(t, l.Revoked != nil && *l.Revoked == want, "want %+v, have %+v", want, l.Revoked)
}

// A lock elsewhere is known by those who wait for it here.
func TestShowElsewhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.do("sadd", "asynq:queues", b.queue)
	b.do("zadd", "{wait:lock:"+b.resource+"}siding:lines", us(time.Now()), b.queue)
	b.do("zadd", "siding:{"+b.queue+"}:line:wait:lock:"+b.resource, us(time.Now()), "a")
	l, waiters := b.show(1, 10)
	expect.That(t, l.Elsewhere && l.Waiting == 1 && len(waiters) == 1, "want a waiter of a lock elsewhere, have %+v, %v", l, waiters)
}

// A label names a task only if a queue has that task.
func TestHolderLabels(t *testing.T) {
	t.Parallel()
	b := setupAlone(t)
	for _, id := range []string{"t-1", "an id on b2"} {
		b.job(0, queue.Options{TaskID: id})
	}
	worker := &inspect.Worker{Host: "a1", PID: 7}
	task := func(id string) *inspect.Task { return &inspect.Task{Queue: b.queue, Kind: "test:job", ID: id} }
	for label, want := range map[string]inspect.Lock{
		"t-1 on a1 (pid 7)":             {Task: task("t-1"), Worker: worker},
		"an id on b2 on a1 (pid 7)":     {Task: task("an id on b2"), Worker: worker},
		"t-1 on unknown host (pid 7)":   {Task: task("t-1"), Worker: &inspect.Worker{Host: "unknown host", PID: 7}},
		"t-2 on a1 (pid 7)":             {Worker: worker},
		"elected server on a1 (pid 7)":  {Worker: worker},
		"nightly import on a1 (pid 7)":  {Worker: worker},
		"recovery on a1 (pid 7)":        {Worker: worker},
		"a1 (pid 7)":                    {Worker: worker},
		"warehouse":                     {},
		"t-1 on a1":                     {},
		"a1 (pid 99999999999999999999)": {},
		"a:b":                           {},
		"":                              {},
		"x y on a1 (pid 7) and more":    {},
	} {
		b.do("set", b.lockKey(), "siding:1-2:"+label, "px", 60000)
		have, _ := b.show(1, 0)
		want.Resource, want.State, want.Holder, want.Left = b.resource, inspect.Held, label, have.Left
		expect.Same(t, fmt.Sprintf("%q", label), have, want)
	}
}

func TestHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve()
	holder := b.running(0)
	l := b.held(b.resource)
	if l == nil || l.State != inspect.Held || *l.Task != (inspect.Task{Queue: b.queue, ID: holder, Kind: "test:job"}) || l.Gone || l.Waiting != 0 || l.Fence == 0 ||
		l.Since.IsZero() || l.Left <= 0 {
		t.Fatalf("want the lock of a running task, have %+v", l)
	}
	b.waiting(1, 2)
	b.silence(holder)
	expect.Eventually(t, "a holder that is gone, and two waiters", func() bool {
		l := b.held(b.resource)
		return l.Gone && l.Waiting == 2 && l.Task.Queue == b.queue
	})
	b.let(0)
	expect.Eventually(t, "no lock", func() bool { return b.held(b.resource) == nil })
	// A foreign holder is found once a task waits.
	foreign := b.resource + ":foreign"
	b.do("set", "lock:"+foreign, "8f3a60", "px", 60000)
	if l := b.held(foreign); l != nil {
		t.Errorf("want no lock for which no task waits, have %+v", l)
	}
	b.enqueue(job{foreign, 5})
	expect.Eventually(t, "the foreign holder", func() bool {
		l := b.held(foreign)
		return l != nil && l.State == inspect.Foreign && l.Waiting == 1 && l.Holder == "another program"
	})
}

// A label that looks like that of a task names none in a list, either.
func TestHeldByNoTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve()
	b.do("set", b.lockKey(), "siding:1-2:elected server on a1 (pid 7)", "px", 60000)
	b.waiting(1, 1)
	l := b.held(b.resource)
	expect.That(t, l != nil && l.Task == nil && !l.Gone && l.Worker != nil && l.Waiting == 1, "want a holder that is no task, have %+v", l)
}

// A lock that was revoked says so until its holder has returned, in each list alike.
func TestRevoked(t *testing.T) {
	t.Parallel()
	b := setupAlone(t)
	b.serve()
	holder := b.running(0)
	b.waiting(1, 1)
	b.revoke()
	shown, _ := b.show(1, 0)
	scanned := b.scan()
	for name, l := range map[string]*inspect.Lock{"held": b.held(b.resource), "show": &shown, "scan": find(scanned, b.resource)} {
		want := inspect.Task{Queue: b.queue, ID: holder, Kind: "test:job"}
		expect.That(t, l != nil && l.State == inspect.Revoked && l.Leased() && l.Task != nil && *l.Task == want && l.Left > 0, "%s: want the revoked lock of %+v, have %+v", name, want, l)
	}
}

func TestHeldElsewhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(queue.ServerConfig{Store: locktest.NewMemory()})
	holder := b.running(0)
	l := b.held(b.resource)
	expect.Need(t, l != nil && l.Elsewhere && l.State == inspect.Held && l.Task.ID == holder && l.Task.Queue == b.queue, "want a lock elsewhere, have %+v", l)
	b.waiting(1, 1)
	list := get(b, b.inspector.Held)
	found := slices.DeleteFunc(list.Locks, func(l inspect.Lock) bool { return l.Resource != b.resource })
	expect.That(t, len(found) == 1 && found[0].Elsewhere && found[0].Waiting == 1, "want it once, with a waiter, have %+v", found)
}

// A legacy task names its resource in its payload only.
type legacy struct {
	Order string `json:"order"`
}

func (legacy) Kind() string { return "test:note" }

// A function of the user panics: its task is one without a resource, as for a server.
func TestResourceFuncPanics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(legacy{b.resource})
	i := expect.Value(inspect.New(b.rdb, inspect.Config{Resources: map[string]queue.ResourceFunc{"test:note": func([]byte) (string, error) { panic("no payload") }}}))(t)
	if e, err := i.Why(t.Context(), b.queue, id); err != nil || e.Resource != "" || e.State != inspect.StatePending {
		t.Errorf("want a pending task without a resource, have %+v, %v", e, err)
	}
}

func TestHeldByPayload(t *testing.T) {
	t.Parallel()
	resources := make(map[string]queue.ResourceFunc)
	resources["test:note"] = func(payload []byte) (string, error) {
		var l legacy
		err := json.Unmarshal(payload, &l)
		return l.Order, err
	}
	b := setupOn(t, redis.UniversalOptions{Addrs: []string{redistest.Shared(t).Addr}}, inspect.Config{Resources: resources}, queue.ClientConfig{})
	b.serve(queue.ServerConfig{Resources: resources})
	b.hold(0)
	id := b.enqueue(legacy{b.resource})
	b.awaitRun(0)
	if l := b.held(b.resource); l == nil || l.Task.ID != id {
		t.Errorf("want its lock, have %+v", l)
	}
	blind := expect.Value(inspect.New(b.rdb, inspect.Config{}))(t)
	list := expect.Value(blind.Held(t.Context()))(t)
	if l := find(list.Locks, b.resource); l == nil || l.Task.ID != id {
		t.Errorf("without Resources: want its lock, have %+v", l)
	}
	if e, err := blind.Why(t.Context(), "", id); err != nil || e.Resource != b.resource || e.State != inspect.StateRunning {
		t.Errorf("without Resources: want a running task with its resource, have %+v, %v", e, err)
	}
	b.enqueue(legacy{b.resource})
	expect.Eventually(t, "a waiter", func() bool { return b.waiters() == 1 })
	expect.Eventually(t, "without Resources: the holder of a lock for which a task waits", func() bool { // once it is parked
		list = expect.Value(blind.Held(t.Context()))(t)
		l := find(list.Locks, b.resource)
		return l != nil && l.Task != nil && *l.Task == inspect.Task{Queue: b.queue, ID: id, Kind: "test:note"}
	})
}

// Too many contended locks are not read, and are counted.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	b := setupAlone(t)
	b.seed(2100, 2100)
	list := get(b, b.inspector.Held)
	expect.That(t, len(list.Locks) == 2000 && list.LeftOut == 100, "want 2,000 and 100 left out, have %d and %d", len(list.Locks), list.LeftOut)
}

func TestScan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.holder()
	b.do("rpush", "lock:"+b.resource+":list", "x")
	b.do("set", "lock:"+b.resource+"{siding:released}", "x", "px", 60000) // a key of a quorum's node
	scanned := 0
	locks := expect.Value(b.inspector.Scan(t.Context(), func(n int) {
		expect.That(t, n > scanned, "progress: want more than %d, have %d", scanned, n)
		scanned = n
	}))(t)
	b.wantNoToken(locks)
	if l := find(locks, b.resource); l == nil || l.State != inspect.Held || l.Worker.PID != os.Getpid() || l.Task != nil || scanned == 0 {
		t.Errorf("want the lock of a service, have %+v of %d keys", l, scanned)
	}
	if l := find(locks, b.resource+"{siding:released}"); l != nil {
		t.Errorf("want no other key of a lock, have %+v", l)
	}
	if l := find(locks, b.resource+":list"); l == nil || l.State != inspect.Foreign {
		t.Errorf("want what another program has put there, have %+v", l)
	}
	if l := b.held(b.resource); l != nil {
		t.Errorf("held: want no lock of a service without a waiting task, have %+v", l)
	}
}

// Scan also lists what Held does: a free lock for which tasks wait, and one that is in an external store, have no key of their own.
func TestScanListsWhatHeldDoes(t *testing.T) {
	t.Parallel()
	b := setupAlone(t)
	b.seed(2, 2)
	b.do("DEL", "lock:"+b.seeded(0))
	b.serve(queue.ServerConfig{Store: locktest.NewMemory(), Asynq: asynq.Config{Queues: map[string]int{b.queue + ".other": 1}}, AllowOtherLocks: true})
	b.hold(0)
	b.enqueue(job{b.resource, 0}, queue.Options{Queue: b.queue + ".other"})
	b.awaitRun(0)
	locks := b.scan()
	if len(locks) != 3 || !slices.IsSortedFunc(locks, func(x, y inspect.Lock) int { return strings.Compare(x.Resource, y.Resource) }) {
		t.Errorf("want three locks, have %+v", locks)
	}
	for resource, fits := range map[string]func(*inspect.Lock) bool{
		b.seeded(0): func(l *inspect.Lock) bool { return l.State == inspect.Free && l.Waiting == 1 },
		b.seeded(1): func(l *inspect.Lock) bool { return l.State == inspect.Held && l.Waiting == 1 },
		b.resource:  func(l *inspect.Lock) bool { return l.State == inspect.Held && l.Elsewhere },
	} {
		if l := find(locks, resource); l == nil || !fits(l) {
			t.Errorf("%s: want it as Held has it, have %+v", resource, l)
		}
	}
}

// A prefix is no pattern.
func TestScanPrefix(t *testing.T) {
	t.Parallel()
	b := setup(t)
	i := expect.Value(inspect.New(b.rdb, inspect.Config{Prefix: "a[b]*?" + b.resource + ":"}))(t)
	b.do("set", "a[b]*?"+b.resource+":one", "x", "px", 60000)
	b.do("set", "abcd"+b.resource+":two", "x", "px", 60000)
	locks, err := i.Scan(t.Context(), nil)
	expect.That(t, err == nil && len(locks) == 1 && locks[0].Resource == "one", "want one, have %+v, %v", locks, err)
}

func TestOrphans(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(unrecovered)
	var ids []string
	for n := range 5 {
		b.hold(n)
		ids = append(ids, b.enqueue(job{fmt.Sprint(b.resource, n), n}, queue.Options{Retries: map[bool]int{true: queue.NoRetries}[n == 4]}))
		b.awaitRun(n)
	}
	b.do("hset", b.taskKey(ids[1]), "siding_crashes", 2)
	b.do("hset", b.taskKey(ids[2]), "siding_crashes", 3)
	b.silence(ids[2])
	b.silence(ids[3])
	b.silence(ids[4])
	want := map[string]string{ids[1]: "2 false false", ids[2]: "3 true true", ids[3]: "0 true false", ids[4]: "0 true true"}
	expect.Eventually(t, "four orphans", func() bool {
		all := get(b, b.inspector.Orphans)
		have := make(map[string]string)
		for _, o := range all {
			if o.Task.Queue != b.queue {
				continue
			}
			if have[o.Task.ID] = fmt.Sprint(o.Crashes, o.Orphaned, o.UsesRetry); o.Tolerated != 3 || o.Resource == "" || o.LeaseEnds.IsZero() || o.Task.Kind != "test:job" {
				t.Errorf("want all facts, have %+v", o)
			}
		}
		return fmt.Sprint(have) == fmt.Sprint(want)
	})
}

func TestServers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve()
	server := asynq.NewServerFromRedisClient(b.rdb, asynq.Config{Queues: map[string]int{b.queue: 1, b.queue + ".alone": 1}, LogLevel: asynq.FatalLevel})
	expect.OK(t, server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })))
	t.Cleanup(server.Shutdown)
	b.awaitServers(2)
	all := get(b, b.inspector.Servers)
	for _, s := range all {
		if !slices.Contains(s.Queues, b.queue) {
			continue
		}
		if want := []string{b.queue}; s.Guarded == (s.Unguarded != nil) || !s.Guarded && !slices.Equal(s.Unguarded, want) || s.PID != os.Getpid() || s.ID == "" {
			t.Errorf("want a guarded one, and one that is unguarded on %v, have %+v", want, s)
		}
	}
}

func TestQueues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve(queue.ServerConfig{Asynq: asynq.Config{Concurrency: 2}})
	b.running(0)
	b.waiting(1, 3)
	b.awaitWhy(b.job(9, queue.Options{Delay: time.Hour}), inspect.StateScheduled)
	b.awaitWhy(b.enqueue(note{-1}), inspect.StateRetrying)
	b.awaitWhy(b.enqueue(note{-1}, queue.Options{Retries: queue.NoRetries}), inspect.StateArchived)
	b.awaitWhy(b.enqueue(note{8}, queue.Options{Retention: time.Hour}), inspect.StateCompleted)
	b.pause()
	b.enqueue(note{10})
	all := get(b, b.inspector.Queues)
	at := slices.IndexFunc(all, func(q inspect.Queue) bool { return q.Name == b.queue })
	want := inspect.Queue{Name: b.queue, Paused: true, Pending: 1, Active: 1, Scheduled: 1, Waiting: 3, Retrying: 1, Archived: 1, Completed: 1, Contended: 1, Servers: 1}
	expect.That(t, at >= 0 && all[at] == want, "want %+v, have it not in %+v", want, all)
}

// A task that waits for several resources counts once among those of its queue, and what comes again at its time is told apart.
func TestQueueOfSeveralResources(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now, pipe := time.Now(), b.rdb.Pipeline()
	for i := range 160 {
		id, of := fmt.Sprint("task-", i), []string{b.seeded(i % 7), b.seeded(7)}
		fields := []any{"state", "retry", "msg", encoded(b.queue, id, queue.AllOf(of...))}
		pipe.ZAdd(t.Context(), b.key("retry"), redis.Z{Score: float64(now.Add(time.Hour).Unix()), Member: id})
		for n, resource := range of {
			if i < 100 {
				pipe.ZAdd(t.Context(), b.line(resource), redis.Z{Score: float64(now.UnixMicro() + int64(i)), Member: id})
				pipe.ZAdd(t.Context(), "siding:{"+b.queue+"}:ready", redis.Z{Score: float64(now.Add(time.Hour).UnixMicro()), Member: "lock:" + resource})
			}
			of[n] = "lock:" + resource
		}
		if i < 100 {
			fields = append(fields, "siding_lock", strings.Join(of, "\n"))
		}
		pipe.HSet(t.Context(), b.taskKey(id), fields...)
	}
	pipe.SAdd(t.Context(), "asynq:queues", b.queue)
	// The first task holds its lines.
	pipe.ZAdd(t.Context(), "siding:{"+b.queue+"}:held", redis.Z{Score: float64(now.Add(time.Hour).UnixMicro()), Member: "lock:" + b.seeded(0)},
		redis.Z{Score: float64(now.Add(time.Hour).UnixMicro()), Member: "lock:" + b.seeded(7)})
	expect.OK(t, expect.Err(pipe.Exec(t.Context())))
	all := get(b, b.inspector.Queues)
	at := slices.IndexFunc(all, func(q inspect.Queue) bool { return q.Name == b.queue })
	want := inspect.Queue{Name: b.queue, Waiting: 99, Retrying: 61, Estimated: true, Contended: 8, Held: 2}
	expect.That(t, at >= 0 && all[at] == want, "want %+v, have it not in %+v", want, all)
}
