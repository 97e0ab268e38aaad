package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A job is a task that runs until the test lets it, or until its context ends.
type job struct {
	Res string `json:"res"`
}

func (job) Kind() string       { return "test:job" }
func (j job) Resource() string { return j.Res }

// A testbed is a Redis with a guarded server.
type testbed struct {
	at     *redistest.Server
	rdb    *redis.Client
	client *queue.Client
	finish chan struct{} // see letOneSucceed
	ended  chan error    // why the context of a task ended
	fail   sync.Map      // the errors of tasks, by id

	mu    sync.Mutex
	order []string // in which handlers began, by task
}

// letOneSucceed waits until a task runs, and lets it succeed.
func (b *testbed) letOneSucceed(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case b.finish <- struct{}{}:
	case <-ctx.Done():
		t.Fatal("want a task that runs, have none within a minute")
	}
}

// ran reports whether handlers have begun for these tasks, in this order.
func (b *testbed) ran(ids ...string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Equal(b.order, ids)
}

// runs returns how often the handler of a task has begun.
func (b *testbed) runs(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(b.order), func(ran string) bool { return ran != id }))
}

func newTestbed(t *testing.T, args ...string) *testbed {
	t.Helper()
	b := &testbed{at: redistest.Start(t, args...), finish: make(chan struct{}), ended: make(chan error, 10)}
	b.rdb = b.at.Client(t)
	var err error
	b.client, err = queue.NewClient(b.rdb, queue.ClientConfig{})
	expect.OK(t, err)
	return b
}

// serve starts a guarded server of the queue default.
func (b *testbed) serve(t *testing.T) {
	t.Helper()
	b.serveWith(t, nil)
}

// serveWith starts one whose locks are in a store, or in Redis if that is nil.
func (b *testbed) serveWith(t *testing.T, store lock.Store) {
	t.Helper()
	server, err := queue.NewServer(queue.RedisOpt{Addrs: []string{b.at.Addr}}, queue.ServerConfig{
		Store: store,
		Asynq: asynq.Config{Concurrency: 4, ShutdownTimeout: time.Millisecond}, Logger: slog.New(slog.DiscardHandler),
	})
	expect.OK(t, err)
	queue.Handle(server, func(ctx context.Context, _ job) error {
		id := queue.InfoFrom(ctx).ID
		b.mu.Lock()
		b.order = append(b.order, id)
		b.mu.Unlock()
		if err, fails := b.fail.Load(id); fails {
			return err.(error) //nolint:errcheck,forcetypeassert // nothing else is stored
		}
		select {
		case <-b.finish:
			return nil
		case <-ctx.Done():
			b.ended <- context.Cause(ctx)
			return ctx.Err()
		}
	})
	expect.OK(t, server.Start(t.Context()))
	t.Cleanup(func() { _ = server.Shutdown(context.WithoutCancel(t.Context())) })
}

func (b *testbed) enqueue(t *testing.T, id, resource string, opts ...queue.Options) {
	t.Helper()
	o := append(opts, queue.Options{})[0]
	o.TaskID = id
	_, err := b.client.Enqueue(t.Context(), job{resource}, &o)
	expect.OK(t, err)
}

// run runs the program on the testbed's Redis.
func (b *testbed) run(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return runIn(context.WithoutCancel(t.Context()), []string{"SIDING_REDIS_ADDRS=" + b.at.Addr}, stdin, args...)
}

// says runs the words of a line on the testbed's Redis, and wants its status and all parts of a text, with "…" between two, in
// what it writes.
func (b *testbed) says(t *testing.T, stdin, line string, status int, text string) {
	t.Helper()
	have := b.run(t, stdin, strings.Fields(line)...)
	for part := range strings.SplitSeq(text, "…") {
		expect.That(t, have.status == status && strings.Contains(have.out+have.err, part), "lockctl %s: want status %d and %q, have %+v", line, status, part, have)
	}
}

// answer runs the program with --json and reads its answer, also of a run that found something wrong.
func answer[T any](t *testing.T, b *testbed, args ...string) (value T, status int) {
	t.Helper()
	have := b.run(t, "", append([]string{"--json"}, args...)...)
	if err := json.Unmarshal([]byte(have.out), &value); err != nil {
		t.Fatalf("%q: want JSON, have %+v: %v", args, have, err)
	}
	return value, have.status
}

// busy returns a testbed on which the task "first" holds order:1, and "second" and "third" wait for it.
func busy(t *testing.T) *testbed {
	t.Helper()
	b := newTestbed(t)
	b.serve(t)
	for want, id := range []string{"first", "second", "third"} {
		b.enqueue(t, id, "order:1")
		expect.Eventually(t, id+" holds or waits", func() bool {
			list, _ := answer[[]inspect.Lock](t, b, "list")
			return len(list) == 1 && list[0].State == inspect.Held && list[0].Waiting == want
		})
	}
	return b
}

