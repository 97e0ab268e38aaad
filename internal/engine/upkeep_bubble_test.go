package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
)

// A yard has a Redis in memory whose clock is that of the test, and servers that do upkeep.
type yard struct {
	*testing.T
	*memory

	log *logbook

	mu   sync.Mutex
	cmds map[string]int // how often each command was sent
}

// inYard runs a test in a bubble.
func inYard(t *testing.T, test func(y *yard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		y := &yard{T: t, memory: newMemory(t), log: &logbook{}, cmds: make(map[string]int)}
		y.mini.ClockTTL(true)
		y.AddHook(redistest.Hook(func(cmds []redis.Cmder, send func(...redis.Cmder) error) error {
			y.mu.Lock()
			for _, cmd := range cmds {
				y.cmds[cmd.Name()]++
			}
			y.mu.Unlock()
			return send(cmds...)
		}))
		test(y)
	})
}

// sent returns how often a command was sent.
func (y *yard) sent(name string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.cmds[name]
}

// A keeper is a server that does upkeep.
type keeper struct {
	*upkeep

	stop  func()
	mu    sync.Mutex
	times map[string][]time.Time // when it was told to fetch, by queue
}

// start runs a server until it is stopped.
func (y *yard) start(session string, cfg Config) *keeper {
	y.Helper()
	s := &keeper{times: make(map[string][]time.Time)}
	cfg.Redis, cfg.Logger = y.memory, y.log.logger()
	cfg.TTL = 15 * time.Second
	cfg.Crashes = 3
	if cfg.Queues == nil {
		cfg.Queues = map[string]int{"q": 1}
	}
	cfg = cfg.withDefaults()
	s.upkeep = newUpkeeps(&cfg, session, func(queues ...string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, queue := range queues {
			s.times[queue] = append(s.times[queue], time.Now())
		}
	})[0]
	ctx, cancel := context.WithCancel(context.WithoutCancel(y.Context()))
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	s.stop = func() { cancel(); running.Wait() }
	y.Cleanup(s.stop)
	synctest.Wait()
	return s
}

// told returns when the server was told to fetch from q since the last call.
func (s *keeper) told() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer delete(s.times, "q")
	return s.times["q"]
}

// must returns what Redis answers.
func must[T any](y *yard, cmd interface{ Result() (T, error) }) T {
	y.Helper()
	v, err := cmd.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		y.Fatal(err)
	}
	return v
}

func (y *yard) task(id, state string, fields ...any) *taskredis.Message {
	y.Helper()
	m := &taskredis.Message{Type: "kind", ID: id, Queue: "q", Retry: 2, Payload: []byte("payload of " + id)}
	must(y, y.HSet(y.Context(), taskredis.TaskKey("q", id), append([]any{"msg", m.Encode(), "state", state}, fields...)...))
	return m
}

func (y *yard) add(key, member string, score float64) {
	y.Helper()
	must(y, y.ZAdd(y.Context(), key, redis.Z{Member: member, Score: score}))
}

func (y *yard) state(id string) string {
	y.Helper()
	return must(y, y.HGet(y.Context(), taskredis.TaskKey("q", id), "state"))
}

// within waits until something is so, and returns how long that took.
func (y *yard) within(limit time.Duration, what string, so func() bool) time.Duration {
	y.Helper()
	begin := time.Now()
	for !so() {
		expect.Need(y, time.Since(begin) <= limit, "want %s within %v", what, limit)
		time.Sleep(max(time.Millisecond, limit/500))
	}
	return time.Since(begin)
}

