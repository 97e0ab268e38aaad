package engine

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// A script says what Redis answers to a loop. Calls that it says nothing of get no answer.
type script struct {
	step  func(s *taskredis.Step) (*taskredis.Answer, error)
	renew func(attempts []taskredis.Name) ([]bool, error)
}

func (c script) Step(ctx context.Context, s *taskredis.Step) (*taskredis.Answer, error) {
	if a, err := c.step(s); a != nil || err != nil {
		return a, err
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (c script) Renew(ctx context.Context, _ string, attempts []taskredis.Name) ([]bool, error) {
	if c.renew != nil {
		return c.renew(attempts)
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (script) Began(context.Context, taskredis.Name, bool) (bool, error) { return true, nil }
func (script) Notify(context.Context, ...string) error                   { return nil }

// loopConfig is the configuration of a loop that a script answers.
func loopConfig(t *testing.T, handler Handler) *Config {
	t.Helper()
	cfg := Config{
		Queues: map[string]int{"q": 1}, Concurrency: 4, Prefix: "lock:",
		TTL: 15 * time.Second, RenewEvery: 5 * time.Second, SafetyMargin: time.Second, FenceTTL: time.Minute,
		Handler: handler, Overrun: time.Minute, Crashes: 3, Losses: 10,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}.withDefaults()
	return &cfg
}

// takenTask is a task of a queue q that a step has taken, with a lock or without.
func takenTask(id, lock string, fence int64) taskredis.Taken {
	m := taskredis.Message{Type: "kind", ID: id, Queue: "q", Retry: 25, Timeout: 60}
	return taskredis.Taken{
		Name:  taskredis.Name{Queue: "q", ID: id, Attempt: "siding:s-" + id + ":test", Lock: lock},
		Fence: fence, Ticket: 1, Encoded: m.Encode(),
	}
}

// nothing is the answer to a step that finds nothing.
func nothing(s *taskredis.Step) *taskredis.Answer {
	a := &taskredis.Answer{Now: time.Now().UnixMicro(), Known: s.Number - 1}
	for range s.Draws {
		a.Drawn = append(a.Drawn, taskredis.Drawn{Due: -1})
	}
	return a
}

// settles is the answer to a step that settles all that it says. The first step of all takes these tasks, and the others find nothing.
func settles(s *taskredis.Step, tasks ...taskredis.Taken) *taskredis.Answer {
	a := nothing(s)
	a.Known = s.Number
	if isFirst(s) {
		a.Taken = tasks
	}
	for range s.Outcomes {
		a.Results, a.Replies = append(a.Results, taskredis.Settled), append(a.Replies, taskredis.Reply{})
	}
	return a
}

// runFor runs a loop for a time in a bubble, and until all that it has started has ended.
func runFor(t *testing.T, l *loop, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go l.run(ctx)
	time.Sleep(d)
	cancel()
	synctest.Wait()
}

// isFirst reports whether a step is the first of the first lane.
func isFirst(s *taskredis.Step) bool { return s.Lane == 0 && s.Number == 1 }

func TestLoopThatEndsLeavesNobodyAtWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ended error
		cfg := loopConfig(t, func(ctx context.Context, _ *Task) error {
			<-ctx.Done()
			ended = context.Cause(ctx)
			return ended
		})
		cfg.Need = func(m *taskredis.Message, _ string) (Need, error) {
			if m.ID == "asks" {
				return Need{Resource: "r2"}, nil // its lock is never answered
			}
			return Need{Resource: "r1"}, nil
		}
		l := newLoop(cfg, script{step: func(s *taskredis.Step) (*taskredis.Answer, error) {
			if !isFirst(s) {
				return nil, nil
			}
			a := nothing(s)
			a.Taken = []taskredis.Taken{takenTask("runs", "lock:r1", 1), takenTask("asks", "", 0)}
			return a, nil
		}})
		runFor(t, l, 2*time.Second) // the bubble wants all goroutines to end, also the one that asks
		if ended != errShutdown {   //nolint:errorlint // it is the cause
			t.Errorf("the context of the handler: want it to end with %v, have %v", errShutdown, ended)
		}
	})
}

// After a stall of a server all its tasks may be somebody else's. One line of the log says so, not one for each.
func TestLoopSaysOnceThatOutcomesDoNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg, logs := loopConfig(t, func(context.Context, *Task) error { return nil }), new(logbook)
		var ended atomic.Int64
		cfg.Logger = logs.logger()
		l := newLoop(cfg, script{step: func(s *taskredis.Step) (*taskredis.Answer, error) {
			a := settles(s, takenTask("a", "lock:a", 1), takenTask("b", "lock:b", 2), takenTask("c", "lock:c", 3))
			for i := range a.Results {
				a.Results[i] = taskredis.Stale
				ended.Add(1)
			}
			return a, nil
		}})
		runFor(t, l, 2*time.Second)
		one, others := logs.count(`level=WARN msg="a task is somebody else's by now, and its outcome does not count"`), logs.count("level=DEBUG msg=\"nor does")
		expect.That(t, ended.Load() == 3 && one == 1 && others == 2, "three outcomes: want one warning, and two lines for those who debug, have %d, %d and %d in %s", ended.Load(), one, others, logs)
	})
}

