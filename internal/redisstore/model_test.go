package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/internal/verify/model/permits"
)

// TestScriptsDoWhatTheModelDoes walks at random through the model of limits and rates. It makes each move
// with the real scripts, too, and then compares what Redis holds with the model's state.
func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	walks, steps := uint64(2), 1000
	if verify.All() {
		walks, steps = 6, 8000
	}
	slow, burst, two := []permits.Rate{{Starts: 1, Period: 2}}, []permits.Rate{{Starts: 2, Period: 3}}, []permits.Rate{{Starts: 1, Period: 2}, {Starts: 3, Period: 6}}
	models := []permits.Model{{}, {Rates: burst, NewRates: slow}, {Rates: two, NewRates: burst}}
	seed := verify.Seed(t)
	for n := range walks {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			w := &twin{rdb: redistest.Shared(t).Client(t), rand: rand.New(rand.NewPCG(seed, n)), did: map[string]int{}}
			var ok bool
			if w.store, ok = redisstore.New(w.rdb).(sweepingStore); !ok {
				t.Fatal("want a store that sweeps")
			}
			for w.made < steps && !t.Failed() {
				m := models[w.rand.IntN(len(models))]
				m.Tasks, m.Faults, m.Changes = permits.MaxTasks, 6, 4
				w.start(&m, fmt.Sprintf("lock:%s-%d", t.Name(), w.rounds))
				for !w.state.Final() && !t.Failed() {
					w.step(t)
				}
			}
			t.Logf("%d steps in %d rounds, %d kinds", w.made, w.rounds, len(w.did))
		})
	}
}

// tick is how long a second of the model takes. The test takes no time that counts against that.
const tick = 10 * time.Minute

type sweepingStore interface {
	store.Store
	store.Sweeper
}

// A twin is the model and its likeness in Redis.
type twin struct {
	rdb   *redis.Client
	store sweepingStore
	rand  *rand.Rand
	key   string

	rounds, made, calls int
	did                 map[string]int
	history             []string

	model *permits.Model
	state permits.State
	tasks [permits.MaxTasks]liveTask
	dead  [permits.MaxPermits]string // the tokens of processes that are gone
	sweep string                     // the nonce of the sweep that got no answer
	plan  int                        // in how many ticks a client sweeps the lock, + 1; 0 for never
	fence int64                      // the highest
}

// A liveTask is what the client of a task knows.
type liveTask struct {
	token, nonce string // of the call that may be sent again
	fence        int64
	ticket       int64
	wake         *store.Reservation // by which it is about to be woken
}

// start starts a round, with new tasks.
func (w *twin) start(m *permits.Model, key string) {
	*w = twin{rdb: w.rdb, store: w.store, rand: w.rand, key: key, rounds: w.rounds + 1, made: w.made, calls: w.calls, did: w.did, model: m, state: m.Start()}
}

// step makes a step at random. It prefers those that it has seldom made.
func (w *twin) step(t *testing.T) {
	t.Helper()
	steps := w.model.Steps(nil, &w.state)
	weights, total := make([]float64, len(steps)), 0.0
	for i := range steps {
		weights[i] = 1 / float64(1+w.did[w.circumstances(steps[i].Move)])
		total += weights[i]
	}
	n, left := 0, w.rand.Float64()*total
	for n < len(steps)-1 && left > weights[n] {
		left -= weights[n]
		n++
	}
	step, before := steps[n], w.state
	w.did[w.circumstances(step.Move)]++
	w.made++
	w.history = append(w.history, step.Move.String())
	w.state = step.Next
	w.move(t, &before, step.Move)
	w.compare(t)
	if t.Failed() {
		t.Logf("rates %v and %v\n%s", w.model.Rates, w.model.NewRates, strings.Join(w.history, "\n"))
	}
}

// circumstances names a move by what may matter for its script.
func (w *twin) circumstances(m permits.Move) string {
	s := &w.state
	var values [permits.MaxPermits]permits.Value
	for n, p := range s.Permits {
		values[n] = p.Value
	}
	what := fmt.Sprint(m.Kind, m.Rule, values, s.Mark, s.Expired, s.Starts, s.Plan)
	if m.Kind == permits.Ask {
		what += fmt.Sprint(s.Tasks[m.N-1].Queued)
	}
	return what
}

// move makes a move with the scripts.
func (w *twin) move(t *testing.T, before *permits.State, m permits.Move) {
	t.Helper()
	answered := m.Kind < permits.LoseAsk
	switch m.Kind {
	case permits.Ask, permits.LoseAsk:
		w.ask(t, m, answered)
	case permits.Release, permits.LoseRelease, permits.ReleaseAgain:
		w.release(t, before, m, answered)
	case permits.Wake:
		live := w.live(m)
		must(t, w.store.Confirm(t.Context(), *live.wake))
		live.wake = nil
	case permits.LoseWaker:
		w.live(m).wake = nil
	case permits.Sweep, permits.LoseSweep, permits.SweepAgain, permits.SweepPlanned:
		w.sweeps(t, m, answered)
	case permits.LosePlan:
		w.plan = 0
	case permits.Expire, permits.ExpireEarly:
		must(t, w.rdb.Del(t.Context(), w.permit(m.N)).Err())
		if !w.state.Mark { // it expires with the last permit
			must(t, w.rdb.Del(t.Context(), w.key).Err())
		}
	case permits.Crash:
		live := w.live(m)
		for n, p := range w.state.Permits {
			if p.Value == permits.Dead && before.Permits[n].Value == permits.Held {
				w.dead[n] = live.token
			}
		}
		live.token, live.nonce = "", ""
	case permits.Tick:
		w.tick(t)
	case permits.Stall, permits.Change, permits.ChangeRates, permits.Unpause, permits.Read: // Redis learns nothing
	}
}