func unix(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

// Each thing that is due is found at its time, not at the next of the looks every half a second.
func TestUpkeepIsOnTime(t *testing.T) {
	t.Parallel()
	inYard(t, func(y *yard) {
		s := y.start("one", Config{})
		time.Sleep(200 * time.Millisecond) // between two looks
		s.told()
		begin := time.Now().Truncate(time.Second)
		// A retry and a schedule are in whole seconds.
		y.task("scheduled", "scheduled")
		y.add(taskredis.ScheduledKey("q"), "scheduled", unix(begin.Add(10*time.Second)))
		y.task("failed", "retry")
		y.add(taskredis.RetryKey("q"), "failed", unix(begin.Add(20*time.Second)))
		// A lock that ends, and the lease of a dead server's task, which ends 100 ms before its lock.
		y.add(taskredis.ReadyKey("q"), "lock:a", float64(begin.Add(30*time.Second+123*time.Millisecond).UnixMicro()))
		y.task("crashed", "active", "siding_attempt", "attempt", "siding_lock", "lock:b")
		must(y, y.LPush(y.Context(), taskredis.ActiveKey("q"), "crashed"))
		must(y, y.Set(y.Context(), "lock:b", "attempt", 40*time.Second+777*time.Millisecond-time.Since(begin)))
		y.add(taskredis.LeaseKey("q"), "crashed", unix(begin.Add(40*time.Second+677*time.Millisecond)))
		for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 30123 * time.Millisecond, 40777 * time.Millisecond} {
			time.Sleep(time.Until(begin.Add(want)) - time.Millisecond)
			if told := s.told(); len(told) > 0 {
				y.Fatalf("want nothing found before %v, have it at %v", want, told[0].Sub(begin))
			}
			time.Sleep(5 * time.Millisecond)
			if told := s.told(); len(told) == 0 {
				y.Fatalf("want something found at %v", want)
			}
			// A server fetches what is there.
			must(y, y.ZRemRangeByScore(y.Context(), taskredis.ReadyKey("q"), "-inf", fmt.Sprint(time.Now().UnixMicro())))
			must(y, y.Del(y.Context(), taskredis.NotifyKey("q"), taskredis.PendingKey("q")))
			time.Sleep(200 * time.Millisecond)
			s.told()
		}
	})
}

// Another server takes over within four seconds of a death, and within one of an orderly end.
func TestUpkeepTakesOver(t *testing.T) {
	t.Parallel()
	inYard(t, func(y *yard) {
		one := y.start("one", Config{})
		two := y.start("two", Config{})
		three := y.start("three", Config{})
		y.add(taskredis.ReadyKey("q"), "lock:a", 1)
		time.Sleep(10*time.Second + 200*time.Millisecond) // between two looks: one that is cut off may run after the first has resigned
		expect.Need(y, len(one.told()) >= 19 && len(two.told())+len(three.told()) == 0, "want the first server alone elected")
		two.stop()
		have := must(y, y.Get(y.Context(), one.calls.Key()))
		expect.That(y, have == "one", "want the first elected after another has ended, have %q", have)
		one.stop()
		y.within(1100*time.Millisecond, "another server elected", func() bool { return len(three.told()) > 0 })
		three.stop()
		// The key of a server that has died.
		must(y, y.Set(y.Context(), one.calls.Key(), "dead", taskredis.ElectedFor))
		four := y.start("four", Config{})
		took := y.within(4*time.Second, "another server elected", func() bool { return len(four.told()) > 0 })
		expect.That(y, took >= 2900*time.Millisecond, "want no other server elected for %v, have it after %v", taskredis.ElectedFor, took)
	})
}

