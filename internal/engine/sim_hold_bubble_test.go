package engine

import (
	"context"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// Lines that wait for a task that has failed. What is held follows from what the steps have settled, and not from what they
// have written down, so that a mark that is missing is noticed.

// The kinds of tasks that hold their lines.
const (
	holdKind = "holds"
	stopKind = "stops"
)

// lookHeld is how often a held line is looked at.
const lookHeld = 10 * time.Second

// forEver is later than all else, in µs of Redis' clock.
const forEver = math.MaxInt64

func onFailure(m *taskredis.Message) OnFailure {
	return map[string]OnFailure{holdKind: Hold, stopKind: Stop}[m.Type]
}

// A hold is what a task that has failed does to its lines.
type hold struct {
	resources string // whose lines those behind it wait in, "" for none
	ticket    int64
	until     int64 // µs of Redis' clock: the task begins no sooner, unless an operator has it run
	gone      bool  // asynq's tools have ended it: the lines go on once somebody looks
}

// holdOf returns the hold of a task whose attempt has ended so.
func (w *world) holdOf(o *taskredis.Outcome, how OnFailure) hold {
	at := w.attempts[o.Attempt]
	resources := at.resource
	if at.first != "" {
		resources = w.attempts[at.first].resource
	}
	h := hold{resources, at.ticket, w.redis.now().UnixMicro() + o.After.Microseconds(), false}
	switch {
	case resources == "" || how == Overtake || how == Hold && o.Kind == taskredis.Archive:
		return hold{}
	case o.Kind == taskredis.Archive:
		h.until = forEver
	case o.Kind != taskredis.Retry && o.Kind != taskredis.Snooze:
		return hold{}
	}
	w.logf("%s holds %q", o.ID, resources)
	return h
}

// nobodyHolds checks that an attempt passes nobody who holds a line.
func (w *world) nobodyHolds(queue string, at *attempt0) {
	for id, other := range w.tasks {
		h := other.hold
		if id == at.id || h.gone || w.jobs[id].queue != queue || h.ticket >= at.ticket {
			continue
		}
		for _, name := range store.Names(h.resources) {
			if name != "" && slices.Contains(store.Names(at.resource), name) {
				w.failf("%s takes %s with ticket %d, but %s with ticket %d holds its line", at.id, name, at.ticket, id, h.ticket)
			}
		}
	}
}

// restOf is for how long nobody need look at a line, as its head holds it. A task that has left the line is passed.
func (w *world) restOf(queue, lock string, line map[string]float64) time.Duration {
	first := ""
	for id, ticket := range line {
		if w.tasks[id].hold.resources == "" && !w.waits(queue, id, lock, ticket) {
			continue
		}
		if first == "" || ticket < line[first] || ticket == line[first] && id < first { // one that asks may have the ticket of another
			first = id
		}
	}
	h := w.tasks[first].hold
	if h.resources == "" {
		return 0
	}
	if h.gone {
		return lookHeld
	}
	return time.Duration(min(lookHeld.Microseconds(), h.until-w.redis.now().UnixMicro())) * time.Microsecond
}

// checkHeld checks that a task that holds its lines is in them.
func (w *world) checkHeld(j *job, h hold) {
	for _, name := range store.Names(h.resources) {
		if score, ok := w.scoreOf(taskredis.LineKey(j.queue, lockPrefix+name), j.id); !ok || int64(score) != h.ticket {
			w.failf("%s holds the line of %s with ticket %d, but has the place %.0f there", j.id, name, h.ticket, score)
		}
	}
}

// touched is what asynq's dashboard does to the hold of a task. One that has stopped its line, and is archived again before it has
// begun, stops it as before.
func (t *task) touched(what string, stopped bool) {
	switch {
	case t.hold.resources == "":
	case what == "run", what == "archive" && stopped: // it comes by way of pending
		t.hold.until = forEver
	default:
		t.hold.gone = true
	}
}

// holders returns the tasks that hold lines, in the order of their names.
func (w *world) holders() (ids []string) {
	for id, t := range w.tasks {
		if t.hold.resources != "" && !t.hold.gone {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// operateHeld does something about one of the tasks that hold lines.
func (w *world) operateHeld(what string, n int) {
	w.mu.Lock()
	ids := w.holders()
	w.mu.Unlock()
	switch {
	case len(ids) == 0:
	case what == "retry" || what == "skip":
		w.goOn(what, ids[n%len(ids)])
	default:
		w.operate(what, ids[n%len(ids)])
	}
}

// operateStopped has one of the lines that have stopped go on.
func (w *world) operateStopped() {
	w.mu.Lock()
	ids := slices.DeleteFunc(w.holders(), func(id string) bool { return w.tasks[id].state != "archived" })
	w.mu.Unlock()
	if len(ids) > 0 {
		w.goOn([]string{"retry", "skip"}[w.random(forHolds, uint64(w.jobs[ids[0]].n)).IntN(2)], ids[0])
	}
}

// goOn does what an operator does from lockctl.
func (w *world) goOn(what, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.redis.tick()
	t, queue := w.tasks[id], w.jobs[id].queue
	pending := w.redis.db.HGet(taskredis.TaskKey(queue, id), "state") == "pending" // it is about to come
	var done bool
	var err error
	if what == "retry" {
		done, err = taskredis.RetryHeld(context.Background(), simClient{redis: w.redis}, queue, id)
	} else {
		done, err = taskredis.SkipHeld(context.Background(), simClient{redis: w.redis}, queue, id, func(m *taskredis.Message) { m.ErrorMsg = "given up" })
	}
	w.logf("   %s of %s: %v", what, id, done)
	switch {
	case err != nil || done == pending:
		w.failf("%s of %s, which is %s and holds its line: %v, %v", what, id, t.state, done, err)
	case !done:
	case what == "retry":
		t.state, t.moved, t.hold.until = "live", true, w.redis.now().UnixMicro()
	default:
		t.state, t.hold = "archived", hold{}
	}
	w.tasks[id] = t
	w.changed()
}

// A simClient is a client of the Redis in memory that runs scripts, and reads hashes.
type simClient struct {
	redis.UniversalClient // nil: nothing else is called

	redis *simRedis
}

func (c simClient) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	return c.redis.Eval(ctx, text, keys, args...)
}

func (c simClient) EvalSha(ctx context.Context, hash string, keys []string, args ...any) *redis.Cmd {
	return c.redis.EvalSha(ctx, hash, keys, args...)
}

func (c simClient) HGet(_ context.Context, key, field string) *redis.StringCmd {
	return redis.NewStringResult(c.redis.db.HGet(key, field), nil)
}

// TestSimulationFindsMistakes: the simulation notices a script that holds a line in the wrong way. make simulate tries them;
// the other times this only looks whether the scripts are those that the mistakes change.
func TestSimulationFindsMistakes(t *testing.T) {
	t.Parallel()
	mistakes := map[string]struct{ file, old, wrong string }{
		"no mark":                              {"hold", "'siding_held', held, ", ""},
		"a look starts whoever holds its line": {"ready", "local goes_on_at = have.siding_held and Hold()", "local goes_on_at = false and Hold()"},
		"a line goes on that has stopped":      {"hold", "(state == 'archived' or state == 'pending') and math.huge", "state == 'pending' and math.huge"},
		"a crash lets the line go on":          {"upkeep_end", "local held = ARGV[12] == '1' and", "local held = false and"},
		"another ticket":                       {"hold", "local ticket = call('HGET', task, 'siding_ticket') or digits(now)", "local ticket = digits(now)"},
		"only the line of the first lock":      {"hold", "for lock in each(locks) do\n    list_line(", "for lock in string.gmatch(locks, '^[^\\n]+') do\n    list_line("},
		"nobody hears that it goes on":         {"go_on", "for lock in each(locks) do ours('ZADD', siding(queue, 'ready'), digits(now), lock) end\nnotify", "notify"},
		"nobody looks at it for hours":         {"ready", "now + Hold().LOOK", "now + 1000 * Hold().LOOK"},
		"a batch takes who holds its line":     {"ready", "or have.siding_held or have.siding_once", "or have.siding_once"},
		"whoever an operator has run asks":     {"fetch", "if own and not no_run and (have.siding_held or not one_lock or", "if false and ("},
		"asynq's whole seconds count":          {"settle", "line_locks, now + o.after)", "line_locks, math.ceil((now + o.after) / 1000000) * 1000000)"},
	}
	for name, m := range mistakes {
		text, err := os.ReadFile("../taskredis/" + m.file + ".lua")
		n := strings.Count(string(text), m.old)
		expect.That(t, err == nil && n == 1, "%s: want this once in %s.lua, have it %d times, %v: %s", name, m.file, n, err, m.old)
	}
	if os.Getenv("SIM_SEEDS") == "" {
		return
	}
	for name, m := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			edit := func(script string) string { return strings.Replace(script, m.old, m.wrong, 1) }
			for seed := uint64(1); seed <= 100; seed++ { // those of TestSimulation
				if newPlan(seed).holds == 0 {
					continue
				}
				if v := simulate(t, seed, edit); v.failure != "" {
					t.Logf("seed %d: %s", seed, v.failure)
					return
				}
			}
			t.Error("want it found")
		})
	}
}