func (w *twin) live(m permits.Move) *liveTask { return &w.tasks[m.N-1] }

func (w *twin) permit(number uint8) string { return store.PermitKey(w.key, strconv.Itoa(int(number))) }

func waiter(n int) string { return fmt.Sprint("waiter-", n) }

// rule is the rule that a call carries.
func (w *twin) rule(m permits.Move) *store.Rule {
	rule := &store.Rule{Limit: int(m.Rule.Limit)}
	for _, r := range w.model.RatesOf(m.Rule) {
		rule.Rates = append(rule.Rates, store.Rate{Starts: int(r.Starts), Period: time.Duration(r.Period) * tick})
	}
	return rule
}

func (w *twin) nonce() string {
	w.calls++
	return fmt.Sprint("nonce-", w.calls)
}

func handoff(nonce string) store.Handoff {
	return store.Handoff{Nonce: nonce, Stepwise: true, Timeout: time.Hour, QueueTTL: time.Hour}
}

func (w *twin) ask(t *testing.T, m permits.Move, answered bool) {
	t.Helper()
	live := w.live(m)
	if live.nonce == "" {
		live.nonce = w.nonce()
		live.token = "siding:" + live.nonce + ":task"
	}
	got, err := w.store.Acquire(t.Context(), store.Request{
		Key: w.key, Rule: w.rule(m), Token: live.token, TTL: time.Hour, FenceTTL: time.Hour,
		Waiter: waiter(int(m.N)), Came: live.ticket, Handoff: handoff(live.nonce),
	})
	must(t, err)
	if !answered {
		return
	}
	task := &w.state.Tasks[m.N-1]
	if granted := task.Phase == permits.Holding; got.Taken != granted {
		t.Fatalf("want it granted: %v, have %+v", granted, got)
	}
	live.nonce = ""
	if got.Taken {
		live.fence = got.Fence
		if want := w.permit(task.Permit + 1); got.Permit != want {
			t.Errorf("want the permit %s, have %s", want, got.Permit)
		}
		return
	}
	live.token = ""
	w.later(got.Later)
	w.reserved(got.Next)
}

func (w *twin) release(t *testing.T, before *permits.State, m permits.Move, answered bool) {
	t.Helper()
	live, task := w.live(m), before.Tasks[m.N-1]
	if m.Kind != permits.ReleaseAgain {
		live.nonce = w.nonce()
	}
	next, err := w.store.Release(t.Context(), w.permit(task.Permit+1), live.token, store.Release{Handoff: handoff(live.nonce), Fence: live.fence, Rule: w.rule(m)})
	if !w.state.Tasks[m.N-1].Waker {
		live.wake = nil // it finds nobody
	}
	if err != nil && (task.Phase != permits.Lost || !errors.Is(err, store.ErrLost)) {
		t.Errorf("want no error, have %v", err)
	}
	if !answered {
		return
	}
	live.token, live.nonce = "", ""
	if next != nil && next.Later > 0 {
		w.later(next.Later)
		return
	}
	w.reserved(next)
}

func (w *twin) sweeps(t *testing.T, m permits.Move, answered bool) {
	t.Helper()
	nonce := w.nonce()
	switch m.Kind {
	case permits.LoseSweep:
		w.sweep = nonce
	case permits.SweepAgain:
		nonce = w.sweep
	case permits.SweepPlanned:
		w.plan = 0
	default: // the sweeper's own
	}
	found, err := w.store.Sweep(t.Context(), []store.Ruled{{Key: w.key, Rule: w.rule(m)}}, false, handoff(nonce))
	must(t, err)
	if !answered {
		return
	}
	w.later(found[0].Later)
	for _, next := range found[0].Next {
		w.reserved(next)
	}
}

// later is the answer of a script which says when the rates allow the next start.
func (w *twin) later(after time.Duration) {
	ticks := int((after + tick - 1) / tick)
	if ticks > 0 && (w.plan == 0 || ticks < w.plan-1) {
		w.plan = ticks + 1
	}
}

// reserved is the answer of a script which names a waiter that the client has to wake.
func (w *twin) reserved(next *store.Reservation) {
	for n := range w.tasks {
		if next != nil && next.Waiter == waiter(n+1) {
			w.tasks[n].wake = next
		}
	}
}

