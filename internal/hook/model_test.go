package hook_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/internal/verify/model"
	"github.com/sidingq/siding/lock"
)

// TestScriptsDoWhatTheModelDoes walks at random through the model of the protocol. It makes each
// move with the real scripts, too, and then compares what Redis holds with the model's state.
func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	walks, steps := extent()
	seed := verify.Seed(t)
	for n := range walks {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			w := newTwin(t)
			w.rand = rand.New(rand.NewPCG(seed, n))
			for w.made < steps && !t.Failed() {
				resources := []uint8{0, 0, 0}
				if w.rand.IntN(2) == 0 {
					resources = []uint8{0, 0, 1, 1}
				}
				w.start(t, &model.Model{Resources: resources, Workers: 2, Faults: 4, Failures: 3, Prefetch: 6, Recovers: true})
				for !t.Failed() && !w.state.Final() {
					w.walk(t)
				}
				w.end(t)
			}
			t.Logf("%d steps in %d rounds", w.made, w.rounds)
		})
	}
}

// TestScriptsDoWhatTheModelDoesInAllCircumstances does the same on the shortest ways to each kind
// of step, in all circumstances that may matter for its script.
func TestScriptsDoWhatTheModelDoesInAllCircumstances(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	models := []*model.Model{
		{Resources: []uint8{0, 0}, Workers: 2, Faults: 1, Recovers: true, Symmetric: true},
		{Resources: []uint8{0, 0}, Workers: 2, Faults: 1, Prefetch: 1, Symmetric: true, Only: model.Stall},
		{Resources: []uint8{0, 0}, Workers: 1, Faults: 1, Prefetch: 1, Recovers: true, Symmetric: true, Only: model.Stall},
		{Resources: []uint8{0, 0, 0}, Workers: 2, Failures: 1, Symmetric: true},
		{Resources: []uint8{0, 0, 0}, Workers: 2, Prefetch: 1, Symmetric: true},
	}
	// The models are explored before there are workers. The exploration may take longer than the
	// lease with which an idle worker asks for its next task.
	cover := make([][]model.Way, len(models))
	for i, m := range models {
		cover[i] = m.Cover(circumstances)
		slices.Reverse(cover[i]) // the longest first: there is much on them
	}
	w, seen := newTwin(t), map[string]bool{}
	for i, m := range models {
		for _, way := range cover[i] {
			if seen[way.Kind] {
				continue
			}
			w.start(t, m)
			for _, step := range way.Steps {
				seen[circumstances(&w.state, &step)] = true
				if w.make(t, step); t.Failed() {
					return
				}
			}
			w.end(t)
		}
	}
	t.Logf("%d steps in %d rounds, %d kinds", w.made, w.rounds, len(seen))
}

// circumstances names a step by what may matter for its script.
func circumstances(s *model.State, step *model.Step) string {
	m := step.Move
	what := []any{m.Kind, step.Move.Outcome, s.Paused}
	l := &s.Locks[m.Resource]
	first, skipped := l.Waiters[0], false
	for _, id := range l.Waiters {
		skipped = skipped || id != 0 && s.Tasks[id-1].Skipped
	}
	if m.Kind == model.Sweep {
		return fmt.Sprint(append(what, l.Value, l.Mark, skipped, first != 0 && s.Tasks[first-1].Skipped)...)
	}
	if m.Task == 0 {
		return fmt.Sprint(what...)
	}
	task := &s.Tasks[m.Task-1]
	what = append(what, task.In)
	switch m.Kind {
	case model.Acquire, model.Rejoin:
		what = append(what, l.Value, l.Mark, l.For == m.Task, task.Position != 0, first == 0, first == m.Task, skipped)
	case model.Dequeue, model.Restore:
		what = append(what, task.Ticket != 0, task.Position != 0, skipped)
	case model.Finish:
		a := &s.Attempts[m.Slot]
		next := s.Queue[0]
		takes := next != 0 && s.Prefetch > 0
		what = append(what, a.Phase, a.Latest, l.Value, l.Mark, first == 0, first == m.Task, skipped, takes)
		if takes {
			what = append(what, s.Tasks[next-1].Ticket != 0, s.Tasks[next-1].Position != 0)
		}
	case model.TakePrefetched, model.Requeue:
		a := &s.Attempts[m.Slot]
		what = append(what, a.Phase, a.Latest, a.Deprived, task.Woken, s.Queue[0] != 0)
	case model.Release, model.GiveBack, model.Fail, model.Find, model.HandOff:
		what = append(what, l.Value, l.Mark, first == 0, first == m.Task, skipped)
	case model.Park, model.Acknowledge:
		a := &s.Attempts[m.Slot]
		what = append(what, a.Phase, a.Latest, task.Woken, a.Ticket == task.Position, a.Came == a.Ticket)
	case model.Wake, model.Confirm, model.Leave, model.Skip:
		c := &s.Wakers[m.Slot]
		what = append(what, c.Standing, c.Ticket == task.Ticket, c.Ticket == task.Position, task.Position != 0, l.Value, first == m.Task)
	case model.Recover:
		what = append(what, s.Recovery.Same)
	default: // no script of ours
	}
	return fmt.Sprint(what...)
}

