package hook_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/verify/model"
)

// A view is what model and Redis must agree on.
type view struct {
	Pending []string
	Paused  bool
	Tasks   []taskView
	Locks   []lockView
	Latest  map[uint8]bool // by attempt: it is the one that the task's hash names
	Writes  map[uint8]bool // by attempt: the ledger would take its fence
	Stands  map[uint8]bool // by waker
}

type taskView struct {
	In    string
	Woken bool
}

type lockView struct {
	Value string
	Mark  bool
	// Queue has the waiters of the wait queue, and Skipped those of the paused queue.
	Queue, Skipped []string
	// Tickets are those of all its tasks: which are the same, and which are older; 0 is none.
	Tickets []int
}

func (w *twin) compare(t *testing.T) {
	t.Helper()
	s := w.f.read(t)
	for _, p := range s.problems() {
		t.Error(p)
	}
	if diff := gocmp.Diff(w.modelView(), w.redisView(t, s)); diff != "" {
		t.Errorf("(-model +redis):\n%s", diff)
	}
}

func newView(w *twin) view {
	return view{Paused: w.state.Paused, Pending: []string{}, Latest: map[uint8]bool{}, Writes: map[uint8]bool{}, Stands: map[uint8]bool{}}
}

func (w *twin) modelView() view {
	s, v := &w.state, newView(w)
	for _, id := range s.Queue {
		if id != 0 {
			v.Pending = append(v.Pending, w.id(id))
		}
	}
	for n := range w.model.Resources {
		task := &s.Tasks[n]
		places := [...]string{
			model.Pending: "pending", model.Active: "active", model.Parked: "retry", model.Backoff: "retry",
			model.Archived: "archived", model.Done: "gone", model.Deleted: "gone",
		}
		v.Tasks = append(v.Tasks, taskView{places[task.In], task.Woken})
	}
	for r := range w.resources() {
		l := &s.Locks[r]
		lv := lockView{Mark: l.Mark, Queue: []string{}, Skipped: []string{}, Tickets: w.modelTickets(r)}
		switch l.Value {
		case model.Free:
			lv.Value = "free"
		case model.Held:
			switch l.By {
			case model.ByDead:
				lv.Value = "held by the dead"
			case model.ByRecovery:
				lv.Value = "held by the recovery"
			default:
				lv.Value = fmt.Sprintf("held by attempt %d", l.By-1)
			}
		case model.Reserved:
			lv.Value = "reserved for " + w.waiter(l.For)
		case model.Foreign:
			lv.Value = "foreign"
		}
		for _, id := range l.Waiters {
			switch {
			case id == 0:
			case s.Tasks[id-1].Skipped:
				lv.Skipped = append(lv.Skipped, w.waiter(id))
			default:
				lv.Queue = append(lv.Queue, w.waiter(id))
			}
		}
		v.Locks = append(v.Locks, lv)
	}
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Task != 0 {
			v.Latest[uint8(i)] = a.Latest
			if a.Phase == model.Holding {
				v.Writes[uint8(i)] = a.Fence >= s.Locks[w.model.Resource(a.Task)].Seen
			}
		}
	}
	for i := range s.Wakers {
		if s.Wakers[i].Task != 0 {
			v.Stands[uint8(i)] = s.Wakers[i].Standing
		}
	}
	return v
}

// modelTickets and redisTickets return all tickets of a resource, in one order.
func (w *twin) modelTickets(r uint8) []int {
	s, tickets := &w.state, []int64{}
	for n := range w.model.Resources {
		if w.model.Resources[n] == r {
			tickets = append(tickets, int64(s.Tasks[n].Position), int64(s.Tasks[n].Ticket))
		}
	}
	for i := range s.Attempts {
		if a := &s.Attempts[i]; a.Task != 0 && w.model.Resource(a.Task) == r {
			tickets = append(tickets, int64(a.Came))
			if a.Phase == model.Busy {
				tickets = append(tickets, int64(a.Ticket))
			}
		}
	}
	for i := range s.Wakers {
		if c := &s.Wakers[i]; c.Task != 0 && w.model.Resource(c.Task) == r {
			tickets = append(tickets, int64(c.Ticket))
		}
	}
	if s.Loss.Task != 0 && w.model.Resource(s.Loss.Task) == r {
		tickets = append(tickets, int64(s.Loss.Ticket))
	}
	return ranks(tickets)
}