// A step is sent again, and answered from its record, before the answer comes that says what was wrong, and who was parked.
func TestLoopTellsOfALateAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg, logs := loopConfig(t, nil), new(logbook)
		var tries, parked atomic.Int64
		cfg.Parked = func(*taskredis.ParkedTask, string) { parked.Add(1) }
		cfg.Logger = logs.logger()
		l := newLoop(cfg, script{step: func(s *taskredis.Step) (*taskredis.Answer, error) {
			a := nothing(s)
			a.Known = s.Number
			if !isFirst(s) {
				return a, nil
			}
			if tries.Add(1) == 1 {
				time.Sleep(time.Second)
				a.Troubles = []string{"asynq:{q}:t:1: WRONGTYPE"}
				a.Parked = []taskredis.ParkedTask{{Queue: "q", ID: "1", Lock: "lock:a"}}
			}
			return a, nil
		}})
		runFor(t, l, 2*time.Second)
		expect.That(t, parked.Load() == 1, "want one task told as parked, have %d", parked.Load())
		have := logs.count("asynq:{q}:t:1: WRONGTYPE")
		expect.That(t, tries.Load() == 2 && have == 1, "two tries: want one line of the trouble, have %d and %d", tries.Load(), have)
	})
}

func TestLoopSleepsWhileItsSlotsArePromised(t *testing.T) {
	t.Parallel()
	l := newLoop(loopConfig(t, nil), script{})
	now := time.Now()
	one := l.queues.all["q"]
	l.queues.hasNot(one)
	one.due = now.Add(-time.Millisecond) // a lock should be looked at, but a step for all slots is under way
	l.scopes[""].senders[0].flight = &flight{Step: &taskredis.Step{Slots: make([]taskredis.Order, l.cfg.Concurrency)}, since: now, resendAt: now.Add(time.Second)}
	next := l.nextTime(now)
	expect.That(t, next.After(now), "want the loop to sleep, have it look again in %v", next.Sub(now))
}

func TestAttemptThatAsksForLongKeepsItsSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := loopConfig(t, nil)
		cfg.Overrun = time.Second
		cfg.Need = func(*taskredis.Message, string) (Need, error) { return Need{Resource: "r"}, nil }
		l := newLoop(cfg, script{step: func(s *taskredis.Step) (*taskredis.Answer, error) {
			a := nothing(s)
			switch {
			case isFirst(s):
				a.Taken = []taskredis.Taken{takenTask("asks", "", 0)}
			case len(s.Outcomes) > 0:
				time.Sleep(150 * time.Second) // longer than the task's timeout, and than a handler may overrun that
				a.Results, a.Replies = []taskredis.Result{taskredis.Parked}, make([]taskredis.Reply, 1)
			}
			return a, nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.run(ctx)
		for _, want := range []int{1, 1, 0} { // after 1, 2 and 3 minutes
			time.Sleep(time.Minute)
			running := 0
			err := l.do(ctx, func() { running = l.running })
			expect.That(t, err == nil && running == want, "want %d slots taken, have %d, %v", want, running, err)
		}
	})
}

func TestTaskWhoseDeadlineIsOverInRedisDoesNotRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ran, ended := false, taskredis.Kind("")
		cfg := loopConfig(t, func(context.Context, *Task) error { ran = true; return nil })
		l := newLoop(cfg, script{step: func(s *taskredis.Step) (*taskredis.Answer, error) {
			for _, o := range s.Outcomes {
				ended = o.Kind
			}
			return settles(s, takenTask("late", "", -1)), nil // this server's clock is behind
		}})
		runFor(t, l, time.Second)
		expect.That(t, !ran && ended == taskredis.Retry, "want it retried without a call of its handler, have %v, outcome %q", ran, ended)
	})
}

// withoutMaster is a Cluster in which one master does not answer heartbeats.
type withoutMaster struct{ script }

func (c withoutMaster) Renew(ctx context.Context, scope string, attempts []taskredis.Name) ([]bool, error) {
	if scope == "away" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return slices.Repeat([]bool{true}, len(attempts)), nil
}