func TestUpkeepFindsPendingTasks(t *testing.T) {
	t.Parallel()
	inYard(t, func(y *yard) {
		s := y.start("one", Config{})
		push := func() { must(y, y.LPush(y.Context(), taskredis.PendingKey("q"), "task")) }
		fetch := func() { must(y, y.Del(y.Context(), taskredis.PendingKey("q"), taskredis.NotifyKey("q"))) }
		for i := range 25 { // while a server is idle
			time.Sleep(200*time.Millisecond + time.Duration(i)*time.Millisecond)
			push()
			y.within(26*time.Millisecond, "the task found", func() bool { return len(s.told()) > 0 })
			expect.Need(y, must(y, y.LLen(y.Context(), taskredis.NotifyKey("q"))) == 1, "want an idle server woken")
			fetch()
		}
		push() // while none is idle: nobody takes the notification
		time.Sleep(5 * time.Second)
		if told := len(s.told()); told < 45 || told > 55 {
			y.Errorf("want some ten looks a second while no server is idle, have %d in 5 s", told)
		}
		n := must(y, y.LLen(y.Context(), taskredis.NotifyKey("q")))
		expect.That(y, n == 1, "want one notification, have %d", n)
		fetch()
		must(y, y.Set(y.Context(), taskredis.PausedKey("q"), "1", 0))
		push()
		time.Sleep(5 * time.Second)
		if told := s.told(); len(told) > 1 {
			y.Errorf("want nobody told of a paused queue, have %d", len(told))
		}
		must(y, y.Del(y.Context(), taskredis.PausedKey("q")))
		y.within(501*time.Millisecond, "the task found after the pause", func() bool { return len(s.told()) > 0 })
	})
}

// An idle fleet costs little, whatever the number of its servers and queues.
func TestUpkeepOfAnIdleFleetCostsLittle(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers, queues int
		most            map[string]int // a second
	}{
		{1, 1, map[string]int{"exists": 40, "evalsha": 3}},
		{20, 16, map[string]int{"exists": 40, "evalsha": 24}},
		{1, 64, map[string]int{"exists": 10, "evalsha": 3}},
		{1, 200, map[string]int{"exists": 13, "evalsha": 10}},
		{1, 1000, map[string]int{"exists": 16, "evalsha": 36}},
	} {
		t.Run(fmt.Sprintf("%d servers, %d queues", c.servers, c.queues), func(t *testing.T) {
			t.Parallel()
			if c.queues >= 1000 {
				verify.Long(t)
			}
			inYard(t, func(y *yard) {
				queues := make(map[string]int)
				for i := range c.queues {
					queues[fmt.Sprint("queue", i)] = 1
				}
				for i := range c.servers {
					y.start(fmt.Sprint("server", i), Config{Queues: queues})
				}
				time.Sleep(5 * time.Second)
				const seconds = 8 // in which there is one round of each kind
				before := map[string]int{"exists": y.sent("exists"), "evalsha": y.sent("evalsha")}
				time.Sleep(seconds * time.Second)
				for name, most := range c.most {
					have := y.sent(name) - before[name]
					y.Logf("%s: %d in %d s", name, have, seconds)
					if have > most*seconds+1 { // one at each end
						y.Errorf("want at most %d calls of %s a second, have %d in %d s", most, name, have, seconds)
					}
				}
			})
		})
	}
}

