package queue_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A mortal is a server that can be cut off. From then on Redis hears nothing from the server, as if
// it had been killed. But its handlers go on.
type mortal struct {
	plain

	dead atomic.Bool
	mute atomic.Bool // only its leases are no longer renewed
}

func (m *mortal) serve(t *testing.T, b *bundle, st *stage) {
	t.Helper()
	if m.guardConfig.Store == nil {
		m.guardConfig.Lock.TTL = cmp.Or(m.guardConfig.Lock.TTL, 2*time.Second)
	}
	m.onTasks = func(_ context.Context, cmd redis.Cmder, send func() error) error {
		switch {
		case m.dead.Load():
			return io.ErrUnexpectedEOF
		case m.mute.Load() && cmd.Name() == "zadd":
			return nil
		}
		return send()
	}
	m.onLocks = func(_ context.Context, _ redis.Cmder, send func() error) error {
		if m.dead.Load() {
			return io.ErrUnexpectedEOF
		}
		return send()
	}
	m.plain.serve(t, b, st)
}

// silence makes a task's lease look as if its worker had missed two heartbeats.
func (b *bundle) silence(t *testing.T, id string) {
	t.Helper()
	at := float64(time.Now().Add(10 * time.Second).Unix())
	if err := b.rdb.ZAddXX(t.Context(), b.key("lease"), redis.Z{Score: at, Member: id}).Err(); err != nil {
		t.Fatal(err)
	}
}

var quickRecovery = queue.ServerConfig{Guard: queue.GuardConfig{Lock: lock.Config{TTL: 2 * time.Second}}}

// A task whose worker dies runs again soon, behind those who have waited. It uses no retry, also on
// its last attempt, and its last error says what happened.
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
	victim.dead.Store(true)
	b.silence(t, id)
	b.silence(t, otherID)

	cfg := quickRecovery
	cfg.Guard.Observe = j.observe
	b.serve(t, cfg, st.run)
	b.awaitGone(t, waiters...)
	if e := j.await(t, queue.EventAcquired, waiters[0], 1); e.Via != queue.ViaRecovery || e.HandOff != 0 { // whether the sweeper or the recovery found the lock free
		t.Errorf("the waiter: want its lock found free, have %+v", e)
	}
	within(t, patience, "the second attempt", again.entered)
	info := b.awaitState(t, id, asynq.TaskStateActive)
	// The task's last error tells of the crash. If the task had to wait since, it tells for what.
	crashes := b.rdb.HGet(t.Context(), b.taskKey(id), "siding_crashes").Val()
	if info.Retried != 0 || crashes != "1" || !strings.Contains(info.LastErr, "crash 1 of 3") && !strings.Contains(info.LastErr, "waiting for") {
		t.Errorf("want no retry used, with one crash counted and told, have %s, %+v", crashes, info)
	}
	again.open()
	b.awaitGone(t, id, otherID)
	for _, lost := range []string{id, otherID} {
		if have := j.of(queue.EventRecovered, lost); len(have) != 1 || have[0].Resource == "" || have[0].TaskKind != "test:job" {
			t.Errorf("%s: want one recovery told, have %+v", lost, have)
		}
	}
	if info := b.stats(t); info.Failed != 0 || info.Processed != 3 || info.Size != 0 {
		t.Errorf("want 3 processed, none failed, none left, have %+v", info)
	}
	zombie.open()
	other.open()
}

// A task whose beats are missed, but which still holds its lock, is at work.
func TestOrphanThatHoldsItsLockIsLeftAlone(t *testing.T) {
	t.Parallel()
	b, st, j := setup(t), newStage(t), &journal{}
	var m mortal
	m.guardConfig.Observe, m.guardConfig.Lock = j.observe, shortTimes
	m.mute.Store(true)
	m.serve(t, b, st)
	holder := st.hold(0)
	id := b.enqueue(t, b.job(0))
	within(t, patience, "the holder", holder.entered)
	b.silence(t, id)
	b.serve(t, quickRecovery, st.run)
	var sweeps int
	last := ""
	steadily(t, 6*time.Second, "the task active", func() bool {
		if fence := b.rdb.Get(t.Context(), "{lock:"+b.resource+"}:fence").Val(); fence != last {
			last, sweeps = fence, sweeps+1
		}
		return b.state(id) == asynq.TaskStateActive
	})
	if sweeps != 1 {
		t.Errorf("want its lock granted once, have it %d times", sweeps)
	}
	holder.open()
	b.awaitGone(t, id)
	st.wantOrder(0)
	if have := j.of(queue.EventLost, id); len(have) != 0 {
		t.Errorf("want no lease lost, have %+v", have)
	}
}