func (w *twin) redisTickets(t *testing.T, s *state, r uint8) []int {
	t.Helper()
	tickets := []int64{}
	for n := range w.model.Resources {
		if id := model.ID(n + 1); w.model.Resources[n] == r {
			tickets = append(tickets, w.queued(t, id), mark(s.task(w.id(id))["siding_ticket"]))
		}
	}
	for i := range w.state.Attempts {
		if a := &w.state.Attempts[i]; a.Task != 0 && w.model.Resource(a.Task) == r {
			live := w.attempts[uint8(i)]
			tickets = append(tickets, live.ours.Came)
			if a.Phase == model.Busy {
				tickets = append(tickets, live.ticket)
			}
		}
	}
	for i := range w.state.Wakers {
		if c := &w.state.Wakers[i]; c.Task != 0 && w.model.Resource(c.Task) == r {
			tickets = append(tickets, w.wakes[uint8(i)].Ticket)
		}
	}
	if loss := w.state.Loss; loss.Task != 0 && w.model.Resource(loss.Task) == r {
		tickets = append(tickets, w.loss.Ticket)
	}
	return ranks(tickets)
}

func (w *twin) resources() uint8 { return w.model.Resource(model.ID(len(w.model.Resources))) + 1 }

// redisView is the same of Redis, and of what its clients have been told.
func (w *twin) redisView(t *testing.T, s *state) view {
	t.Helper()
	v, places := newView(w), s.places()
	_, v.Paused = s.strings["paused"]
	v.Pending = append(v.Pending, s.pending()...)
	values := w.readLocks(t, s, &v)
	for n := range w.model.Resources {
		id := model.ID(n + 1)
		place := "gone"
		if in := places[w.id(id)]; len(in) == 1 {
			place = in[0]
		}
		v.Tasks = append(v.Tasks, taskView{place, s.task(w.id(id))["siding_woken"] != ""})
	}
	for i, a := range w.attempts {
		v.Latest[i] = s.task(a.id)["siding_attempt"] == a.name
		if w.state.Attempts[i].Phase == model.Holding {
			v.Writes[i] = a.fence >= w.fencesOf(w.state.Attempts[i].Task).seen
		}
	}
	for i, c := range w.wakes {
		v.Stands[i] = slices.Contains(values, c.Value)
	}
	return v
}

// readLocks adds the locks to v and returns their values. Each must expire.
func (w *twin) readLocks(t *testing.T, s *state, v *view) (values []string) {
	t.Helper()
	listed, err := asynqredis.ListContended(t.Context(), w.f.rdb, w.f.queue, "0")
	must(t, err)
	for r := range w.resources() {
		key := w.key(r)
		pipe := w.f.rdb.Pipeline()
		value, ttl := pipe.Get(t.Context(), key), pipe.PTTL(t.Context(), key)
		grant, queue := pipe.Get(t.Context(), "{"+key+"}:fence"), pipe.ZRange(t.Context(), "{"+key+"}:queue", 0, -1)
		paused := pipe.ZRange(t.Context(), "{"+key+"}:paused", 0, -1)
		if _, err := pipe.Exec(t.Context()); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		if value.Err() == nil && ttl.Val() <= 0 {
			t.Errorf("%s: %s does not expire", key, value.Val())
		}
		lv := lockView{
			Value: w.nameOf(value.Val()), Mark: strings.HasSuffix(grant.Val(), "*"), Queue: queue.Val(), Skipped: paused.Val(),
			Tickets: w.redisTickets(t, s, r),
		}
		is := func(l asynqredis.ContendedLock) bool { return l.Key == key }
		if w.state.Locks[r].Listed && !slices.ContainsFunc(listed.Locks, is) {
			t.Errorf("%s: want the sweeper to look at it, have it look at %v", key, listed.Locks)
		}
		v.Locks = append(v.Locks, lv)
		values = append(values, value.Val())
	}
	return values
}

// nameOf says what a lock's value means.
func (w *twin) nameOf(value string) string {
	for i, a := range w.attempts {
		if value != "" && a.token == value {
			return fmt.Sprintf("held by attempt %d", i)
		}
	}
	switch {
	case value == "":
		return "free"
	case slices.ContainsFunc(w.dead, func(a *liveAttempt) bool { return a.token == value }):
		return "held by the dead"
	case value == w.recovery.token:
		return "held by the recovery"
	case value == foreignValue:
		return "foreign"
	}
	if parts := strings.SplitN(value, ":", 4); len(parts) == 4 && parts[0] == "siding-reserved" {
		return "reserved for " + parts[3]
	}
	return value
}

func (w *twin) queued(t *testing.T, id model.ID) int64 {
	t.Helper()
	for _, set := range []string{":queue", ":paused"} {
		ticket, err := w.f.rdb.ZScore(t.Context(), "{"+w.keyOf(id)+"}"+set, w.waiter(id)).Result()
		if err == nil {
			return int64(ticket)
		}
		if !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	return 0
}

func mark(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // none is 0
	return n
}

// ranks numbers tickets from the oldest on.
func ranks(tickets []int64) []int {
	sorted := append(slices.Clone(tickets), 0)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	numbers := make([]int, len(tickets))
	for i, ticket := range tickets {
		numbers[i], _ = slices.BinarySearch(sorted, ticket)
	}
	return numbers
}
