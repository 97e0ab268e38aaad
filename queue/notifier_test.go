package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/queue"
)

// The servers of these tests find by themselves, in time, nothing: what they take at once
// was heard.
const (
	noPoll = time.Minute
	atOnce = prompt / 2
)

// setupAlone returns a bundle on a server of the test's own, whose figures are of it alone.
func setupAlone(t *testing.T, args ...string) (*bundle, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t, args...)
	return setupOn(t, redis.UniversalOptions{Addrs: []string{server.Addr}}), server
}

// asleep is how long a server takes at most to fall asleep: two rounds of its queues.
const asleep = 300 * time.Millisecond

// awaitIdle waits until so many notifiers listen, and all servers sleep.
func (b *bundle) awaitIdle(t *testing.T, notifiers int) {
	t.Helper()
	poll.Eventually(t, fmt.Sprintf("%d notifiers that listen", notifiers), func() bool {
		info, err := b.rdb.Info(t.Context(), "clients").Result()
		return err == nil && strings.Contains(info, fmt.Sprintf("blocked_clients:%d\r\n", notifiers))
	})
	poll.Eventually(t, "a time without a dequeue", func() bool { return b.over(t, asleep, "rpoplpush") == 0 })
}

// calls returns how often Redis has run a command.
func (b *bundle) calls(t *testing.T, commands ...string) (sum int) {
	t.Helper()
	info, err := b.rdb.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range commands {
		n := 0
		_, _ = fmt.Sscanf(info["Commandstats"]["cmdstat_"+command], "calls=%d,", &n)
		sum += n
	}
	return sum
}

// over returns how often Redis runs commands in a time.
func (b *bundle) over(t *testing.T, d time.Duration, commands ...string) int {
	t.Helper()
	before := b.calls(t, commands...)
	_ = sleep.For(t.Context(), d)
	return b.calls(t, commands...) - before
}

func (b *bundle) notifyKey() string { return "siding:{" + b.queue + "}:notify" }

// due lets the time of a delayed task come.
func (b *bundle) due(t *testing.T, id string) {
	t.Helper()
	if err := b.rdb.ZAdd(t.Context(), b.key("scheduled"), redis.Z{Score: 1, Member: id}).Err(); err != nil {
		t.Fatal(err)
	}
}

// An idle server starts a task at once, whoever puts it into its queue.
func TestIdleServerStartsAtOnce(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(t *testing.T, b *bundle){
		"a client": func(t *testing.T, b *bundle) { t.Helper(); b.enqueue(t, b.job(1)) },
		"a notifying client of asynq": func(t *testing.T, b *bundle) {
			t.Helper()
			client := asynq.NewClient(queue.NotifyingConn(asynq.RedisClientOpt{Addr: b.opts.Addrs[0]}))
			defer client.Close()
			if _, err := client.EnqueueContext(t.Context(), plainTask(t, b.job(1)), asynq.Queue(b.queue)); err != nil {
				t.Fatal(err)
			}
		},
		"its fallback time": func(t *testing.T, b *bundle) {
			t.Helper()
			b.due(t, b.enqueuePlain(t, b.job(1), asynq.ProcessIn(time.Hour)))
		},
		"a notifying inspector": func(t *testing.T, b *bundle) {
			t.Helper()
			id := b.enqueuePlain(t, b.job(1), asynq.ProcessIn(time.Hour))
			inspector := asynq.NewInspector(queue.NotifyingConn(asynq.RedisClientOpt{Addr: b.opts.Addrs[0]}))
			defer inspector.Close()
			if err := inspector.RunTask(b.queue, id); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := setupAlone(t)
			st := newStage(t)
			b.serve(t, queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: noPoll}, Guard: queue.GuardConfig{Resources: resources()}}, st.run)
			b.awaitIdle(t, 1)
			start := time.Now()
			put(t, b)
			st.awaitRuns(1)
			wantAtOnce(t, start)
		})
	}
}

func wantAtOnce(t *testing.T, start time.Time) {
	t.Helper()
	took := time.Since(start)
	t.Logf("after %v", took)
	if took > atOnce {
		t.Errorf("want it at once, have it after %v", took)
	}
}