// A twin is the model and its likeness in Redis.
type twin struct {
	f     *fleet
	store lock.Store
	rand  *rand.Rand

	rounds, made int
	did          map[string]int // by circumstances

	model    *model.Model
	state    model.State
	history  []string
	clock    *worker   // its server looks at the timers
	idle     []*worker // those on which nothing is left
	attempts map[uint8]*liveAttempt
	wakes    map[uint8]store.Reservation
	dead     []*liveAttempt
	recovery struct {
		orphan       asynqredis.Orphan
		nonce, token string
	}
	loss   store.Queued // what the sweeper has missed
	fences [model.MaxResources]fences
}

// A liveAttempt is an attempt of the model at work.
type liveAttempt struct {
	*run

	name   string // in the hash of its task
	nonce  string
	token  string
	ticket int64
	fence  int64
	down   bool // its server has shut down
}

// fences are the last one that was granted, and the highest that wrote.
type fences struct{ last, seen int64 }

func newTwin(t *testing.T) *twin {
	t.Helper()
	f := stores()["redis"](t)
	return &twin{f: f, store: lock.Redis(f.rdb), clock: f.worker(t), did: map[string]int{}}
}

// start starts a round, with new tasks.
func (w *twin) start(t *testing.T, m *model.Model) {
	t.Helper()
	w.rounds++
	w.model, w.state, w.history = m, m.Start(), nil
	w.attempts, w.wakes, w.dead = map[uint8]*liveAttempt{}, map[uint8]store.Reservation{}, nil
	w.fences = [model.MaxResources]fences{}
	for n := range w.model.Resources {
		w.f.enqueue(t, asynq.TaskID(w.id(model.ID(n+1))))
	}
	w.compare(t)
}

// end ends a round.
func (w *twin) end(t *testing.T) {
	t.Helper()
	if t.Failed() {
		return
	}
	if w.state.Paused {
		must(t, w.f.inspector.UnpauseQueue(w.f.queue))
	}
	for _, a := range slices.AppendSeq(w.dead, maps.Values(w.attempts)) {
		if a.run == nil {
			continue
		}
		if !a.started() {
			a.requeue(t, w.f.rdb)
		}
		a.stop()
	}
	must(t, w.f.rdb.Del(t.Context(), w.listKey()).Err()) // those of this round
	places := w.f.read(t).places()
	for n := range w.model.Resources {
		if id := w.id(model.ID(n + 1)); len(places[id]) > 0 {
			must(t, w.f.inspector.DeleteTask(w.f.queue, id))
		}
	}
}

// walk makes a step at random.
func (w *twin) walk(t *testing.T) {
	t.Helper()
	steps := w.model.Steps(nil, &w.state)
	if w.state.Crowded() { // the model has no room for many calls at a time
		steps = slices.DeleteFunc(steps, func(s model.Step) bool {
			return s.Move.Kind != model.GiveUp && s.Move.Kind != model.Wake
		})
	}
	w.make(t, w.choose(steps))
}

// make makes a step, and compares.
func (w *twin) make(t *testing.T, step model.Step) {
	t.Helper()
	w.made++
	w.history = append(w.history, step.Move.String())
	before := w.state
	w.state = step.Next
	w.move(t, &before, step)
	w.compare(t)
	if t.Failed() {
		t.Logf("the steps:\n%s", strings.Join(w.history, "\n"))
	}
}

// choose prefers moves that it has seldom made. A mistake in a script shows in rare results.
func (w *twin) choose(steps []model.Step) model.Step {
	weights, total := make([]float64, len(steps)), 0.0
	for i, step := range steps {
		weights[i] = 1 / float64(1+w.did[circumstances(&w.state, &step)])
		total += weights[i]
	}
	n, left := 0, w.rand.Float64()*total
	for n < len(steps)-1 && left > weights[n] {
		left -= weights[n]
		n++
	}
	w.did[circumstances(&w.state, &steps[n])]++
	return steps[n]
}

func (w *twin) id(id model.ID) string { return fmt.Sprintf("task-%d-%d", w.rounds, id) }
func (w *twin) key(r uint8) string    { return fmt.Sprintf("lock:%s-%d-%d", w.f.queue, w.rounds, r) }

// listKey is the list of locks at which the sweeper looks.
func (w *twin) listKey() string { return "siding:{" + w.f.queue + "}:contended" }

func (w *twin) waiter(id model.ID) string    { return asynqredis.WaiterName(w.f.queue, w.id(id)) }
func (w *twin) keyOf(id model.ID) string     { return w.key(w.model.Resource(id)) }
func (w *twin) fencesOf(id model.ID) *fences { return &w.fences[w.model.Resource(id)] }
