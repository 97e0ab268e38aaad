package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// A step costs about as much as two tasks, so while one is under way another one waits until it is worth that.
func TestSecondStepIsWorthIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		concurrency, underWay int
		n, steps              int // outcomes that wait, and steps that leave with them
	}{
		{100, 0, 1, 1},
		{100, 1, 49, 0},
		{100, 1, 50, 1},
		{100, 2, 100, 0},
		{4000, 1, mostSlots - 1, 0},
		{4000, 1, mostSlots, 1}, // more slots than that are never free for one step
		{100, 0, mostOutcomes + 50, 2},
	} {
		cfg := loopConfig(t, nil)
		cfg.Concurrency = test.concurrency
		p := newLoop(cfg, script{step: func(s *taskredis.Step) (*taskredis.Answer, error) { return nothing(s), nil }}).scopes[""]
		for i := range test.underWay {
			p.senders[i].flight = &flight{resendAt: time.Now().Add(time.Hour)}
		}
		for range test.n {
			p.loop.toSend(&attempt{})
		}
		idle, cancel := context.WithCancel(t.Context())
		cancel() // nobody hears of the answers of the script
		p.send(idle, time.Now(), nil, nil)
		have := p.underWay() - test.underWay
		expect.That(t, have == test.steps, "%+v: have %d", test, have)
	}
}

// Who is told of the start of a task is also told of its end, if Redis does not take its outcome.
func TestRefusedOutcomeIsTold(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(a *taskredis.Answer) (*taskredis.Answer, error){
		"the step":    func(*taskredis.Answer) (*taskredis.Answer, error) { return nil, redisError("NOPERM no rights") },
		"the outcome": func(a *taskredis.Answer) (*taskredis.Answer, error) { a.Results[0] = "error: WRONGTYPE"; return a, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := loopConfig(t, func(context.Context, *Task) error { return nil })
				told := make(chan string, 2)
				cfg.Settled = func(task *Task, _ error, _ bool) { told <- task.ID }
				l := newLoop(cfg, script{step: func(s *taskredis.Step) (*taskredis.Answer, error) {
					a := settles(s, takenTask("1", "lock:a", 1))
					if len(s.Outcomes) > 0 {
						return refuse(a)
					}
					return a, nil
				}})
				runFor(t, l, time.Second)
				expect.Equal(t, "times that the end was told", len(told), 1)
			})
		})
	}
}

// While the password is changed Redis refuses connections, and not what a step says.
func TestStepWhileThePasswordIsChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg, log := loopConfig(t, func(context.Context, *Task) error { return nil }), new(logbook)
		cfg.Logger = log.logger()
		lost := make(chan bool, 2)
		cfg.Settled = func(_ *Task, _ error, isLost bool) { lost <- isLost }
		var mu sync.Mutex
		refused, settled := 0, 0
		runFor(t, newLoop(cfg, script{step: func(s *taskredis.Step) (*taskredis.Answer, error) {
			a := settles(s, takenTask("1", "lock:a", 1), takenTask("2", "lock:b", 1))
			if len(s.Outcomes) == 0 {
				return a, nil
			}
			mu.Lock()
			defer mu.Unlock()
			if refused++; refused < 5 {
				return nil, redisError("WRONGPASS invalid username-password pair or user is disabled.")
			}
			settled += len(s.Outcomes)
			return a, nil
		}}), 10*time.Second)
		expect.That(t, settled == 2 && len(lost) == 2 && !<-lost && log.count("level=ERROR") == 0, "want both outcomes settled, have %d of them, %d told and\n%v", settled, len(lost), log)
	})
}

// Redis refuses steps of which earlier copies, without an answer so far, may still come. In another lane what they say would be done
// twice.
func TestRefusedStepIsSaidAgainByItsLane(t *testing.T) {
	t.Parallel()
	cfg := loopConfig(t, nil)
	cfg.Concurrency = 100
	l := newLoop(cfg, script{step: func(s *taskredis.Step) (*taskredis.Answer, error) { return nothing(s), nil }})
	p, now := l.scopes[""], time.Now()
	idle, cancel := context.WithCancel(t.Context())
	cancel() // nobody hears of the answers of the script
	said := make(map[string]int)
	for _, s := range p.senders {
		for range 2 {
			id := fmt.Sprint(len(said) + 1)
			l.toSend(&attempt{outcome: taskredis.Outcome{Name: taskredis.Name{ID: id}}})
			said[id] = s.lane
		}
		expect.Need(t, s.send(idle, now, nil, nil), "want a step, have none")
	}
	for _, s := range slices.Backward(p.senders[:]) {
		s.answered(idle, s.number, now, nil, redisError("NOPERM no rights"))
	}
	for len(said) > 0 {
		p.send(idle, now, nil, nil)
		before := len(said)
		for _, s := range p.senders {
			if s.flight == nil {
				continue
			}
			for _, o := range s.flight.Outcomes {
				expect.Equal(t, "the lane that says "+o.ID, s.lane, said[o.ID])
				delete(said, o.ID)
			}
			s.answered(idle, s.number, now, settles(s.flight.Step), nil)
		}
		expect.Need(t, len(said) < before, "want the rest said, have %v left", said)
	}
}