// A team may use one connection option for all: what it has from NotifyingConn changes nothing
// for the guard.
func TestGuardOnANotifyingConn(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		p := &plain{notifying: true, config: asynq.Config{TaskCheckInterval: noPoll}}
		p.config.Queues = map[string]int{b.queue: 1, b.queue + ".second": 1}
		holder := b.holdElsewhere(t, st, longTimeout)
		p.serve(t, b, st)
		ids := b.park(t, 1, 2)
		b.wantWaiters(t, ids...)
		b.over(t, asleep)
		start := time.Now()
		holder.open()
		st.awaitRuns(3)
		wantAtOnce(t, start)
		for n := range 3 {
			b.over(t, asleep)
			start = time.Now()
			b.enqueue(t, job{Res: b.resource, N: 3 + n}, queue.Options{Queue: b.queue + ".second"})
			st.awaitRuns(4 + n)
			wantAtOnce(t, start)
		}
	})
}

// A release wakes the idle server of the next waiter, on both paths.
func TestIdleServerIsNotified(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		holder := b.holdElsewhere(t, st, longTimeout)
		b.serve(t, queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: noPoll}}, st.run)
		b.park(t, 1)
		b.over(t, asleep)
		start := time.Now()
		holder.open()
		st.awaitRuns(2)
		wantAtOnce(t, start)
	})
}

// A server that shuts down puts its tasks back, and another one that is idle hears it.
func TestIdleServerHearsAShutdown(t *testing.T) {
	t.Parallel()
	b, _ := setupAlone(t)
	st := newStage(t)
	began := make(chan struct{}, 1)
	ending := b.newServer(t, queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: noPoll}})
	queue.Handle(ending, func(ctx context.Context, _ job) error {
		began <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	if err := ending.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.enqueue(t, b.job(1))
	within(t, patience, "the task", began)
	b.serve(t, queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: noPoll}}, st.run)
	b.awaitIdle(t, 2)
	start := time.Now()
	shutdown(t, ending)
	st.awaitRuns(1)
	wantAtOnce(t, start)
}

// Tasks of a plain asynq client are found after the poll interval, in both ways.
func TestIdleServerFindsWhatItDidNotHear(t *testing.T) {
	t.Parallel()
	const poll = 200 * time.Millisecond
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		st := newStage(t)
		b.serve(t, queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: poll}, Guard: queue.GuardConfig{Resources: resources()}}, st.run)
		for n := range 5 {
			start := time.Now()
			b.enqueuePlain(t, b.job(n))
			st.awaitRuns(n + 1)
			took := time.Since(start)
			t.Logf("after %v", took)
			if took > atOnce {
				t.Errorf("want it after about %v, have %v", poll, took)
			}
		}
	})
}

// One notification wakes one of many idle workers.
func TestOneTaskCostsFewDequeues(t *testing.T) {
	t.Parallel()
	const servers, tasks = 3, 10
	b, _ := setupAlone(t)
	st := newStage(t)
	for range servers {
		b.serve(t, queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: noPoll}}, st.run)
	}
	b.awaitIdle(t, servers)
	before := b.calls(t, "rpoplpush")
	for n := range tasks {
		b.enqueue(t, b.job(n))
		st.awaitRuns(n + 1)
	}
	b.over(t, 200*time.Millisecond)
	// One takes the task and one finds that there is no more.
	if have := b.calls(t, "rpoplpush") - before; have > 3*tasks {
		t.Errorf("want up to 3 dequeues a task, have %d for %d", have, tasks)
	}
}

// A process whose servers have gone listens for a second more: what it hears is for others.
func TestNoticeForAServerThatHasGone(t *testing.T) {
	t.Parallel()
	b, _ := setupAlone(t)
	st := newStage(t)
	gone := &plain{config: asynq.Config{TaskCheckInterval: noPoll}}
	gone.serve(t, b, newStage(t))
	b.awaitIdle(t, 1)
	gone.server.Shutdown() // and no Guard.Wait
	b.serve(t, queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: noPoll}}, st.run)
	b.awaitIdle(t, 1)
	for n := range 3 {
		start := time.Now()
		b.enqueue(t, b.job(n))
		st.awaitRuns(n + 1)
		wantAtOnce(t, start)
	}
}