// Tasks of dead servers end as in asynq, also if the functions of the user panic.
func TestUpkeepEndsTasksOfDeadServers(t *testing.T) {
	t.Parallel()
	delay := func(n int, err error, t *asynq.Task) time.Duration {
		if !errors.Is(err, asynq.ErrLeaseExpired) || t.Type() != "kind" || string(t.Payload()) != "payload of t" {
			panic(fmt.Sprint(err, t))
		}
		return time.Duration(n+1) * time.Hour
	}
	for name, c := range map[string]struct {
		cfg     Config
		retried int // before
		message []byte

		state, text string
		after       int // how often it was retried
		atLeast     time.Duration
		atMost      time.Duration
		log         string
	}{
		"retry":   {cfg: Config{RetryDelay: delay}, state: "retry", after: 1, atLeast: time.Hour, atMost: time.Hour},
		"again":   {cfg: Config{RetryDelay: delay}, retried: 1, state: "retry", after: 2, atLeast: 2 * time.Hour, atMost: 2 * time.Hour},
		"no more": {cfg: Config{RetryDelay: delay}, retried: 2, state: "archived", after: 2},
		"asynq's": {state: "retry", after: 1, atLeast: 15 * time.Second, atMost: time.Minute},
		"no failure": {
			cfg: Config{IsFailure: func(err error) bool { return !errors.Is(err, asynq.ErrLeaseExpired) }, RetryDelay: delay}, state: "retry",
			atLeast: time.Hour, atMost: time.Hour,
		},
		"panics": {
			cfg:   Config{RetryDelay: func(int, error, *asynq.Task) time.Duration { panic("a mistake") }, IsFailure: func(error) bool { panic("another mistake") }},
			state: "retry", after: 1, atLeast: 15 * time.Second, atMost: time.Minute, log: "another mistake",
		},
		"not to be read": {message: []byte("\xff\xff"), state: "archived", log: "a task cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inYard(t, func(y *yard) {
				m := y.task("t", "active")
				m.Retried = c.retried
				if c.message == nil {
					c.message = m.Encode()
				}
				must(y, y.HSet(y.Context(), taskredis.TaskKey("q", "t"), "msg", c.message))
				must(y, y.LPush(y.Context(), taskredis.ActiveKey("q"), "t"))
				y.add(taskredis.LeaseKey("q"), "t", unix(time.Now()))
				y.start("one", c.cfg)
				took := y.within(31*time.Second, "the task ended", func() bool { return y.state("t") != "active" })
				if took < 30*time.Second || y.state("t") != c.state {
					y.Errorf("want it %s after 30 s, have it %s after %v", c.state, y.state("t"), took)
				}
				encoded := must(y, y.HGet(y.Context(), taskredis.TaskKey("q", "t"), "msg"))
				if have, err := taskredis.DecodeMessage([]byte(encoded)); err == nil {
					if have.ErrorMsg != "asynq: task lease expired" || have.Retried != c.after || have.LastFailedAt != time.Now().Unix() || string(have.Payload) != "payload of t" {
						y.Errorf("want it retried %d times, have %+v", c.after, have)
					}
				} else if encoded != string(c.message) {
					y.Errorf("want the message as it was, have %q", encoded)
				}
				if c.state == "retry" {
					at := time.Unix(int64(must(y, y.ZScore(y.Context(), taskredis.RetryKey("q"), "t"))), 0)
					in := time.Until(at)
					expect.That(y, in >= c.atLeast-time.Second && in <= c.atMost+time.Second, "want it again in %v to %v, have %v", c.atLeast, c.atMost, in)
				}
				for _, want := range []string{c.log, "a task whose worker died or was cut off was ended"} {
					expect.That(y, y.log.count(want) != 0, "want %q in the log", want)
				}
			})
		})
	}
}

// The tasks of a server that had thousands end page by page, while all else goes on.
func TestUpkeepEndsManyTasks(t *testing.T) {
	t.Parallel()
	inYard(t, func(y *yard) {
		for i := range 200 {
			id := fmt.Sprint(i)
			y.task(id, "active")
			must(y, y.LPush(y.Context(), taskredis.ActiveKey("q"), id))
			y.add(taskredis.LeaseKey("q"), id, 5)
		}
		for i := range 120 { // those that stay do not stand in the way
			id := fmt.Sprint("trusted", i)
			y.task(id, "active", "siding_attempt", id, "siding_lock", "lock:"+id)
			must(y, y.Set(y.Context(), "lock:"+id, id, time.Hour))
			y.add(taskredis.LeaseKey("q"), id, 4)
		}
		y.start("one", Config{})
		y.within(time.Second, "all tasks ended", func() bool {
			return must(y, y.LLen(y.Context(), taskredis.ActiveKey("q"))) == 0
		})
		n := must(y, y.ZCard(y.Context(), taskredis.RetryKey("q")))
		expect.That(y, n == 200, "want 200 tasks retried, have %d", n)
	})
}