// Whom the recovery leaves to asynq.
func TestKilledTasksThatAreNotTolerated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		recovery  queue.Recovery
		retries   int
		crashes   int
		task      func(*bundle) queue.Task
		tolerated bool
	}{
		"a task to be retried":                         {retries: 1, tolerated: true},
		"its second crash":                             {retries: 1, crashes: 1, tolerated: true},
		"its third crash":                              {retries: 1, crashes: 2, tolerated: true},
		"its fourth crash":                             {retries: 1, crashes: 3},
		"a fourth crash of four":                       {recovery: queue.Recovery{Crashes: 4}, retries: 1, crashes: 3, tolerated: true},
		"no crash is tolerated":                        {recovery: queue.Recovery{Crashes: -1}, retries: 1},
		"without retries":                              {retries: queue.NoRetries},
		"without retries, but asked for":               {recovery: queue.Recovery{NoRetries: true}, retries: queue.NoRetries, tolerated: true},
		"without retries, asked for, the fourth crash": {recovery: queue.Recovery{NoRetries: true}, retries: queue.NoRetries, crashes: 3},
		"unguarded":                                    {retries: 1, task: func(*bundle) queue.Task { return note{} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !tt.tolerated {
				verify.Long(t) // watches for seconds that nothing happens
			}
			b, st, j := setup(t), newStage(t), &journal{}
			st.unsafe = true
			var victim mortal
			victim.guardConfig.Recovery.Crashes = -1
			victim.serve(t, b, st)
			zombie := st.hold(0)
			var task queue.Task = b.job(0)
			if tt.task != nil {
				task = tt.task(b)
			}
			id := b.enqueue(t, task, queue.Options{Retries: tt.retries})
			within(t, patience, "the first attempt", zombie.entered)
			if err := b.rdb.HSet(t.Context(), b.taskKey(id), "siding_crashes", tt.crashes).Err(); err != nil {
				t.Fatal(err)
			}
			victim.dead.Store(true)
			b.silence(t, id)
			cfg := quickRecovery
			cfg.Guard.Recovery, cfg.Guard.Observe = tt.recovery, j.observe
			b.serve(t, cfg, st.run)
			if tt.tolerated {
				b.awaitGone(t, id)
				j.await(t, queue.EventRecovered, id, 1)
			} else {
				steadily(t, 7*time.Second, "the task left to asynq", func() bool { return b.state(id) == asynq.TaskStateActive })
				if have := j.of(queue.EventRecovered, id); len(have) != 0 {
					t.Errorf("want no recovery, have %+v", have)
				}
			}
			zombie.open()
		})
	}
}

// All workers were down for so long that asynq takes their tasks for lost as soon as a server starts.
// Tasks whose crash is tolerated run again and use no retry. asynq counts a retry of the others.
func TestAllWorkersWereDown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		recovery queue.Recovery
		retries  int
		task     queue.Task
		counted  bool
	}{
		"to be retried":                            {retries: 1},
		"without retries, but asked for":           {recovery: queue.Recovery{NoRetries: true}, retries: queue.NoRetries},
		"unguarded":                                {retries: 1, task: note{}, counted: true},
		"no crash is tolerated":                    {recovery: queue.Recovery{Crashes: -1}, retries: 1, counted: true},
		"without retries: asynq archives the task": {retries: queue.NoRetries, counted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, st := setup(t), newStage(t)
			st.unsafe = true // the killed one's handler goes on
			var victim mortal
			victim.guardConfig.Recovery.Crashes = -1
			victim.serve(t, b, st)
			zombie := st.hold(0)
			task := tt.task
			if task == nil {
				task = b.job(0)
			}
			id := b.enqueue(t, task, queue.Options{Retries: tt.retries})
			within(t, patience, "the first attempt", zombie.entered)
			victim.dead.Store(true)
			ended := redis.Z{Score: float64(time.Now().Add(-time.Hour).Unix()), Member: id}
			if err := b.rdb.ZAddXX(t.Context(), b.key("lease"), ended).Err(); err != nil {
				t.Fatal(err)
			}
			poll.Eventually(t, "the lock has run out", func() bool { return b.rdb.Exists(t.Context(), b.lockKey()).Val() == 0 })
			cfg := quickRecovery
			cfg.Guard.Recovery = tt.recovery
			b.serve(t, cfg, st.run)
			if tt.counted {
				poll.Eventually(t, "the attempt to use a retry", func() bool { return b.stats(t).Failed == 1 })
			} else {
				b.awaitGone(t, id)
				if have := b.stats(t).Failed; have != 0 {
					t.Errorf("want no retry used, have %d", have)
				}
			}
			zombie.open()
		})
	}
}