// An idle server leaves Redis in peace, whatever it has in its queues.
func TestIdleServerIsQuiet(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before func(t *testing.T, b *bundle)
		after  func(t *testing.T, b *bundle)
	}{
		"an empty queue": {},
		"a paused queue": {
			before: func(t *testing.T, b *bundle) {
				t.Helper()
				for n := range 5 {
					b.enqueue(t, b.job(n))
				}
				if err := b.inspector.PauseQueue(b.queue); err != nil {
					t.Fatal(err)
				}
			},
		},
		"stale notices": {
			after: func(t *testing.T, b *bundle) {
				t.Helper()
				if err := b.rdb.RPush(t.Context(), b.notifyKey(), slices.Repeat([]any{"1"}, 100)...).Err(); err != nil {
					t.Fatal(err)
				}
			},
		},
		"stale notices of a paused queue": {
			before: func(t *testing.T, b *bundle) {
				t.Helper()
				for n := range 150 {
					b.enqueue(t, b.job(n))
				}
				if err := b.inspector.PauseQueue(b.queue); err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := setupAlone(t)
			if tt.before != nil {
				tt.before(t, b)
			}
			b.serve(t, queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: time.Second, DelayedTaskCheckInterval: time.Minute}}, func(context.Context, job) error {
				t.Error("want no run")
				return nil
			})
			b.awaitIdle(t, 1)
			if tt.after != nil {
				tt.after(t, b)
			}
			poll.Eventually(t, "an empty notify list", func() bool { return b.rdb.LLen(t.Context(), b.notifyKey()).Val() == 0 })
			b.over(t, 500*time.Millisecond)
			const seconds = 4
			before := b.calls(t, "blpop")
			have := b.over(t, seconds*time.Second, "evalsha", "eval", "blpop", "exists", "llen")
			t.Logf("%d calls in %d s, %d of them BLPOP", have, seconds, b.calls(t, "blpop")-before)
			// In a second the notifier makes two calls, the sweeper four, and the recovery one. In a paused
			// queue the server asks as well: two calls. Without the notifier it would make 100.
			if most := seconds * 20; have > most {
				t.Errorf("want up to %d calls in %d s, have %d", most, seconds, have)
			}
		})
	}
}

// An idle server polls at its interval without a notifier, and with one for an asynq whose dequeues
// are not known.
func TestIdleServerPolls(t *testing.T) {
	t.Parallel()
	const anotherDequeue = `-- of another version
if redis.call("EXISTS", KEYS[2]) == 0 then
	local id = redis.call("RPOPLPUSH", KEYS[1], KEYS[3])
	if id then
		redis.call("HSET", ARGV[2] .. id, "state", "active")
		redis.call("HDEL", ARGV[2] .. id, "pending_since")
		redis.call("ZADD", KEYS[4], ARGV[1], id)
		return redis.call("HGET", ARGV[2] .. id, "msg")
	end
end
return nil`
	for name, p := range map[string]*plain{
		"no notifier": {guardConfig: queue.GuardConfig{NoNotifier: true}, config: asynq.Config{TaskCheckInterval: 10 * time.Millisecond}},
		"another asynq": {inFront: func(_ context.Context, cmd redis.Cmder, send func() error) error {
			if hasKeys(cmd, ":pending", ":paused", ":active", ":lease") {
				args := cmd.Args()
				args[0], args[1] = "eval", anotherDequeue
			}
			return send()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := setupAlone(t)
			st := newStage(t)
			p.serve(t, b, st)
			const polls = 50 // an idle server with a notifier makes none
			start, before := time.Now(), b.calls(t, "rpoplpush")
			have := 0
			poll.Eventually(t, "dequeues at the interval", func() bool {
				have = b.calls(t, "rpoplpush") - before
				return have >= polls
			})
			took := time.Since(start)
			t.Logf("%d dequeues in %v", have, took)
			if most := int(took/(5*time.Millisecond)) + 10; have > most { // every 5 to 15 ms
				t.Errorf("want up to %d dequeues in %v, have %d", most, took, have)
			}
			start = time.Now()
			b.enqueue(t, note{})
			b.awaitGone(t, b.enqueue(t, b.job(1)))
			wantAtOnce(t, start)
		})
	}
}