func TestRelease(t *testing.T) {
	t.Parallel()
	b := busy(t)
	before, _ := answer[shown](t, b, "show", "order:1")
	for said, want := range map[string]string{
		"no\n": "lockctl: order:1: the answer was \"no\": nothing has changed\n",
		"":     "lockctl: order:1: the answer was \"\": nothing has changed\n",
	} {
		have := b.run(t, said, "release", "order:1", "--reason", "drill")
		expect.That(t, have.status == cli.StatusFault && have.out == "" && strings.HasSuffix(have.err, "Type yes: "+want) && strings.Contains(have.err, "holder      test:job first\n"), "%q: want the holder, a question, and nothing changed, have %+v", said, have)
	}
	if after, _ := answer[shown](t, b, "show", "order:1"); after.Lock.Fence != before.Lock.Fence || after.Lock.Revoked != nil {
		t.Errorf("want the lock as it was, have %+v", after.Lock)
	}

	b.says(t, "yes\n", "release order:1 --reason drill --by alice", cli.StatusOK, "order:1: taken from test:job first on …by=alice reason=drill")
	if err := <-b.ended; err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("context of the holder: want it ended by the loss, have %v", err)
	}
	var now shown
	expect.Eventually(t, "the next waiter has the lock", func() bool {
		now, _ = answer[shown](t, b, "show", "order:1")
		return now.Lock.State == inspect.Held && now.Lock.Task != nil && now.Lock.Task.ID == "second"
	})
	expect.That(t, now.Lock.Fence > before.Lock.Fence, "fence: want more than %d, have %d", before.Lock.Fence, now.Lock.Fence)
	if r := now.Lock.Revoked; r == nil || r.By != "alice" || r.Reason != "drill" || !strings.HasPrefix(r.Holder, "test:job first on ") {
		t.Errorf("record: want that of alice, have %+v", r)
	}
	b.says(t, "", "show order:1", cli.StatusOK, "\nreleased by  alice, …\nreason       drill\n")
}

// An operatorAfter says yes once something has happened.
type operatorAfter func()

func (happens operatorAfter) Read(p []byte) (int, error) {
	happens()
	return copy(p, "yes\n"), io.EOF
}

// release releases order:1 by an operator who says yes after something has happened.
func (b *testbed) release(t *testing.T, happens func()) result {
	t.Helper()
	return b.after(t, happens, "release", "order:1", "--reason", "drill")
}

// after runs the program for an operator who says yes after something has happened.
func (b *testbed) after(t *testing.T, happens func(), args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	a := newApp(operatorAfter(happens), &out, &errs, []string{"SIDING_REDIS_ADDRS=" + b.at.Addr})
	status := a.run(t.Context(), args)
	return result{out.String(), errs.String(), status}
}

// Who gets the lock while the operator thinks keeps it.
func TestReleaseOfAnotherHolder(t *testing.T) {
	t.Parallel()
	b := busy(t)
	have := b.release(t, func() {
		b.letOneSucceed(t)
		expect.Eventually(t, "second holds the lock", func() bool {
			one, _ := answer[shown](t, b, "show", "order:1")
			return one.Lock.State == inspect.Held && one.Lock.Task != nil && one.Lock.Task.ID == "second"
		})
	})
	expect.That(t, have.status == cli.StatusFault && have.out == "" && strings.Contains(have.err, "nothing has changed: queue: another lease or program holds the lock: order:1 is held by test:job second on "), "want nothing changed, have %+v", have)
	if one, _ := answer[shown](t, b, "show", "order:1"); one.Lock.Task == nil || one.Lock.Task.ID != "second" || one.Lock.Revoked != nil {
		t.Errorf("want second to have the lock, have %+v", one.Lock)
	}
}

// A lock of another program has no fence. Who gets it while the operator thinks keeps it as well.
func TestReleaseAfterAnotherProgram(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	const key = "lock:order:1"
	expect.OK(t, b.rdb.Set(t.Context(), key, "somebody", 0).Err())
	locker, err := lock.New(lock.Redis(b.rdb), lock.Config{})
	expect.OK(t, err)
	var lease *lock.Lease
	have := b.release(t, func() {
		deleted := b.rdb.Del(t.Context(), key).Err()
		if lease, err = locker.Acquire(t.Context(), "order:1", nil); deleted != nil || err != nil {
			t.Error(deleted, err)
		}
	})
	const want = "nothing has changed: order:1: the lock has another holder by now, or none\n"
	expect.That(t, have.status == cli.StatusFault && have.out == "" && strings.HasSuffix(have.err, want), "want nothing changed, have %+v", have)
	expect.Is(t, "release of the lock that was kept", lease.Release(t.Context()), nil)
}

