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

	"github.com/sidingq/siding/internal/testenv/poll"
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

func (m *mortal) serve(t *testing.T, b *bundle, st *stage) {
	t.Helper()
	if m.guardConfig.Store == nil {
		m.guardConfig.Lock.TTL = cmp.Or(m.guardConfig.Lock.TTL, 2*time.Second)
	}
	m.onTasks = func(_ context.Context, _ redis.Cmder, send func() error) error {
		if m.dead.Load() {
			return io.ErrUnexpectedEOF
		}
		return send()
	}
	m.start(t, b, handlerOf(st.run))
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // it can settle nothing, so it would wait for ever
		_ = m.server.Shutdown(ctx)
	})
}

// silence makes a task's lease look as if its worker had not renewed it in time.
func (b *bundle) silence(t *testing.T, id string) {
	t.Helper()
	at := float64(time.Now().Add(-time.Hour).Unix())
	must(t, b.rdb.ZAddXX(t.Context(), b.key("lease"), redis.Z{Score: at, Member: id}).Err())
}

var quickRecovery = queue.ServerConfig{Lock: lock.Config{TTL: 2 * time.Second}}

// A task whose worker dies runs again as soon as its lock has expired, before those who wait. It uses no
// retry, also on its last attempt.
func TestKilledTaskRunsAgain(t *testing.T) {
	t.Parallel()
	b, st, j := setup(t), newStage(t), &journal{}
	st.unsafe = true // the killed one's handler goes on
	var victim mortal
	victim.serve(t, b, st)
	zombie, other := st.hold(0), st.hold(2)
	id := b.enqueue(t, b.job(0))
	within(t, patience, "the first attempt", zombie.entered)
	bystander := job{Res: b.resource + ":other", N: 2}
	otherID := b.enqueue(t, bystander)
	within(t, patience, "another task of the same worker", other.entered)
	waiters := b.park(t, 1)
	again := st.hold(0)
	killed := time.Now()
	victim.dead.Store(true)

	cfg := quickRecovery
	cfg.Observe = j.observe
	b.serve(t, cfg, st.run)
	within(t, patience, "the second attempt", again.entered)
	if took := time.Since(killed); took > promised(quickRecovery.Lock.TTL+2*time.Second) {
		t.Errorf("want it to run again when its lock has expired, have it after %v", took)
	}
	info := b.awaitState(t, id, asynq.TaskStateActive)
	if crashes := b.rdb.HGet(t.Context(), b.taskKey(id), "siding_crashes").Val(); info.Retried != 0 || crashes != "1" {
		t.Errorf("want no retry used, with one crash counted, have %s, %+v", crashes, info)
	}
	b.wantWaiters(t, waiters...)
	again.open()
	b.awaitGone(t, append(waiters, id, otherID)...)
	for _, lost := range []string{id, otherID} {
		if e := j.await(t, queue.EventRecovered, lost, 1); e.Resource == "" || e.Queue != b.queue {
			t.Errorf("%s: want its recovery told, have %+v", lost, e)
		}
	}
	if have := j.of(queue.EventRecovered, ""); len(have) != 2 {
		t.Errorf("want two recoveries told, have %+v", have)
	}
	if info := b.stats(t); info.Failed != 0 || info.Processed != 3 || info.Size != 0 {
		t.Errorf("want 3 processed, none failed, none left, have %+v", info)
	}
	zombie.open()
	other.open()
}

// A task whose lease has ended, but which still holds its lock, is at work.
func TestOrphanThatHoldsItsLockIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]lock.Store{"on the Redis of the tasks": nil, "elsewhere": newQueueless(locktest.NewMemory())} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, j := setup(t), newStage(t), &journal{}
			st.unfenced = store != nil
			b.serve(t, queue.ServerConfig{Store: store, Lock: shortTimes, Observe: j.observe}, st.run)
			holder, id := b.begin(t, st, 0)
			b.serve(t, queue.ServerConfig{Store: store, Lock: quickRecovery.Lock, Observe: j.observe}, st.run)
			steadily(t, 2*time.Second, "the task active", func() bool {
				b.silence(t, id) // time and again, as the holder renews it
				return b.state(id) == asynq.TaskStateActive
			})
			holder.open()
			b.awaitGone(t, id)
			st.wantOrder(0)
			if have := append(j.of(queue.EventLost, id), j.of(queue.EventRecovered, id)...); len(have) != 0 {
				t.Errorf("want it neither lost nor recovered, have %+v", have)
			}
		})
	}
}

// The crashes of a guarded task use no retry at first. Those after that do, and so does each crash of a task
// without a resource. All servers may have been dead for long.
func TestKilledTasks(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		recovery queue.Recovery
		retries  int
		crashes  int
		task     queue.Task
		long     bool            // the lease ended an hour ago, and the lock has expired
		want     asynq.TaskState // 0 if it runs again
		retried  int
	}{
		"a task to be retried":                         {retries: 1},
		"when all servers have been dead for long":     {retries: 1, long: true},
		"its third crash":                              {retries: 1, crashes: 2},
		"its fourth crash":                             {retries: 1, crashes: 3, want: asynq.TaskStateRetry, retried: 1},
		"a fourth crash of four":                       {recovery: queue.Recovery{Crashes: 4}, retries: 1, crashes: 3},
		"no crash is tolerated":                        {recovery: queue.Recovery{Crashes: -1}, retries: 1, want: asynq.TaskStateRetry, retried: 1},
		"without retries":                              {retries: queue.NoRetries, want: asynq.TaskStateArchived},
		"without retries, but asked for":               {recovery: queue.Recovery{NoRetries: true}, retries: queue.NoRetries},
		"without retries, asked for, the fourth crash": {recovery: queue.Recovery{NoRetries: true}, retries: queue.NoRetries, crashes: 3, want: asynq.TaskStateArchived},
		"unguarded":                                    {retries: 1, task: note{}, want: asynq.TaskStateRetry, retried: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st, j := setup(t), newStage(t), &journal{}
			st.unsafe = true // the killed one's handler goes on
			var victim mortal
			victim.serve(t, b, st)
			zombie := st.hold(0)
			task := tt.task
			if task == nil {
				task = b.job(0)
			}
			id := b.enqueue(t, task, queue.Options{Retries: tt.retries})
			within(t, patience, "the first attempt", zombie.entered)
			must(t, b.rdb.HSet(t.Context(), b.taskKey(id), "siding_crashes", tt.crashes).Err())
			victim.dead.Store(true)
			if tt.task != nil || tt.long {
				b.silence(t, id) // its lease would last for half a minute
			}
			if tt.long {
				poll.Eventually(t, "the lock has run out", func() bool { return b.value(t) == "" })
			}
			cfg := quickRecovery
			cfg.Recovery, cfg.Observe = tt.recovery, j.observe
			cfg.Asynq.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
			b.serve(t, cfg, st.run)
			if tt.want == 0 {
				b.awaitGone(t, id)
				j.await(t, queue.EventRecovered, id, 1)
				if have := b.stats(t).Failed; have != 0 {
					t.Errorf("want no failure counted, have %d", have)
				}
			} else {
				info := b.awaitState(t, id, tt.want)
				if info.Retried != tt.retried || info.LastErr != asynq.ErrLeaseExpired.Error() || len(j.of(queue.EventRecovered, id)) != 0 {
					t.Errorf("want %d retries used, and the reason, have %+v", tt.retried, info)
				}
				if have := b.stats(t).Failed; have != 1 {
					t.Errorf("want one failure counted, have %d", have)
				}
			}
			zombie.open()
		})
	}
}