// In a Cluster the master of one queue is away. That costs the tasks of the others no lock, however seldom locks are renewed.
func TestHeartbeatWithoutOneMaster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lost sync.Map
		cfg := loopConfig(t, func(ctx context.Context, task *Task) error {
			select {
			case <-ctx.Done():
				lost.Store(task.ID, context.Cause(ctx))
			case <-time.After(time.Minute):
			}
			return nil
		})
		cfg.Cluster, cfg.Queues, cfg.RenewEvery = true, map[string]int{"away": 1, "q": 1}, 7*time.Second
		l := newLoop(cfg, withoutMaster{script{step: takesOne}})
		runFor(t, l, 2*time.Minute)
		_, away := lost.Load("away")
		err, q := lost.Load("q")
		expect.That(t, away && !q, "want only the task of the master that is away lost, have %v and %v (%v)", away, q, err)
	})
}

// A heartbeat that runs into its time, as the next one is due, has none of the other scopes follow.
func TestHeartbeatsOfManyMasters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		beats := make(map[string]int)
		cfg := loopConfig(t, func(ctx context.Context, _ *Task) error { <-ctx.Done(); return nil })
		cfg.Cluster, cfg.Queues = true, map[string]int{"away": 1, "a": 1, "b": 1, "c": 1}
		runFor(t, newLoop(cfg, slowly{withoutMaster{script{step: takesOne}}, func(scope string) {
			mu.Lock()
			defer mu.Unlock()
			beats[scope]++
		}}), 30*time.Second+time.Millisecond/2)
		time.Sleep(time.Second) // those under way
		mu.Lock()
		defer mu.Unlock()
		for queue := range cfg.Queues {
			expect.That(t, beats[queue] >= 2 && beats[queue] <= 6, "queue %s: want a heartbeat every 5 s, have %d in 30 s", queue, beats[queue])
		}
	})
}

// takesOne is the answer to a step in a Cluster: the first one of a queue takes a task with a lock.
func takesOne(s *taskredis.Step) (*taskredis.Answer, error) {
	one := takenTask(s.Scope, "siding:{"+s.Scope+"}:wait:lock:a", 1)
	one.Queue = s.Scope
	return settles(s, one), nil
}

// A slowly is told of each heartbeat, which then takes a millisecond.
type slowly struct {
	caller

	beat func(scope string)
}

func (c slowly) Renew(ctx context.Context, scope string, attempts []taskredis.Name) ([]bool, error) {
	c.beat(scope)
	time.Sleep(time.Millisecond)
	return c.caller.Renew(ctx, scope, attempts)
}

// In a Cluster the master of one queue answers no step. That keeps neither slots from the other queues, nor the loop from hearing of
// their tasks. When it answers late, and there are no slots any more for what it gives, its tasks go back.
func TestStepWithoutOneMaster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		back, given := make(chan struct{}), make(chan taskredis.Outcome, 100)
		var there, ran atomic.Bool
		cfg := loopConfig(t, func(ctx context.Context, _ *Task) error { ran.Store(true); <-ctx.Done(); return nil })
		cfg.Cluster, cfg.Concurrency, cfg.Queues = true, 1, map[string]int{"away": 1, "q": 1}
		l := newLoop(cfg, script{step: func(s *taskredis.Step) (*taskredis.Answer, error) {
			if s.Scope == "away" {
				<-back
				for _, o := range s.Outcomes {
					given <- o
				}
			}
			a := settles(s)
			if len(s.Slots) > 0 && (s.Scope == "q" && there.Load() || s.Scope == "away" && s.Number == 1) {
				one := takenTask("of "+s.Scope, "", 0)
				one.Queue = s.Scope
				a.Taken = []taskredis.Taken{one}
			}
			return a, nil
		}})
		l.queues.random = func(int) int { return 0 } // the first of the queues, if that may be taken from
		l.queues.hasNot(l.queues.all["q"])
		ctx, cancel := context.WithCancel(t.Context())
		go l.run(ctx)
		time.Sleep(taskredis.Lanes*overdueAfter + 2*time.Second) // each of the master's lanes has had the slot
		select {
		case <-l.scopes["q"].armed:
		default:
			t.Error("want the loop to wait for notifications of the other queue")
		}
		there.Store(true)
		l.hasFound("q")
		time.Sleep(time.Second)
		expect.That(t, ran.Load(), "want the task of the other queue to run")
		close(back)
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
		expect.Need(t, len(given) > 0, "want an outcome of the task of the master that was away")
		o := <-given
		expect.That(t, o.ID == "of away" && o.Kind == taskredis.Requeue, "want it put back, have %+v", o)
	})
}