// The answer to a dequeue is lost, so nobody has the task, and its handler has not started. So the
// task runs although it has no retries.
func TestTaskWhoseDequeueGotNoAnswer(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	b, st := setup(t), newStage(t)
	var lost atomic.Bool
	unreachable := &plain{onTasks: func(_ context.Context, cmd redis.Cmder, send func() error) error {
		err := send()
		if c, ok := cmd.(*redis.Cmd); ok && isDequeue(cmd) && err == nil && c.Val() != nil && !lost.Swap(true) {
			c.SetVal(nil)
			return io.ErrUnexpectedEOF
		}
		return err
	}}
	unreachable.serve(t, b, st)
	id := b.enqueue(t, b.job(0), queue.Options{Retries: queue.NoRetries})
	poll.Eventually(t, "the answer lost", lost.Load)
	if have := b.state(id); have != asynq.TaskStateActive {
		t.Fatalf("want the task active, have it %v", have)
	}
	b.silence(t, id)
	b.awaitGone(t, id)
	st.wantOrder(0)
}

// The process that takes the task again still runs the attempt that lost it. The task waits until
// that one has returned, as asynq keeps one lease for both.
func TestTaskComesBackToTheProcessOfItsZombie(t *testing.T) {
	t.Parallel()
	b, st, logs := setup(t), newStage(t), newLogs(t)
	var m mortal
	m.guardConfig.Logger = logs.logger
	m.mute.Store(true)
	m.serve(t, b, st)
	zombie := st.hold(0)
	id := b.enqueue(t, b.job(0))
	within(t, patience, "the first attempt", zombie.entered)
	if err := b.rdb.Del(t.Context(), b.lockKey()).Err(); err != nil {
		t.Fatal(err)
	}
	within(t, patience, "it to learn of its loss", zombie.ended)
	b.silence(t, id)
	var info *asynq.TaskInfo
	poll.Eventually(t, "the second attempt to make way", func() bool {
		info, _ = b.inspector.GetTaskInfo(b.queue, id)
		return info != nil && strings.Contains(info.LastErr, "has not returned yet")
	})
	if info.Retried != 0 {
		t.Errorf("want no retry used, have %+v", info)
	}
	st.wantOrder(0)
	zombie.open()
	b.awaitGone(t, id)
	st.wantOrder(0, 0)
}

// One of many servers looks for orphans. When that one has gone, another does.
func TestOneServerRecovers(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	b, st := setup(t), newStage(t)
	type candidate struct {
		plain

		looks atomic.Int32
	}
	var candidates []*candidate
	for range 3 {
		c := &candidate{}
		c.guardConfig = queue.GuardConfig{Lock: quickRecovery.Guard.Lock}
		c.onLocks = func(_ context.Context, cmd redis.Cmder, send func() error) error {
			if isSilent(cmd) {
				c.looks.Add(1)
			}
			return send()
		}
		c.serve(t, b, st)
		candidates = append(candidates, c)
	}
	for left := 3; left > 0; left-- {
		for _, c := range candidates {
			c.looks.Store(0)
		}
		id := fmt.Sprintf("task-%d", left)
		b.strand(t, id)
		b.awaitGone(t, id)
		var elected []*candidate
		poll.Eventually(t, "a second look", func() bool {
			elected = nil
			for _, c := range candidates {
				if n := c.looks.Load(); n > 1 {
					elected = append(elected, c)
				}
			}
			return len(elected) > 0
		})
		if len(elected) != 1 {
			t.Fatalf("want one that looks for orphans, have %d", len(elected))
		}
		candidates = slices.DeleteFunc(candidates, func(c *candidate) bool { return c == elected[0] })
		for _, c := range candidates {
			if n := c.looks.Load(); n > 0 {
				t.Errorf("want nobody else to look, have %d looks", n)
			}
		}
		elected[0].stop(t)
	}
}