// Functions of the user that hang hold up neither the tasks of dead servers nor any other.
func TestUpkeepBesideFunctionsThatHang(t *testing.T) {
	t.Parallel()
	const dead = 15
	for name, hang := range map[string]func(cfg *Config, block chan struct{}){
		"RetryDelayFunc": func(cfg *Config, block chan struct{}) {
			cfg.RetryDelay = func(int, error, *asynq.Task) time.Duration { <-block; return 0 }
		},
		"IsFailure": func(cfg *Config, block chan struct{}) { cfg.IsFailure = func(error) bool { <-block; return true } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inYard(t, func(y *yard) {
				for i := range dead {
					id := fmt.Sprint(i)
					y.task(id, "active")
					must(y, y.LPush(y.Context(), taskredis.ActiveKey("q"), id))
					y.add(taskredis.LeaseKey("q"), id, 5)
				}
				y.task("later", "scheduled")
				y.add(taskredis.ScheduledKey("q"), "later", unix(time.Now().Add(2*time.Second)))
				cfg, block := Config{}, make(chan struct{})
				hang(&cfg, block)
				y.start("one", cfg)
				y.within(4*time.Second, "the scheduled task to come", func() bool { return y.state("later") != "scheduled" })
				n := must(y, y.ZCard(y.Context(), taskredis.RetryKey("q")))
				expect.That(y, n == dead, "want %d tasks retried, have %d", dead, n)
				expect.Equal(y, "how often it is said", y.log.count("does not return"), 1)
				close(block)
			})
		})
	}
}

func TestUpkeepDeletesWhatHasExpired(t *testing.T) {
	t.Parallel()
	inYard(t, func(y *yard) {
		y.start("one", Config{JanitorInterval: 20 * time.Second, JanitorBatchSize: 7})
		time.Sleep(time.Second)
		for i := range 300 {
			id := fmt.Sprint(i)
			y.task(id, "completed")
			y.add(taskredis.CompletedKey("q"), id, 5)
		}
		gone := func() bool { return must(y, y.Exists(y.Context(), taskredis.CompletedKey("q"))) == 0 }
		time.Sleep(18 * time.Second)
		n := must(y, y.ZCard(y.Context(), taskredis.CompletedKey("q")))
		expect.That(y, n == 300, "want all completed tasks for 20 s, have %d", n)
		y.within(2*time.Second, "all expired tasks deleted", gone)
	})
}

// What was lost is there again: the first within ten seconds, and 5,000 each second from then on.
func TestUpkeepMendsSoon(t *testing.T) {
	t.Parallel()
	inYard(t, func(y *yard) {
		const n = 1000
		until := time.Now().Add(3 * time.Hour).Unix()
		for i := range n {
			id := fmt.Sprint(i)
			y.task(id, "retry", "siding_lock", fmt.Sprint("lock:", i%100), "siding_ticket", i, "siding_until", until)
			y.add(taskredis.RetryKey("q"), id, float64(until))
		}
		s := y.start("one", Config{})
		y.within(time.Second, "all in line", func() bool {
			return must(y, y.ZCard(y.Context(), taskredis.LineKey("q", "lock:99"))) == n/100 // 999 is the last of all
		})
		time.Sleep(3 * time.Second)
		s.told()
		must(y, y.Del(y.Context(), taskredis.ReadyKey("q"), taskredis.LineKey("q", "lock:7")))
		y.within(11*time.Second, "all locks ready", func() bool {
			return must(y, y.ZCard(y.Context(), taskredis.ReadyKey("q"))) == 100 && must(y, y.ZCard(y.Context(), taskredis.LineKey("q", "lock:7"))) == n/100
		})
		y.within(time.Second, "the server told", func() bool { return len(s.told()) > 0 })
		time.Sleep(10 * time.Second)
		if want := fmt.Sprintf("waiting=%d active=0", n); y.log.count(want) != 1 {
			y.Errorf("want %q in the log once, have it %d times", want, y.log.count(want))
		}
	})
}