// What Redis has forgotten in a failover, of either lane, is sent again in the order in which it was settled and before what has
// ended since, as the first task of a batch ends last. What Redis knows is not, nor what a lane did after the step that found out.
func TestFailoverOfBothLanes(t *testing.T) {
	t.Parallel()
	l := newLoop(loopConfig(t, nil), script{step: func(s *taskredis.Step) (*taskredis.Answer, error) { return nothing(s), nil }})
	p, now := l.scopes[""], time.Now()
	one, other := p.senders[0], p.senders[1]
	one.recorded, one.recordedAt, other.recorded, other.recordedAt = 4, now, 9, now
	named := func(id string) []taskredis.Outcome { return []taskredis.Outcome{{Name: taskredis.Name{ID: id}}} }
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	p.recent = []sentOutcomes{{other, 8, ago(5), named("known")}, {one, 3, ago(4), named("known, too")}, {other, 9, ago(3), named("member")}, {one, 4, ago(2), named("first")}}
	l.toSend(&attempt{outcome: named("ended")[0]})
	idle, cancel := context.WithCancel(t.Context())
	cancel() // nobody hears of the answers of the script
	expect.That(t, one.send(idle, now, nil, nil), "want a step, have none")
	f := one.flight
	expect.Equal(t, "what the step is to follow", [2]int64{f.After, f.OtherAfter}, [2]int64{4, 9})
	other.recorded = 10
	p.recent = append(p.recent, sentOutcomes{other, 10, ago(1), named("afterwards")})
	sent := func() string {
		var ids []string
		for _, a := range p.unsent {
			ids = append(ids, a.outcome.ID)
		}
		return strings.Join(ids, ", ")
	}
	one.apply(idle, f, &taskredis.Answer{Known: 3, OtherKnown: 8}, now, now)
	expect.Equal(t, "sent", sent(), "member, first, ended")
	expect.Equal(t, "steps that are kept", len(p.recent), 3)
	expect.Equal(t, "what each lane follows now", [2]int64{one.recorded, other.recorded}, [2]int64{3, 10})
	other.apply(idle, &flight{Step: &taskredis.Step{Number: 11, After: 10, OtherAfter: 3}}, &taskredis.Answer{Known: 8, OtherKnown: 3}, now, now)
	expect.Equal(t, "sent, once the other lane has found out, too", sent(), "member, first, afterwards, ended")
}

// A lane that was the only one to lose its steps is asked for by the other one, whose own are all there.
func TestFailoverOfTheOtherLane(t *testing.T) {
	t.Parallel()
	l := newLoop(loopConfig(t, nil), script{})
	p, now := l.scopes[""], time.Now()
	one, other := p.senders[0], p.senders[1]
	f := &flight{Step: &taskredis.Step{Number: 5, After: 4, OtherAfter: 9}}
	one.recorded, one.recordedAt, other.recorded, other.recordedAt = 4, now, 9, now
	newAttempt := func(by *sender, step int64) *attempt {
		a := &attempt{sender: by, step: step}
		a.ctx, a.cancel = context.WithCancelCause(t.Context())
		return a
	}
	lost, kept, elsewhere := newAttempt(other, 9), newAttempt(one, 4), newAttempt(newScope(l, "of a Cluster").senders[0], 9)
	l.attempts["lost"], l.attempts["kept"], l.attempts["elsewhere"] = lost, kept, elsewhere
	one.apply(t.Context(), f, &taskredis.Answer{Known: 4, OtherKnown: 7}, now, now)
	expect.Equal(t, "what each lane follows now", [2]int64{one.recorded, other.recorded}, [2]int64{4, 7})
	expect.Equal(t, "whether the attempts are lost", [3]bool{lost.lost.Load(), kept.lost.Load(), elsewhere.lost.Load()}, [3]bool{true, false, false})
}

// An outcome that a failover has forgotten was settled when its attempt had its lock. It counts, also if the lock has run out by
// the time at which it is sent again: else the task would stand still until its lease is over.
func TestForgottenOutcomeCountsWithoutItsLock(t *testing.T) {
	t.Parallel()
	for _, stopped := range []bool{false, true} { // while another task is still at work
		synctest.Test(t, func(t *testing.T) { forgetsAnOutcome(t, stopped) })
	}
}

func forgetsAnOutcome(t *testing.T, stopped bool) {
	t.Helper()
	var mu sync.Mutex
	var locks []string // with which the outcome came
	lane, forgot := 0, int64(0)
	step := func(s *taskredis.Step) (*taskredis.Answer, error) {
		mu.Lock()
		defer mu.Unlock()
		a := nothing(s)
		a.Known = s.Number
		switch {
		case isFirst(s):
			a.Taken = append(a.Taken, takenTask("1", "lock:a", 7), takenTask("2", "", 0))
		case len(s.Outcomes) == 0 && len(locks) == 1 && s.Lane == lane && s.After == forgot: // the first step after that
			return &taskredis.Answer{Now: a.Now, Known: forgot - 1}, nil
		case len(s.Outcomes) > 0:
			if len(locks) == 0 {
				lane, forgot = s.Lane, s.Number
			}
			locks = append(locks, s.Outcomes[0].Lock)
			result := taskredis.Settled
			if len(locks) == 2 {
				result = taskredis.Lost
			}
			a.Results, a.Replies = []taskredis.Result{result}, make([]taskredis.Reply, 1)
		}
		return a, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := newLoop(loopConfig(t, func(ctx context.Context, task *Task) error {
		if task.ID == "2" {
			<-ctx.Done()
		}
		return nil
	}), script{step: step})
	go l.run(ctx)
	if stopped {
		expect.OK(t, l.do(ctx, func() { l.stopping = true }))
	}
	time.Sleep(30 * time.Second)
	cancel()
	synctest.Wait()
	have := fmt.Sprintf("%q", locks)
	expect.That(t, have == `["lock:a" "lock:a" ""]`, "want it again with its lock, and then without, have %s", have)
}
