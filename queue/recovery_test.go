package queue_test

import (
	"cmp"
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
)

// A mortal is a server that can be cut off. From then on Redis hears nothing from the server, as if
// it had been killed. But its handlers go on.
type mortal struct {
	plain

	dead atomic.Bool
}

func (m *mortal) serve(b *bundle) {
	b.Helper()
	if m.guardConfig.Store == nil {
		m.guardConfig.Lock.TTL = cmp.Or(m.guardConfig.Lock.TTL, 2*time.Second)
	}
	m.onTasks = func(_ context.Context, _ redis.Cmder, send func() error) error {
		if m.dead.Load() {
			return io.ErrUnexpectedEOF
		}
		return send()
	}
	m.start(b, handlerOf(b.run))
	b.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // it can settle nothing, so it would wait for ever
		_ = m.server.Shutdown(ctx)
	})
}

// silence makes a task's lease look as if its worker had not renewed it in time.
func (b *bundle) silence(id string) {
	b.Helper()
	at := float64(time.Now().Add(-time.Hour).Unix())
	expect.OK(b, b.rdb.ZAddXX(b.Context(), b.key("lease"), redis.Z{Score: at, Member: id}).Err())
}

var quickRecovery = queue.ServerConfig{Lock: lock.Config{TTL: 2 * time.Second}}

// A task whose worker dies runs again as soon as its lock has expired, before those who wait. It uses no
// retry, also on its last attempt.
func TestKilledTaskRunsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.unsafe = true // the killed one's handler goes on
	var victim mortal
	victim.serve(b)
	zombie, other := b.hold(0), b.hold(2)
	id := b.enqueue(b.job(0))
	within(t, patience, "the first attempt", zombie.entered)
	bystander := job{Res: b.resource + ":other", N: 2}
	otherID := b.enqueue(bystander)
	within(t, patience, "another task of the same worker", other.entered)
	waiters := b.park(1)
	again := b.hold(0)
	killed := time.Now()
	victim.dead.Store(true)

	cfg := quickRecovery
	cfg.Observe = b.observe
	b.serve(cfg, b.run)
	within(t, patience, "the second attempt", again.entered)
	took := time.Since(killed)
	expect.That(t, took <= promised(quickRecovery.Lock.TTL+2*time.Second), "want it to run again when its lock has expired, have it after %v", took)
	info := b.awaitState(id, asynq.TaskStateActive)
	crashes := b.rdb.HGet(t.Context(), b.taskKey(id), "siding_crashes").Val()
	expect.That(t, info.Retried == 0 && crashes == "1", "want no retry used, with one crash counted, have %s, %+v", crashes, info)
	b.wantWaiters(waiters...)
	again.open()
	b.awaitGone(append(waiters, id, otherID)...)
	for _, lost := range []string{id, otherID} {
		e := b.await(queue.EventRecovered, lost, 1)
		expect.That(t, e.Resource != "" && e.Queue == b.queue && e.TaskKind == (job{}).Kind(), "%s: want its recovery told, have %+v", lost, e)
	}
	b.wantEvents(queue.EventRecovered, "", 2)
	b.wantCounts(3, 0)
	zombie.open()
	other.open()
}

// A task whose lease has ended, but which still holds its lock, is at work.
func TestOrphanThatHoldsItsLockIsLeftAlone(t *testing.T) {
	t.Parallel()
	stores := map[string]lock.Store{"on the Redis of the tasks": nil, "elsewhere": newQueueless(locktest.NewMemory())}
	eachOf(t, onOne, stores, func(b *bundle, store lock.Store) {
		b.unfenced = store != nil
		b.serve(queue.ServerConfig{Store: store, Lock: shortTimes, Observe: b.observe}, b.run)
		holder, id := b.begin(0)
		b.serve(queue.ServerConfig{Store: store, Lock: quickRecovery.Lock, Observe: b.observe}, b.run)
		steadily(b, 2*time.Second, "the task active", func() bool {
			b.silence(id) // time and again, as the holder renews it
			return b.state(id) == asynq.TaskStateActive
		})
		holder.open()
		b.awaitGone(id)
		b.wantOrder(0)
		have := append(b.of(queue.EventLost, id), b.of(queue.EventRecovered, id)...)
		expect.That(b, len(have) == 0, "want it neither lost nor recovered, have %+v", have)
	})
}