// Redis' clock steps back by a minute. What was due by the old time is due within a second.
func TestUpkeepNoticesThatTheClockStepsBack(t *testing.T) {
	t.Parallel()
	inYard(t, func(y *yard) {
		s := y.start("one", Config{})
		time.Sleep(10 * time.Second)
		ahead := 1e6 * unix(time.Now().Add(14*time.Second))
		y.add(taskredis.ReadyKey("q"), "lock:a", ahead)
		time.Sleep(2 * time.Second)
		told := s.told()
		expect.Need(y, len(told) == 0, "want nothing due yet")
		y.mini.SetTime(time.Now().Add(-time.Minute))
		y.within(1100*time.Millisecond, "the lock due", func() bool { return len(s.told()) > 0 })
		expect.That(y, y.log.count("clock has stepped back") != 0, "want it in the log")
	})
}

// A server that is elected after the step finds what is too far ahead.
func TestUpkeepLooksForAnEarlierStepOfTheClock(t *testing.T) {
	t.Parallel()
	inYard(t, func(y *yard) {
		y.add(taskredis.ReadyKey("q"), "lock:a", 1e6*unix(time.Now().Add(time.Minute)))
		s := y.start("one", Config{})
		y.within(time.Second, "the lock due", func() bool { return len(s.told()) > 0 })
	})
}

// While Redis does not work the log stays short, and all goes on when it works again.
func TestUpkeepOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	inYard(t, func(y *yard) {
		s := y.start("one", Config{})
		time.Sleep(time.Second)
		y.mini.SetError("LOADING Redis is loading the dataset in memory")
		time.Sleep(10*time.Minute - time.Second)
		n := y.log.count("level=WARN")
		expect.That(y, n != 0 && n <= 3, "want a line or two in the log, have %s", y.log)
		y.mini.SetError("")
		y.add(taskredis.ReadyKey("q"), "lock:a", 1)
		y.within(1100*time.Millisecond, "the lock found", func() bool { return len(s.told()) > 0 })
		expect.That(y, y.log.count("queues are looked after again") == 1, "want it in the log that all is well, have %s", y.log)
	})
}

// A thing that cannot be read is told of now and then, and does not keep upkeep busy.
func TestUpkeepTellsOfTroubleOnce(t *testing.T) {
	t.Parallel()
	inYard(t, func(y *yard) {
		must(y, y.Set(y.Context(), taskredis.ScheduledKey("q"), "no set", 0))
		y.start("one", Config{})
		time.Sleep(2*time.Minute - time.Second)
		if n := y.log.count("what=\"asynq:{q}:scheduled"); n != 2 {
			y.Errorf("want it told of each minute, have it %d times", n)
		}
		if n := y.sent("evalsha"); n > 300 {
			y.Errorf("want no more calls than else, have %d", n)
		}
	})
}

// With very much to do in one queue, the others and the looks for pending tasks go on.
func TestUpkeepIsFair(t *testing.T) {
	t.Parallel()
	inYard(t, func(y *yard) {
		queues := map[string]int{"q": 1}
		for i := range 100 {
			queues[fmt.Sprint("queue", i)] = 1
		}
		s := y.start("one", Config{Queues: queues})
		time.Sleep(time.Second)
		for i := range 600 {
			id := fmt.Sprint(i)
			y.task(id, "scheduled")
			y.add(taskredis.ScheduledKey("q"), id, 5)
		}
		for queue := range queues {
			if queue != "q" {
				must(y, y.HSet(y.Context(), taskredis.TaskKey(queue, "t"), "state", "scheduled"))
				y.add(taskredis.ScheduledKey(queue), "t", 5)
			}
		}
		y.within(time.Second, "all forwarded", func() bool {
			return must(y, y.LLen(y.Context(), taskredis.PendingKey("q"))) == 600
		})
		s.stop()
		first := s.times["q"][0]
		for queue, times := range s.times {
			expect.That(y, slices.ContainsFunc(times, func(at time.Time) bool { return at.Sub(first) < time.Second }), "%s: want it found soon, have %v", queue, times)
		}
		expect.That(y, len(s.times) == len(queues), "want %d queues found, have %d", len(queues), len(s.times))
	})
}