// tick has time pass: all starts are as much earlier, and their list expires as much sooner.
func (w *twin) tick(t *testing.T) {
	t.Helper()
	if w.plan > 1 {
		w.plan--
	}
	starts := w.rdb.LRange(t.Context(), w.list(), 0, -1).Val()
	if len(starts) == 0 {
		return
	}
	_, err := w.rdb.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for n, start := range starts {
			at, err := strconv.ParseInt(start, 10, 64)
			if err != nil {
				return err
			}
			pipe.LSet(t.Context(), w.list(), int64(n), at-tick.Microseconds())
		}
		if left := w.rdb.PTTL(t.Context(), w.list()).Val(); left > tick+time.Second { // which the scripts add
			pipe.PExpire(t.Context(), w.list(), left-tick)
		} else {
			pipe.Del(t.Context(), w.list())
		}
		return nil
	})
	must(t, err)
}

func (w *twin) list() string { return "{" + w.key + "}:starts" }

// A view is what the model and Redis both know.
type view struct {
	Permits [permits.MaxPermits]string
	Queue   []string
	Starts  []int // how many ticks ago
	Wakers  []string
	Plan    int
	Mark    bool
	Expired bool
}

// compare compares Redis with the state of the model.
func (w *twin) compare(t *testing.T) {
	t.Helper()
	want, have := w.wanted(), w.found(t)
	if diff := gocmp.Diff(want, have); diff != "" {
		t.Errorf("the model and Redis differ (-want +have):\n%s", diff)
	}
}

// wanted is what the model knows.
func (w *twin) wanted() view {
	s := &w.state
	v := view{Mark: s.Mark, Expired: s.Expired, Plan: int(s.Plan)}
	for n, p := range s.Permits {
		switch p.Value {
		case permits.Held:
			v.Permits[n] = w.tasks[p.Of-1].token
		case permits.Reserved:
			v.Permits[n] = "for " + waiter(int(p.Of))
		case permits.Dead:
			v.Permits[n] = w.dead[n]
		case permits.Free:
		}
	}
	var queued []int
	for n, task := range s.Tasks {
		if task.Queued {
			queued = append(queued, n)
		}
		if task.Waker {
			v.Wakers = append(v.Wakers, waiter(n+1))
		}
	}
	slices.SortFunc(queued, func(a, b int) int { return int(s.Tasks[a].Ticket) - int(s.Tasks[b].Ticket) })
	for _, n := range queued {
		v.Queue = append(v.Queue, waiter(n+1))
	}
	for _, age := range s.Starts {
		if age > 0 {
			v.Starts = append(v.Starts, int(age)-1)
		}
	}
	return v
}

// found is what Redis and the clients know. It also checks that fences rise, and keeps the tickets.
func (w *twin) found(t *testing.T) (v view) {
	t.Helper()
	ctx, pipe := t.Context(), w.rdb.Pipeline()
	values := pipe.MGet(ctx, w.key, "{"+w.key+"}:fence", w.permit(1), w.permit(2))
	fences := pipe.HGetAll(ctx, "{"+w.key+"}:permits")
	queue := pipe.ZRangeWithScores(ctx, "{"+w.key+"}:queue", 0, -1)
	starts, now := pipe.LRange(ctx, w.list(), 0, -1), pipe.Time(ctx)
	_, err := pipe.Exec(ctx)
	must(t, err)
	v.Plan = w.plan
	text := func(n int) string { s, _ := values.Val()[n].(string); return s }
	v.Mark, v.Expired = text(0) == "siding-limited", strings.HasSuffix(text(1), "*")
	for n := range v.Permits {
		v.Permits[n] = text(n + 2)
		if parts := strings.SplitN(text(n+2), ":", 4); parts[0] == "siding-reserved" {
			v.Permits[n] = "for " + parts[3]
		}
	}
	before := w.fence
	for number, fence := range fences.Val() {
		n, _ := strconv.Atoi(number)
		f, _ := strconv.ParseInt(fence, 10, 64)
		if p := w.state.Permits[n-1]; p.Value == permits.Held {
			live := &w.tasks[p.Of-1]
			if live.fence != f && f <= before {
				t.Errorf("want a fence above %d, have %d", before, f)
			}
			live.fence, w.fence = f, max(w.fence, f)
		}
	}
	for _, z := range queue.Val() {
		name := fmt.Sprint(z.Member)
		v.Queue = append(v.Queue, name)
		n, _ := strconv.Atoi(strings.TrimPrefix(name, "waiter-"))
		w.tasks[n-1].ticket = int64(z.Score)
	}
	for n, task := range w.tasks {
		if task.wake != nil {
			v.Wakers = append(v.Wakers, waiter(n+1))
		}
	}
	for _, start := range starts.Val() {
		at, _ := strconv.ParseInt(start, 10, 64)
		if age := now.Val().Sub(time.UnixMicro(at)) / tick; age < w.longest() {
			v.Starts = append(v.Starts, int(age))
		}
	}
	return v
}

// longest is the longest period, in ticks.
func (w *twin) longest() (longest time.Duration) {
	for _, r := range slices.Concat(w.model.Rates, w.model.NewRates) {
		longest = max(longest, time.Duration(r.Period))
	}
	return longest
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