// Redis goes away, or stands still, and comes back. Tasks are taken again soon. One warning says
// that no notification could be received.
func TestNotifierAfterAnOutage(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]struct {
		begins func(*redistest.Server)
		ends   func(*testing.T, *redistest.Server)
	}{
		"gone":   {(*redistest.Server).Kill, func(t *testing.T, s *redistest.Server) { t.Helper(); s.Restart(t) }},
		"silent": {(*redistest.Server).Pause, func(t *testing.T, s *redistest.Server) { t.Helper(); s.Resume() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "silent" {
				verify.Long(t)
			}
			b, server := setupAlone(t)
			st, logs := newStage(t), newLogs(t)
			b.serve(t, queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: noPoll}, Guard: queue.GuardConfig{Logger: logs.logger}}, st.run)
			b.awaitIdle(t, 1)
			outage.begins(server)
			poll.Eventually(t, "the warning", func() bool { return len(logs.lines("notifications do not arrive", slog.LevelWarn)) > 0 })
			outage.ends(t, server)
			poll.Eventually(t, "an answer", func() bool { return b.rdb.Ping(t.Context()).Err() == nil })
			start := time.Now()
			b.enqueue(t, b.job(1))
			st.awaitRuns(1)
			if took := time.Since(start); took > prompt {
				t.Errorf("want it within seconds, have %v", took)
			}
			b.awaitIdle(t, 1)
			start = time.Now()
			b.enqueue(t, b.job(2))
			st.awaitRuns(2)
			wantAtOnce(t, start)
			if have := logs.lines("notifications do not arrive", slog.LevelWarn); len(have) != 1 {
				t.Errorf("want one warning, have %d", len(have))
			}
		})
	}
}

// If an ACL forbids to wait for notice, idle workers poll, and one warning says so.
func TestNotifierWithoutRights(t *testing.T) {
	t.Parallel()
	b, server := setupAlone(t)
	if err := b.rdb.Do(t.Context(), "ACL", "SETUSER", "worker", "on", "nopass", "~*", "&*", "+@all", "-blpop").Err(); err != nil {
		t.Fatal(err)
	}
	worker := setupOn(t, redis.UniversalOptions{Addrs: []string{server.Addr}, Username: "worker", Password: "any"})
	worker.queue = b.queue
	st, logs := newStage(t), newLogs(t)
	worker.serve(t, queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: noPoll}, Guard: queue.GuardConfig{Logger: logs.logger}}, st.run)
	for n := range 5 {
		start := time.Now()
		b.enqueue(t, b.job(n))
		st.awaitRuns(n + 1)
		if took := time.Since(start); took > prompt {
			t.Errorf("want it within seconds, have %v", took)
		}
	}
	if have := logs.lines("notifications do not arrive", slog.LevelWarn); len(have) != 1 {
		t.Errorf("want one warning, have %d", len(have))
	}
}

