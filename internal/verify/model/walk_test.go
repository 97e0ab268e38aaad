package model_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/internal/verify/model"
)

// walked are the models that the scripts follow.
func walked() map[string]model.Model {
	return map[string]model.Model{
		"two tasks":                {Tasks: two, Servers: fleet},
		"three tasks":              {Tasks: three, Servers: fleet},
		"four tasks, two slots":    {Tasks: four, Servers: wide},
		"without a resource":       {Tasks: others, Servers: wide},
		"plain clients":            {Tasks: plain, Servers: fleet},
		"a plain client's and one": {Tasks: mixed, Servers: wide},
		"two queues, two servers":  {Tasks: crowd, Servers: apart},
		"two queues, a server":     {Tasks: crowd, Servers: both},
		"sets":                     {Tasks: around, Servers: fleet},
		"two sets":                 {Tasks: sets, Servers: wide},
		"sets in two queues":       {Tasks: across, Servers: apart},
		"batches":                  {Tasks: mates, Servers: fleet},
		"batches and other kinds":  {Tasks: kinds, Servers: pair},
	}
}

// TestScriptsDoAsTheModel takes walks through models, and has the scripts of taskredis do the same on a Redis in memory. What the
// two know must be the same after each move. So what the model shows holds for the scripts, as far as the walks have come.
func TestScriptsDoAsTheModel(t *testing.T) {
	t.Parallel()
	walks := 50
	if verify.All() {
		walks = 1500
	}
	for name, m := range walked() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed, moves := verify.Seed(t), 0
			for n := range uint64(walks) {
				n, difference := walk(t, m, rand.New(rand.NewPCG(seed, n)), nil)
				if moves += n; difference != "" {
					t.Fatal(difference)
				}
			}
			t.Logf("%d walks, %d moves", walks, moves)
		})
	}
}

// TestWalksFindMistakes: walks notice a script that does not what the model does. make verify tries them; the other times this only
// looks whether the scripts are those that the mistakes change.
func TestWalksFindMistakes(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct{ file, old, wrong string }{
		"an outcome of any attempt counts":   {"taskredis/settle", "if latest ~= attempt or state ~= 'active' then", "if state ~= 'active' then"},
		"so does one without its lock":       {"taskredis/settle", "if lost and kind ~= 'requeue' then", "if false then"},
		"a task keeps its lease":             {"taskredis/settle", "call('ZREM', asynq(queue, 'lease'), unpack(ids))", ""},
		"recovery takes a held lock":         {"taskredis/recover", "if key then", "if false then"},
		"a crash is not counted":             {"taskredis/recover", "call('HSET', task, 'siding_crashes', crashed + 1)", ""},
		"an operator's run loses the place":  {"taskredis/start", "if have.state == 'pending' then\n    local ends", "if false then\n    local ends"},
		"the end of a line stays in the set": {"taskredis/ready", "call('ZREM', q.ready, lock)", ""},
		"pending passes those who wait":      {"taskredis/fetch", "if key and not first then", "if key then"},
		"who has a place asks at once":       {"taskredis/fetch", "if own and not no_run and (have.siding_held or not one_lock or", "if false and ("},
		"who asks passes those who wait":     {"taskredis/ask", "if asks and waits or (older == queue or goes_on(older, lock)) and (waits or anybody_waits(older, lock)) then key = nil end", ""},
		"only the oldest line hears":         {"lockredis/lines", "for i = 3, #lines, 2 do mark(lock, lines[i], others) end", ""},
		"the younger line hears at once":     {"lockredis/lines", "others = math.max(due, now) + OFFER", "others = due"},
		"a step that comes again runs again": {"taskredis/step", "if known == number then", "if false then"},
		"a step runs after a failover":       {"taskredis/step", "if known ~= after or other_known < other_after then", "if false then"},
		"a late step takes tasks":            {"taskredis/step", "while free > 0 and not aged and", "while free > 0 and"},
		"a set starts with one of its locks": {"taskredis/ready", "Ask().keys_for(have.siding_lock, tonumber(ticket)", "Ask().keys_for(lock, tonumber(ticket)"},
		"a set passes those of other queues": {"taskredis/ask", "(older == queue or goes_on(older, lock))", "older == queue"},
		"a set gives back one of its locks":  {"lockredis/free", "do free(one, by, queue) end", "do return free(one, by, queue) end"},
		"who asks passes one just parked":    {"taskredis/start", "if last < now + AHEAD then progress.came = last + 1 - now end", ""},
		"whoever of a batch ends frees it":   {"taskredis/settle", "lock_owner == attempt and held_keys or nil", "held_keys"},
		"a batch is taken apart at work":     {"taskredis/recover", "held_by(lock, holder_of(attempt))", "held_by(lock, attempt)"},
		"a batch takes who has crashed":      {"taskredis/ready", "or have.siding_crashes or ends", "or ends"},
		"a batch takes a set":                {"taskredis/ready", "or have.siding_lock ~= lock or have.siding_held", "or have.siding_held"},
		"a batch takes another kind":         {"taskredis/ready", "if not has_prefix(have.msg or call('HGET', task, 'msg') or '', o.head) then break end", ""},
		"a stopped line goes on":             {"taskredis/hold", "(state == 'archived' or state == 'pending') and math.huge", "state == 'pending' and math.huge"},
	} {
		text, err := os.ReadFile("../../" + m.file + ".lua")
		if n := strings.Count(string(text), m.old); err != nil || n != 1 {
			t.Errorf("%s: want this once in %s.lua, have it %d times, %v: %s", name, m.file, n, err, m.old)
		}
		if !verify.All() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			edit := func(script string) string { return strings.Replace(script, m.old, m.wrong, 1) }
			for n := range uint64(1000) {
				for of, walked := range walked() {
					if moves, difference := walk(t, walked, rand.New(rand.NewPCG(1, n)), edit); difference != "" {
						t.Logf("after %d walks: %s, %d moves", n, of, moves)
						return
					}
				}
			}
			t.Error("want a difference, have none")
		})
	}
}

