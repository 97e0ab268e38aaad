package hook_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/verify"
)

// TestRandomWalk makes moves at random, ours and asynq's own. After each move it compares Redis
// with a model of what should be there. A walk that fails prints its last steps.
func TestRandomWalk(t *testing.T) {
	t.Parallel()
	walks, steps := extent()
	seed := verify.Seed(t)
	for n := range walks {
		for where, store := range stores() {
			t.Run(fmt.Sprint(n, " ", where), func(t *testing.T) {
				t.Parallel()
				if n > 0 && where == "miniredis" { // one walk shows that the scripts run there
					verify.Long(t)
				}
				w := newWalk(t, store(t), rand.New(rand.NewPCG(seed, n)))
				for i := 0; i < steps && !t.Failed(); i++ {
					w.step(t)
				}
				w.end(t)
			})
		}
	}
}

// extent returns how many walks a test makes, and how long they are.
func extent() (walks uint64, steps int) {
	if verify.All() {
		return 6, 800
	}
	return 2, 200
}

// A walk is a queue, two workers on it, and what the queue should look like.
type walk struct {
	f       *fleet
	rand    *rand.Rand
	workers []*worker
	late    []*run // attempts whose task asynq has taken from them
	history []string
	moves   map[string]int

	tasks             map[string]*modelTask
	pending           []string // the next one first
	paused            bool
	processed, failed int
	created           int
}

// A modelTask is what the walk knows of a task.
type modelTask struct {
	state         string
	at            int64 // its score in scheduled or retry, if the walk has set it
	ticket, woken string
	parked        int
	retried, max  int
	retention     bool
	run           *run // while active
	reason        string
	failure       string // its own last one
}

func newWalk(t *testing.T, f *fleet, random *rand.Rand) *walk {
	t.Helper()
	w := &walk{
		f: f, rand: random, workers: []*worker{f.fetchingWorker(t), f.fetchingWorker(t)},
		tasks: map[string]*modelTask{}, moves: map[string]int{},
	}
	w.enqueue(t) // from now on asynq knows the queue
	return w
}

// step makes one move and compares.
func (w *walk) step(t *testing.T) {
	t.Helper()
	moves := []struct {
		weight int
		make   func(*testing.T)
	}{
		{12, w.enqueue},
		{24, w.dequeue},
		{20, w.park},
		{26, w.wake},
		{5, w.succeed},
		{8, w.finish},
		{6, w.requeue},
		{5, w.fail},
		{5, w.operate},
		{3, w.pause},
		{6, w.makeDue},
		{8, w.runTimers},
		{6, w.recover},
		{10, w.endLate},
	}
	total := 0
	for _, m := range moves {
		total += m.weight
	}
	n := w.rand.IntN(total)
	for _, m := range moves {
		if n -= m.weight; n < 0 {
			m.make(t)
			break
		}
	}
	w.compare(t)
	if t.Failed() {
		t.Logf("the last steps:\n%s", strings.Join(w.history[max(0, len(w.history)-40):], "\n"))
	}
}

// did writes down a move; its kind and its outcome are counted.
func (w *walk) did(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf(format, args...))
	words := strings.Fields(w.history[len(w.history)-1])
	w.moves[words[0]+" "+words[len(words)-1]]++
}

// pick returns a random task of which fit is true, nil if there is none.
func (w *walk) pick(fit func(*modelTask) bool) (string, *modelTask) {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(w.tasks)) {
		if fit(w.tasks[id]) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return "", nil
	}
	id := ids[w.rand.IntN(len(ids))]
	return id, w.tasks[id]
}

func in(states ...string) func(*modelTask) bool {
	return func(m *modelTask) bool { return slices.Contains(states, m.state) }
}

// started fits a task whose handler is at work.
func started(m *modelTask) bool { return m.state == "active" && m.run.started() }

// compare compares Redis with the model, and now and then the Inspector too.
func (w *walk) compare(t *testing.T) {
	t.Helper()
	s := w.f.read(t)
	for _, p := range s.problems() {
		t.Error(p)
	}
	if diff := gocmp.Diff(w.pending, s.pending()); diff != "" && len(w.pending)+len(s.pending()) > 0 {
		t.Errorf("pending, the next one first (-want +have):\n%s", diff)
	}
	if have, want := len(s.hashes), len(w.tasks); have != want {
		t.Errorf("want %d tasks, have %d", want, have)
	}
	for id, m := range w.tasks {
		task := s.task(id)
		if task["state"] != m.state || task["siding_ticket"] != m.ticket || task["siding_woken"] != m.woken {
			t.Errorf("%s: want it %s, ticket %q, woken %q; have %v", id, m.state, m.ticket, m.woken, task)
		}
		if parked, _ := strconv.Atoi(task["siding_parked"]); parked != m.parked {
			t.Errorf("%s: want it parked %d times, have %d", id, m.parked, parked)
		}
		if have := s.scores[m.state][id]; (m.state == "retry" || m.state == "scheduled") && m.at != 0 && have != m.at {
			t.Errorf("%s: want its fallback time at %d, have %d", id, m.at, have)
		}
	}
	if w.rand.IntN(10) == 0 {
		w.inspect(t, s)
	}
}

func (w *walk) inspect(t *testing.T, s *state) {
	t.Helper()
	w.f.checkInspector(t, s)
	info := w.f.info(t)
	if info.ProcessedTotal != w.processed || info.FailedTotal != w.failed || info.Paused != w.paused {
		t.Errorf("want %d processed, %d failed, paused %v; have %d, %d, %v",
			w.processed, w.failed, w.paused, info.ProcessedTotal, info.FailedTotal, info.Paused)
	}
	for id, m := range w.tasks {
		if task := w.f.task(t, id); task.Retried != m.retried || task.MaxRetry != m.max || task.LastErr != m.reason {
			t.Errorf("%s: want %d of %d retries, %q; have %d of %d, %q",
				id, m.retried, m.max, m.reason, task.Retried, task.MaxRetry, task.LastErr)
		}
	}
}

// end stops the workers, which requeue what they run.
func (w *walk) end(t *testing.T) {
	t.Helper()
	if t.Failed() {
		return
	}
	for len(w.late) > 0 {
		w.endLateAt(t, 0)
	}
	for range w.tasks {
		w.requeue(t)
	}
	w.compare(t)
	for _, worker := range w.workers {
		worker.stop()
	}
	var want []string
	for _, id := range slices.Sorted(maps.Keys(w.tasks)) {
		if m := w.tasks[id]; m.state == "active" || m.state == "pending" {
			want = append(want, id)
		}
	}
	have := w.f.check(t).pending()
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("want all that was active pending, %v, have %v", want, have)
	}
	t.Logf("%v", w.moves)
}