// A context may end long before its task's time is over. From then on the handler may go on for as long as after that.
func TestHandlerThatGoesOnAfterItsContext(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"an operator cancels it": false, "its lock is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var ended atomic.Bool
				returns := make(chan struct{})
				cfg := loopConfig(t, func(ctx context.Context, _ *Task) error {
					context.AfterFunc(ctx, func() { ended.Store(true) })
					<-returns
					return nil
				})
				cfg.Overrun = 10 * time.Second
				l := newLoop(cfg, script{
					step: func(s *taskredis.Step) (*taskredis.Answer, error) {
						return settles(s, takenTask("1", "lock:a", 1)), nil // with a minute
					},
					renew: func(attempts []taskredis.Name) ([]bool, error) {
						return slices.Repeat([]bool{!lost}, len(attempts)), nil
					},
				})
				ctx, cancel := context.WithCancel(t.Context())
				go l.run(ctx)
				time.Sleep(cfg.RenewEvery - time.Second)
				if !lost {
					l.cancel("1")
				}
				time.Sleep(2 * time.Second)
				expect.That(t, ended.Load(), "want the context of the handler ended")
				for _, want := range []int{1, 0} {
					running := 0
					err := l.do(ctx, func() { running = l.running })
					expect.That(t, err == nil && running == want, "want %d slots taken, have %d, %v", want, running, err)
					time.Sleep(cfg.Overrun)
				}
				close(returns)
				cancel()
				synctest.Wait()
			})
		})
	}
}

// The answer that brings an attempt comes so late that its lock is about to expire, while a heartbeat without it is under way.
func TestHeartbeatThatIsWantedSoonFollowsTheOneUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lost atomic.Int64
		var second atomic.Pointer[taskredis.Step]
		start := time.Now()
		cfg := loopConfig(t, func(ctx context.Context, _ *Task) error {
			select {
			case <-ctx.Done():
				lost.Add(1)
			case <-time.After(19*time.Second - time.Since(start)):
			}
			return nil
		})
		until := func(s int) { time.Sleep(time.Until(start.Add(time.Duration(s) * time.Second))) }
		l := newLoop(cfg, script{
			step: func(s *taskredis.Step) (*taskredis.Answer, error) {
				a := settles(s, takenTask("1", "lock:a", 1))
				switch {
				case isFirst(s): // takes the first task
				case second.CompareAndSwap(nil, s):
					until(11) // it was sent in the first second, so the lock may expire in the 15th
					a.Taken = []taskredis.Taken{takenTask("2", "lock:b", 2)}
				case s == second.Load() && time.Since(start) < 11*time.Second: // the same step again
					return nil, nil
				}
				return a, nil
			},
			renew: func(attempts []taskredis.Name) ([]bool, error) {
				until(12)
				return slices.Repeat([]bool{true}, len(attempts)), nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		go l.run(ctx)
		time.Sleep(time.Second / 2)
		l.hasFound("q")
		until(20)
		cancel()
		synctest.Wait()
		expect.That(t, lost.Load() == 0, "want both tasks to keep their locks, %d have lost them", lost.Load())
	})
}

// Many functions run at once, such as those of a batch. Of their goroutines as many are kept as there are slots, and used again.
func TestGoroutinesThatAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := loopConfig(t, func(context.Context, *Task) error { return nil })
		l := newLoop(cfg, script{})
		defer synctest.Wait()
		defer close(l.done)
		var ran atomic.Int64
		for range 3 {
			run := make(chan struct{})
			for range 4 * cfg.Concurrency {
				l.goroutines.run(func() { <-run; ran.Add(1) })
			}
			synctest.Wait()
			expect.Equal(t, "goroutines that wait, all at work", l.goroutines.waiting.Load(), 0)
			close(run)
			synctest.Wait()
			expect.Equal(t, "goroutines that wait, none at work", l.goroutines.waiting.Load(), int64(cfg.Concurrency))
		}
		expect.Equal(t, "functions that ran", ran.Load(), int64(12*cfg.Concurrency))
		large := new([1 << 20]byte)
		freed := weak.Make(large)
		l.goroutines.run(func() { large[0]++ })
		synctest.Wait()
		runtime.GC()
		expect.That(t, freed.Value() == nil, "want nothing kept of a function that has run")
	})
}