// The lock of an election ends five seconds after its holder has died, at the latest. Until then no server
// looks after the queues. The TTL of tasks' locks may be longer.
func TestElectionEndsSoon(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cfg  lock.Config
		most time.Duration
	}{
		"default": {lock.Config{}, 5 * time.Second},
		"short":   {shortTimes, shortTimes.TTL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := setupAlone(t)
			b.serve(t, queue.ServerConfig{Guard: queue.GuardConfig{Lock: tt.cfg}}, newStage(t).run)
			poll.Eventually(t, "an elected server", func() bool {
				keys := b.rdb.Keys(t.Context(), "lock:siding-recovery:*").Val()
				if len(keys) != 1 {
					return false
				}
				left := b.rdb.PTTL(t.Context(), keys[0]).Val()
				if left > tt.most {
					t.Fatalf("want it to end within %v, have %v", tt.most, left)
				}
				return left > 0
			})
		})
	}
}

// strand makes a task that a worker has taken which is no more.
func (b *bundle) strand(t *testing.T, id string) {
	t.Helper()
	ctx := t.Context()
	b.enqueue(t, b.job(0), queue.Options{TaskID: id, Delay: time.Hour})
	pipe := b.rdb.TxPipeline()
	pipe.ZRem(ctx, b.key("scheduled"), id)
	pipe.LPush(ctx, b.key("active"), id)
	pipe.ZAdd(ctx, b.key("lease"), redis.Z{Score: float64(time.Now().Add(10 * time.Second).Unix()), Member: id})
	pipe.HSet(ctx, b.taskKey(id), "state", "active", "siding_attempt", "of a process that died")
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
}

// A guard may be that of several servers, of which some are made when others have
// begun. The tasks of all their queues are recovered.
func TestRecoveryOfTheQueuesOfALaterServer(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	p := &plain{guardConfig: queue.GuardConfig{Lock: quickRecovery.Guard.Lock}}
	p.serve(t, b, st)
	b.strand(t, "first")
	b.awaitGone(t, "first")

	later := *b
	later.queue += ".later"
	server := asynq.NewServer(p.guard.Conn(b.redisOpt()), p.guard.Wrap(asynq.Config{
		Queues:            map[string]int{later.queue: 1, b.queue: 1},
		TaskCheckInterval: 10 * time.Millisecond,
		LogLevel:          asynq.FatalLevel,
	}))
	handle := func(ctx context.Context, _ *asynq.Task) error { return st.run(ctx, b.job(1)) }
	if err := server.Start(p.guard.Middleware(asynq.HandlerFunc(handle))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	later.strand(t, "second")
	later.awaitGone(t, "second")
	st.wantOrder(0, 1)
}

// An active task may have no lease in Redis, as after a failover. The task is given one, and runs
// again once nobody renews that. So is one without a resource, by asynq.
func TestTasksWithoutALease(t *testing.T) {
	t.Parallel()
	b, st := setup(t), newStage(t)
	st.unsafe = true // the killed one's handler goes on
	var victim mortal
	victim.serve(t, b, st)
	zombies := []*gate{st.hold(0), st.hold(1)}
	guarded := b.enqueue(t, b.job(0), queue.Options{Retries: queue.NoRetries})
	plain := b.enqueueTask(t, asynq.NewTask(note{}.Kind(), []byte(`{"n":1}`)))
	for _, zombie := range zombies {
		within(t, patience, "the first attempt", zombie.entered)
	}
	victim.dead.Store(true)
	if err := b.rdb.Del(t.Context(), b.key("lease")).Err(); err != nil {
		t.Fatal(err)
	}
	cfg := quickRecovery
	cfg.Guard.Recovery.NoRetries = true
	b.serve(t, cfg, st.run)
	for _, id := range []string{guarded, plain} {
		poll.Eventually(t, "a lease", func() bool {
			ends, err := b.rdb.ZScore(t.Context(), b.key("lease"), id).Result()
			return err == nil && ends > float64(time.Now().Unix())
		})
	}
	b.silence(t, guarded)
	b.awaitGone(t, guarded)
	for _, zombie := range zombies {
		zombie.open()
	}
}