// The crashes of a guarded task use no retry at first. Those after that do, and so does each crash of a task
// without a resource. All servers may have been dead for long.
func TestKilledTasks(t *testing.T) {
	t.Parallel()
	type row struct {
		recovery queue.Recovery
		retries  int
		crashes  int
		task     queue.Task
		long     bool            // the lease ended an hour ago, and the lock has expired
		want     asynq.TaskState // 0 if it runs again
		retried  int
	}
	eachOf(t, onOne, map[string]row{
		"a task to be retried":                         {retries: 1},
		"when all servers have been dead for long":     {retries: 1, long: true},
		"its third crash":                              {retries: 1, crashes: 2},
		"its fourth crash":                             {retries: 1, crashes: 3, want: asynq.TaskStateRetry, retried: 1},
		"a fourth crash of four":                       {recovery: queue.Recovery{Crashes: 4}, retries: 1, crashes: 3},
		"no crash is tolerated":                        {recovery: queue.Recovery{Crashes: -1}, retries: 1, want: asynq.TaskStateRetry, retried: 1},
		"without retries":                              {retries: queue.NoRetries, want: asynq.TaskStateArchived},
		"without retries, but asked for":               {recovery: queue.Recovery{NoRetriesToo: true}, retries: queue.NoRetries},
		"without retries, asked for, the fourth crash": {recovery: queue.Recovery{NoRetriesToo: true}, retries: queue.NoRetries, crashes: 3, want: asynq.TaskStateArchived},
		"unguarded":                                    {retries: 1, task: note{}, want: asynq.TaskStateRetry, retried: 1},
	}, func(b *bundle, tt row) {
		b.unsafe = true // the killed one's handler goes on
		var victim mortal
		victim.serve(b)
		zombie := b.hold(0)
		task := tt.task
		if task == nil {
			task = b.job(0)
		}
		id := b.enqueue(task, queue.Options{Retries: tt.retries})
		within(b, patience, "the first attempt", zombie.entered)
		expect.OK(b, b.rdb.HSet(b.Context(), b.taskKey(id), "siding_crashes", tt.crashes).Err())
		victim.dead.Store(true)
		if tt.task != nil || tt.long {
			b.silence(id) // its lease would last for half a minute
		}
		if tt.long {
			expect.Eventually(b, "the lock has run out", func() bool { return b.value() == "" })
		}
		cfg := quickRecovery
		cfg.Recovery, cfg.Observe = tt.recovery, b.observe
		cfg.Asynq.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
		b.serve(cfg, b.run)
		if tt.want == 0 {
			b.awaitGone(id)
			b.await(queue.EventRecovered, id, 1)
			expect.Equal(b, "failures counted", b.stats().Failed, 0)
		} else {
			info := b.awaitState(id, tt.want)
			expect.That(b, info.Retried == tt.retried && info.LastErr == asynq.ErrLeaseExpired.Error() && len(b.of(queue.EventRecovered, id)) == 0,
				"want %d retries used, and the reason, have %+v", tt.retried, info)
			expect.Equal(b, "failures counted", b.stats().Failed, 1)
		}
		zombie.open()
	})
}

// An ErrorHandler has the context that BaseContext has made, also for a task that has lost its lock once too often: whether that
// was noticed while the handler ran, or not.
func TestErrorHandlerOfALossHasTheBaseContext(t *testing.T) {
	t.Parallel()
	type key struct{}
	eachOf(t, onOne, map[string]func(ctx context.Context) error{
		"noticed": func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		},
		"not noticed": func(context.Context) error { return nil },
	}, func(b *bundle, ends func(context.Context) error) {
		handled := make(chan any, 1)
		b.serve(queue.ServerConfig{
			Recovery: queue.Recovery{Losses: -1}, Lock: shortTimes,
			Asynq: asynq.Config{
				BaseContext:  func() context.Context { return context.WithValue(context.Background(), key{}, "tenant") },
				ErrorHandler: asynq.ErrorHandlerFunc(func(ctx context.Context, _ *asynq.Task, _ error) { handled <- ctx.Value(key{}) }),
			},
		}, func(ctx context.Context, _ job) error {
			expect.OK(b, b.rdb.Del(b.Context(), b.lockKey()).Err()) //nolint:contextcheck // another program does it
			return ends(ctx)
		})
		id := b.enqueue(b.job(1), queue.Options{Retries: queue.NoRetries})
		have := within(b, patience, "the error handler", handled)
		expect.That(b, have == "tenant", "want what BaseContext has put there, have %v", have)
		b.awaitState(id, asynq.TaskStateArchived)
	})
}
