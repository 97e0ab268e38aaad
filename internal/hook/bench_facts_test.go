// The *_facts_test.go files hold what this project takes for granted about asynq 0.26. Each fact is
// a test of asynq alone against a real Redis. If an upgrade of asynq changes a fact, its test
// fails.

package hook_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// errBusy stands for "the lock is taken": an error that is no failure.
var errBusy = errors.New("busy")

// patience bounds every wait. Only a test that fails waits for its end.
const patience = 30 * time.Second

// A bench is one queue of a real Redis with what a test needs around it.
type bench struct {
	t         *testing.T
	rdb       *redis.Client // the test's own connection, which no tap sees
	queue     string
	inspector *asynq.Inspector
}

func newBench(t *testing.T) *bench {
	t.Helper()
	rdb := redistest.Shared(t).Client(t)
	return &bench{t: t, rdb: rdb, queue: t.Name() + uuid.NewString(), inspector: asynq.NewInspectorFromRedisClient(rdb)}
}

// key is one of asynq's keys of the queue.
func (b *bench) key(name string) string { return "asynq:{" + b.queue + "}:" + name }

// connect returns a connection with a tap on it.
func (b *bench) connect() (*redis.Client, *tap) {
	b.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: b.rdb.Options().Addr})
	b.t.Cleanup(func() { _ = rdb.Close() })
	tap := &tap{}
	rdb.AddHook(tap)
	return rdb, tap
}

// enqueue stores a task of type "fact" and returns its id.
func (b *bench) enqueue(opts ...asynq.Option) string {
	b.t.Helper()
	client := asynq.NewClientFromRedisClient(b.rdb)
	info, err := client.EnqueueContext(b.t.Context(), asynq.NewTask("fact", nil), append(opts, asynq.Queue(b.queue))...)
	if err != nil {
		b.t.Fatalf("enqueue: %v", err)
	}
	return info.ID
}

// A server is a running asynq server with a tap on its connection.
type server struct {
	*tap
	stop func() // shuts it down, once
}

// serve runs a server until stop or the test's end. Unless cfg says otherwise, the server looks for
// tasks all the time, and repeats them at once. Its shutdown waits 10 ms for running tasks.
func (b *bench) serve(cfg asynq.Config, h asynq.HandlerFunc) *server {
	b.t.Helper()
	cfg.Queues = map[string]int{b.queue: 1}
	cfg.LogLevel = asynq.FatalLevel
	cfg.ShutdownTimeout = 10 * time.Millisecond
	if cfg.Concurrency == 0 {
		cfg.Concurrency = 4
	}
	if cfg.TaskCheckInterval == 0 {
		cfg.TaskCheckInterval = 5 * time.Millisecond
	}
	if cfg.DelayedTaskCheckInterval == 0 {
		cfg.DelayedTaskCheckInterval = 10 * time.Millisecond
	}
	if cfg.RetryDelayFunc == nil {
		cfg.RetryDelayFunc = retryAfter(0)
	}
	rdb, tap := b.connect()
	srv := asynq.NewServerFromRedisClient(rdb, cfg)
	if err := srv.Start(h); err != nil {
		b.t.Fatalf("start: %v", err)
	}
	stop := sync.OnceFunc(func() {
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			srv.Shutdown()
		}()
		next(b.t, "end of the shutdown", stopped)
	})
	b.t.Cleanup(stop)
	return &server{tap: tap, stop: stop}
}

func retryAfter(d time.Duration) asynq.RetryDelayFunc {
	return func(int, error, *asynq.Task) time.Duration { return d }
}

func notBusy(err error) bool { return !errors.Is(err, errBusy) }

// An attempt is one call of the handler that [bench.manual] made.
type attempt struct {
	ctx  context.Context //nolint:containedctx // what the handler was called with
	task *asynq.Task
	end  chan<- error // what the handler returns, whenever it is sent
}

// manual returns a handler, and a channel of its calls. Each call lasts until the test ends it,
// whatever becomes of its context.
func (b *bench) manual() (asynq.HandlerFunc, <-chan attempt) {
	attempts := make(chan attempt)
	over := b.t.Context()
	return func(ctx context.Context, task *asynq.Task) error {
		end := make(chan error, 1)
		select {
		case attempts <- attempt{ctx, task, end}:
		case <-over.Done():
			return over.Err()
		}
		select {
		case err := <-end:
			return err
		case <-over.Done():
			return over.Err()
		}
	}, attempts
}

// next receives from a channel.
func next[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		t.Fatalf("no %s within %v", what, patience)
		panic("unreachable")
	}
}

// await waits until the task is in the state, and returns what the inspector
// says of it.
func (b *bench) await(id string, state asynq.TaskState) *asynq.TaskInfo {
	b.t.Helper()
	var info *asynq.TaskInfo
	poll.Eventually(b.t, "task in state "+state.String(), func() bool {
		have, err := b.inspector.GetTaskInfo(b.queue, id)
		info = have
		return err == nil && have.State == state
	})
	return info
}

// awaitGone waits until there is no such task.
func (b *bench) awaitGone(id string) {
	b.t.Helper()
	poll.Eventually(b.t, "task gone", func() bool {
		_, err := b.inspector.GetTaskInfo(b.queue, id)
		return errors.Is(err, asynq.ErrTaskNotFound)
	})
}

// counts returns the queue's statistics, which the dashboard shows.
func (b *bench) counts() (processed, failed int) {
	b.t.Helper()
	info, err := b.inspector.GetQueueInfo(b.queue)
	if err != nil {
		b.t.Fatal(err)
	}
	return info.ProcessedTotal, info.FailedTotal
}

// score returns the score of a task in one of the queue's sets.
func (b *bench) score(set, id string) float64 {
	b.t.Helper()
	score, err := b.rdb.ZScore(b.t.Context(), b.key(set), id).Result()
	if err != nil {
		b.t.Fatalf("%s: %v", set, err)
	}
	return score
}

// rescore moves a task in one of the queue's sets to another time, as if the
// clock had moved.
func (b *bench) rescore(set, id string, to time.Time) {
	b.t.Helper()
	z := redis.ZAddArgs{XX: true, Ch: true, Members: []redis.Z{{Score: float64(to.Unix()), Member: id}}}
	if n, err := b.rdb.ZAddArgs(b.t.Context(), b.key(set), z).Result(); err != nil || n != 1 {
		b.t.Fatalf("%s: want 1 task moved, have %d, %v", set, n, err)
	}
}

// pending returns the ids in the queue's pending list, the next to run first.
func (b *bench) pending() []string {
	b.t.Helper()
	ids, err := b.rdb.LRange(b.t.Context(), b.key("pending"), 0, -1).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	for i, j := 0, len(ids)-1; i < j; i, j = i+1, j-1 {
		ids[i], ids[j] = ids[j], ids[i]
	}
	return ids
}