// alike are the faults and actions of a walk: those that the scripts of a step, and asynq's inspector, know as well.
var alike = []model.Event{
	model.Delete, model.Archive, model.DashboardRuns, model.EnqueueAgain, model.Pause,
	model.StepUnheard, model.StepDelayed, model.Crash, model.CutOff, model.Drain, model.ForeignTakes, model.Revoke, model.ReplicaStops,
}

// walk takes moves until all tasks are finished, and returns how many, and where the two differ. edit changes the scripts.
func walk(t *testing.T, m model.Model, random *rand.Rand, edit func(script string) string) (moves int, difference string) {
	t.Helper()
	m.Wide, m.Only = true, alike
	m.Faults, m.Failures, m.Actions = uint8(random.IntN(3)), uint8(random.IntN(3)), uint8(random.IntN(3))
	w := newTwin(t, &m, edit)
	defer w.close()
	w.state.Faults, w.state.Actions = 0, 0 // until something is under way
	calm := random.IntN(25)
	var words []string
	var steps []model.Transition
	for n := range 80 {
		if n == calm {
			w.state.Faults, w.state.Actions = m.Faults, m.Actions
		}
		steps = slices.DeleteFunc(m.Steps(steps[:0], &w.state), func(tr model.Transition) bool { return !w.can(tr.Move) })
		if len(steps) == 0 || m.Final(&w.state) {
			break
		}
		next := steps[random.IntN(len(steps))]
		words = append(words, next.Move.String())
		w.move(next)
		w.state = next.Next
		if w.tie() {
			break
		}
		w.line()
		if difference := cmp.Diff(w.model(), w.redis()); difference != "" || w.err != nil {
			return len(words), fmt.Sprintf("%s\n%v\nthe model knows -, Redis +:\n%s", strings.Join(words, "\n"), w.err, difference)
		}
	}
	return len(words), ""
}