// A function of the user that is told something does not return. The loop looks after locks all the same.
func TestWhoIsToldDoesNotReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lost atomic.Bool
		told := make(chan struct{})
		cfg := loopConfig(t, func(ctx context.Context, task *Task) error {
			if task.ID == "2" {
				<-ctx.Done()
				lost.Store(true)
			}
			return nil
		})
		cfg.Settled = func(*Task, error, bool) { <-told }
		l := newLoop(cfg, script{
			step: func(s *taskredis.Step) (*taskredis.Answer, error) {
				return settles(s, takenTask("1", "lock:a", 1), takenTask("2", "lock:b", 2)), nil
			},
			renew: func(attempts []taskredis.Name) ([]bool, error) { return make([]bool, len(attempts)), nil },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { l.run(ctx); close(ended) }()
		time.Sleep(2 * cfg.RenewEvery)
		expect.That(t, lost.Load(), "want the context ended of a task that has lost its lock")
		cancel()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("want the end to wait for who is told")
		default:
		}
		close(told)
		<-ended
	})
}

// A server has more attempts than one call renews.
func TestManyLocksAreRenewed(t *testing.T) {
	t.Parallel()
	const n = 2*mostBeat + 100
	var renewed []taskredis.Name
	l := newLoop(loopConfig(t, nil), script{renew: func(some []taskredis.Name) ([]bool, error) {
		expect.That(t, len(some) <= mostBeat, "want at most %d in a call, have %d", mostBeat, len(some))
		renewed = append(renewed, some...)
		return make([]bool, len(some)), nil
	}})
	var names []taskredis.Name
	for i := range n {
		names = append(names, taskredis.Name{Queue: "q", ID: strconv.Itoa(i)})
	}
	kept, err := l.renew(t.Context(), "", names)
	expect.That(t, err == nil && len(kept) == n && slices.Equal(renewed, names), "want all renewed, have %d, %v", len(kept), err)
}

// A batch loses its lock. One of its tasks has ended before: it is not told of as lost.
func TestBatchLosesItsLock(t *testing.T) {
	t.Parallel()
	told := make(map[string]bool)
	cfg := loopConfig(t, nil)
	cfg.Settled = func(task *Task, _ error, lost bool) { told[task.ID] = lost }
	l := newLoop(cfg, script{})
	at := func(id string) *attempt {
		a := &attempt{Taken: takenTask(id, "lock:a", 1)}
		a.ctx, a.cancel = context.WithCancelCause(t.Context())
		a.task = &Task{Message: &taskredis.Message{ID: id}, attempt: a}
		return a
	}
	first, ended, atWork := at("first"), at("ended"), at("at work")
	first.batch = newBatch(first, l.done)
	for _, a := range []*attempt{ended, atWork} {
		a.member = first.batch.add(a)
	}
	ended.ended = time.Now()
	l.lose(first)
	for _, a := range []*attempt{first, ended, atWork} {
		l.tellSettled(a)
	}
	l.told.wait()
	expect.Same(t, "who was told of as lost", told, map[string]bool{"first": true, "ended": false, "at work": true})
}

// Nothing runs, and Redis refuses writes, or does not answer. That holds up no shutdown, but for a step that Redis may have made.
func TestShutdownWithoutRedis(t *testing.T) {
	t.Parallel()
	refusal, unheard := redisError("NOREPLICAS Not enough good replicas to write."), io.ErrUnexpectedEOF
	for name, tt := range map[string]struct {
		step func(s *taskredis.Step) (*taskredis.Answer, error)
		done bool
	}{
		"takes tasks, refused": {func(*taskredis.Step) (*taskredis.Answer, error) { return nil, refusal }, true},
		"takes tasks, the first try unheard": {func(s *taskredis.Step) (*taskredis.Answer, error) {
			if err := unheard; isFirst(s) && err != nil {
				unheard = nil
				return nil, err
			}
			return nil, refusal
		}, false},
		"asks whether an outcome is forgotten": {func(s *taskredis.Step) (*taskredis.Answer, error) {
			if len(s.Outcomes)+len(s.Slots) == 0 {
				return nil, nil
			}
			return settles(s, takenTask("1", "lock:a", 1)), nil
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLoop(loopConfig(t, func(context.Context, *Task) error { return nil }), script{step: tt.step})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go l.run(ctx)
				time.Sleep(5 * time.Second)
				stepsUnderWay := 0
				expect.OK(t, l.do(ctx, func() {
					l.stopping = true
					stepsUnderWay = l.scopes[""].underWay()
				}))
				time.Sleep(2 * time.Second)
				select {
				case <-l.drained:
					expect.That(t, tt.done, "want the loop to wait for the step")
				default:
					expect.That(t, !tt.done, "want the loop to be done")
				}
				expect.That(t, stepsUnderWay > 0, "want a step under way at the end")
			})
		})
	}
}