// A lock whose holder has not returned yet was taken before: nobody is asked, and the first reason stays.
func TestReleaseAgain(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	locker := expect.Value(lock.New(lock.Redis(b.rdb), lock.Config{RenewEvery: time.Hour, TTL: 4 * time.Hour}))(t)
	expect.OK(t, expect.Err(locker.Acquire(t.Context(), "order:1", nil)))
	b.says(t, "", "release order:1 --reason drill --by alice --yes", cli.StatusOK, "")
	b.says(t, "", "release order:1 --reason again --by bob", cli.StatusFault,
		"lockctl: nothing has changed: order:1: alice has released the lock before, …: drill; it is free once its holder returns")
	if one, _ := answer[shown](t, b, "show", "order:1"); one.Lock.Revoked == nil || one.Lock.Revoked.By != "alice" {
		t.Errorf("want the record of alice, have %+v", one.Lock.Revoked)
	}
}

// A name of another kind of thing gets the command that was meant.
func TestMeant(t *testing.T) {
	t.Parallel()
	b := busy(t)
	b.says(t, "", "show order:1 --count 1", cli.StatusOK, "and 1 more, from position 2 on: --from 2\n")
	b.says(t, "", "why first --queue low", cli.StatusFault, `the queue "low" has no task "first"`)
	b.says(t, "", "show order:*", cli.StatusOK, "order:* is taken as a name, not as a pattern: `lockctl list --filter 'order:*'` lists the locks that fit\n")
	b.says(t, "", "show -- -*", cli.StatusOK, "-* is taken as a name, not as a pattern: `lockctl list --filter '-*'` lists the locks that fit\n")
	b.says(t, "", "show second", cli.StatusOK, "second is a task: `lockctl why second` says what it does\n")
	b.says(t, "", "why order:1", cli.StatusFault, "or was deleted; but a resource has this name: `lockctl show order:1` shows its lock\n")
	b.says(t, "", "why order:7", cli.StatusFault, "or was deleted; if it is a resource: `lockctl show order:7`\n")
	b.says(t, "", "release order:* --reason drill", cli.StatusFault, "order:*: nobody holds the lock; order:* is taken as a name")
	b.says(t, "", "release order:7 --reason drill --yes", cli.StatusFault, "lockctl: order:7: nobody holds the lock\n")
}

// A lock of another program is found by a scan, and can be released.
func TestForeignLock(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	expect.OK(t, b.rdb.Set(t.Context(), "lock:order:1", "somebody", 0).Err())
	b.says(t, "", "list --json", cli.StatusOK, "[]\n")
	list, _ := answer[[]inspect.Lock](t, b, "list", "--all")
	expect.That(t, len(list) == 1 && list[0].State == inspect.Foreign && list[0].Endless, "list --all: want a foreign lock without an end, have %+v", list)
	b.says(t, "y\n", "release order:1 --reason gone", cli.StatusOK, "Another program holds this lock.…The lock is free.\n")
	if one, _ := answer[shown](t, b, "show", "order:1"); one.Lock.State != inspect.Free || one.Lock.Revoked == nil {
		t.Errorf("show: want a free lock with a record, have %+v", one.Lock)
	}
}

// The settings of the workers count: the password, the prefix of the locks, and how many crashes are tolerated. A flag goes before.
func TestSettingsOfTheWorkers(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, "--requirepass", "secret")
	expect.OK(t, b.rdb.Set(t.Context(), "mine:order:1", "somebody", time.Minute).Err())
	environ := []string{
		"SIDING_REDIS_ADDRS=" + b.at.Addr, "SIDING_REDIS_PASSWORD=secret", "SIDING_LOCK_PREFIX=mine:", "SIDING_RECOVERY_CRASHES=5", "SIDING_LOG_FORMAT=json",
	}
	have := runIn(t.Context(), environ, "", "list", "--all", "--lock-prefix", "other:", "--json")
	wantResult(t, result{"[]\n", "", cli.StatusOK}, have)
	have = runIn(t.Context(), environ, "", "release", "order:1", "--reason", "drill", "--yes", "--json")
	expect.That(t, have.status == cli.StatusOK && strings.Contains(have.out, `"holder":"another program"`) && strings.Contains(have.err, `"reason":"drill"}`), "want the lock of the prefix released, and a record in JSON, have %+v", have)
	if n, err := b.rdb.Exists(t.Context(), "mine:order:1").Result(); n != 0 || err != nil {
		t.Errorf("want no lock, have %d, %v", n, err)
	}
	b.enqueue(t, "first", "order:1")
	have = runIn(t.Context(), environ, "", "why", "first", "--json")
	expect.That(t, have.status == exitTrouble && strings.Contains(have.out, `"tolerated":5,`), "want 5 crashes tolerated, have %+v", have)
}