// An idle server ends at once. One whose notifier still listens ends when its dequeue is answered.
func TestIdleServerShutsDown(t *testing.T) {
	t.Parallel()
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		// A dequeue is held back for up to 1 s. A server that waited for that would hardly end quickly once,
		// and not twice. A busy machine may be slow at times.
		var took []time.Duration
		for range 5 {
			b, _ := setupAlone(t)
			s := b.newServer(t, queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: noPoll}, Handler: asynq.NotFoundHandler()})
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.awaitIdle(t, 1)
			start := time.Now()
			shutdown(t, s)
			took = append(took, time.Since(start))
			b.awaitIdle(t, 0)
		}
		slices.Sort(took)
		if took[1] > 900*time.Millisecond {
			t.Errorf("want it at once, have %v", took)
		}
	})
	t.Run("a team's own", func(t *testing.T) {
		t.Parallel()
		b, _ := setupAlone(t)
		p := &plain{config: asynq.Config{TaskCheckInterval: noPoll}}
		p.serve(t, b, newStage(t))
		b.awaitIdle(t, 1)
		start := time.Now()
		p.server.Shutdown()
		if took := time.Since(start); took > prompt {
			t.Errorf("want it within about 1 s, have %v", took)
		}
		p.stop(t)
		b.awaitIdle(t, 0)
	})
	t.Run("redis does not answer", func(t *testing.T) {
		t.Parallel()
		b, server := setupAlone(t)
		logs := newLogs(t)
		s := b.newServer(t, queue.ServerConfig{
			Asynq: asynq.Config{TaskCheckInterval: noPoll}, Guard: queue.GuardConfig{Logger: logs.logger}, Handler: asynq.NotFoundHandler(),
		})
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.awaitIdle(t, 1)
		server.Pause()
		t.Cleanup(func() {
			server.Resume()
			poll.Eventually(t, "asynq's end", func() bool { return len(logs.lines("message=Exiting")) == 1 })
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("want %v, have %v", context.DeadlineExceeded, err)
		}
		if took := time.Since(start); took > prompt {
			t.Errorf("want it at the hard limit of 1 s, have %v", took)
		}
	})
}

// A client whose read timeout is short hears, too.
func TestNotifierOfAnImpatientClient(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		b.opts.ReadTimeout = 300 * time.Millisecond
		st, logs := newStage(t), newLogs(t)
		b.serve(t, queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: noPoll}, Guard: queue.GuardConfig{Logger: logs.logger}}, st.run)
		for n := range 3 {
			b.over(t, 1700*time.Millisecond)
			start := time.Now()
			b.enqueue(t, b.job(n))
			st.awaitRuns(n + 1)
			wantAtOnce(t, start)
		}
		if have := logs.lines("notifications do not arrive"); len(have) != 0 {
			t.Errorf("want no warning, have %q", have)
		}
	})
}

// A server with many queues is notified of each. On one node of a Cluster it waits for each on a
// separate connection.
func TestEveryQueueIsHeard(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, b *bundle) {
		t.Helper()
		const many = 30
		b.opts.PoolSize = 5
		queues := make(map[string]int)
		for i := range many {
			queues[fmt.Sprintf("%s.%d", b.queue, i)] = 1 + i%3
		}
		st := newStage(t)
		b.serve(t, queue.ServerConfig{Asynq: asynq.Config{TaskCheckInterval: noPoll, Queues: queues}}, st.run)
		b.over(t, 1500*time.Millisecond) // all sleep
		names := slices.Sorted(maps.Keys(queues))
		for n, name := range names {
			start := time.Now()
			b.enqueue(t, b.job(n), queue.Options{Queue: name})
			st.awaitRuns(n + 1)
			wantAtOnce(t, start)
		}
	})
}

// Weights and priorities hold under load.
func TestQueuesUnderLoad(t *testing.T) {
	t.Parallel()
	for name, strict := range map[string]bool{"weights": false, "strict priority": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const each = 200
			b := setup(t)
			high, low := b.queue+".high", b.queue+".low"
			for n := range each {
				b.enqueue(t, job{Res: fmt.Sprintf("%s:%d", b.resource, n), N: 1}, queue.Options{Queue: high})
				b.enqueue(t, job{Res: fmt.Sprintf("%s:%d", b.resource, each+n), N: 0}, queue.Options{Queue: low})
			}
			var mu sync.Mutex
			var order []int
			b.serve(t, queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{high: 4, low: 1}, StrictPriority: strict, Concurrency: 1, TaskCheckInterval: noPoll}},
				func(_ context.Context, j job) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, j.N)
					return nil
				})
			done := func() []int {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(order)
			}
			poll.Eventually(t, "all runs", func() bool { return len(done()) == 2*each })
			first := 0
			for _, n := range done()[:each] {
				first += n
			}
			// Some 160 of the first 200 are of the queue with four fifths of the weight.
			if strict && first != each || !strict && (first < each*65/100 || first > each*95/100) {
				t.Errorf("of the first %d: want them of the queue of the higher weight, have %d", each, first)
			}
		})
	}
}
