package asynqredis_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/lock"
)

// inHouseWithSeats is inHouse with a hook that takes locks with tasks.
func inHouseWithSeats(t *testing.T, run func(*testing.T, *house)) {
	t.Helper()
	inHouse(t, func(t *testing.T, h *house) {
		t.Helper()
		h.hook.TakeAhead(asynqredis.Ahead{Host: "here", Unused: func(lock.Grant) {}})
		run(t, h)
	})
}

// sit returns a seat, of which there must be one.
func (h *house) sit(t *testing.T, queue string) *asynqredis.Seat {
	t.Helper()
	s := h.bell.Seat(queue)
	if s == nil {
		t.Fatal("want a seat, have none")
	}
	return s
}

func give(s *asynqredis.Seat, id string) {
	s.Take(&lock.Grant{Resource: "r", Token: "t", Fence: 1}, []any{"\x1a" + string(rune(len(id))) + id, int64(0), "7"})
}

// A task that takes the seat is its server's next, however late it comes, and its attempt
// is known with its lock; nobody else wakes the server meanwhile, and afterwards it is
// woken as ever.
func TestLaneTakesWhatHasTheSeat(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"at once": 0, "late": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inHouseWithSeats(t, func(t *testing.T, h *house) {
				t.Helper()
				s := h.server(t, "a", "b")
				seat := h.sit(t, "b")
				if h.bell.Seat("b") != nil {
					t.Error("want one seat on one server")
				}
				time.Sleep(after)
				asked := h.asked()
				give(seat, "seated")
				wantTaken(t, asynqSleep, "seated", s)
				a := h.hook.Attempt("b", "seated")
				if a == nil {
					t.Fatal("want an attempt")
				}
				if g, ok := a.Grant(); !ok || g.Resource != "r" {
					t.Errorf("want its lock with it, have %+v", g)
				}
				if have := h.asked() - asked; have > 0 {
					t.Errorf("want no dequeue, have %d", have)
				}
				time.Sleep(5 * asynqSleep)
				h.enqueue("a", "rung")
				wantTaken(t, asynqSleep, "rung", s)
			})
		})
	}
}

// A seat that nobody took leaves the server as it was: a bell that rang meanwhile, or rings
// later, wakes it, and it does not ask in vain.
func TestLaneWhoseSeatStaysEmpty(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"at once": 0, "late": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inHouseWithSeats(t, func(t *testing.T, h *house) {
				t.Helper()
				s := h.server(t, "a")
				seat, asked := h.sit(t, "a"), h.asked()
				h.enqueue("a", "meanwhile")
				time.Sleep(after)
				if have := h.asked() - asked; have > 0 {
					t.Errorf("want nothing asked for while the seat is kept, have %d", have)
				}
				seat.Leave()
				wantTaken(t, 50*asynqSleep, "meanwhile", s)
				time.Sleep(10 * asynqSleep)
				seat = h.sit(t, "a")
				time.Sleep(after)
				seat.Leave()
				time.Sleep(asynqSleep)
				h.read(func() int { h.silent = true; return 0 })
				start := time.Now()
				s.stop()
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("want a server held back for a second at most, have it end after %v", took)
				}
			})
		})
	}
}

// A server whose seat stayed empty is idle again.
func TestLaneIsIdleAfterAnEmptySeat(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"at once": 0, "late": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inHouseWithSeats(t, func(t *testing.T, h *house) {
				t.Helper()
				s := h.server(t, "a")
				seat := h.sit(t, "a")
				time.Sleep(after)
				seat.Leave()
				time.Sleep(10 * asynqSleep)
				asked := h.asked()
				time.Sleep(10 * time.Second)
				if have := h.asked() - asked; have > 1 {
					t.Errorf("want an idle server, have %d dequeues", have)
				}
				h.enqueue("a", "later")
				wantTaken(t, asynqSleep, "later", s)
			})
		})
	}
}

// A server to which one task after the other is handed over, so that it is never idle for
// long, takes those of other queues as well.
func TestSeatsDoNotStarveOtherQueues(t *testing.T) {
	t.Parallel()
	inHouseWithSeats(t, func(t *testing.T, h *house) {
		t.Helper()
		s := h.server(t, "a", "b")
		h.with(func() { h.pending["b"] = []string{"other"} }) // nobody rings
		seats := 0
		for seats < 50 {
			time.Sleep(time.Microsecond)
			if seat := h.bell.Seat("a"); seat != nil {
				seats++
				give(seat, "seated")
			}
			select {
			case id := <-s.took:
				if id == "other" {
					if seats > 15 {
						t.Errorf("want it taken after ten others, have %d", seats)
					}
					return
				}
			default:
			}
		}
		t.Errorf("want it taken, have %d others", seats)
	})
}

// There is no seat where no server is idle, serves the queue, or takes locks with tasks.
func TestNoSeat(t *testing.T) {
	t.Parallel()
	t.Run("locks by hand", func(t *testing.T) {
		t.Parallel()
		inHouse(t, func(t *testing.T, h *house) {
			t.Helper()
			h.server(t, "a")
			if h.bell.Seat("a") != nil {
				t.Error("want none")
			}
		})
	})
	t.Run("no server", func(t *testing.T) {
		t.Parallel()
		inHouseWithSeats(t, func(t *testing.T, h *house) {
			t.Helper()
			h.server(t, "a").stop()
			s := h.server(t, "b")
			for _, queue := range []string{"a", "c"} {
				if h.bell.Seat(queue) != nil {
					t.Errorf("queue %s: want none", queue)
				}
			}
			s.paused <- time.Second
			h.enqueue("b", "1")
			wantTaken(t, asynqSleep, "1", s)
			time.Sleep(asynqSleep)
			if h.bell.Seat("b") != nil {
				t.Error("want none while the server is at work")
			}
		})
	})
}

// A doorbell that closes while a seat is kept finds the server awake again afterwards.
func TestSeatOnAClosedDoorbell(t *testing.T) {
	t.Parallel()
	inHouseWithSeats(t, func(t *testing.T, h *house) {
		t.Helper()
		s := h.server(t, "a")
		seat := h.sit(t, "a")
		h.bell.Close()
		seat.Leave()
		h.enqueue("a", "polled")
		wantTaken(t, 50*asynqSleep, "polled", s)
	})
}

// Whatever happens to the servers at the same time, a task that has a seat is its server's next, and a
// server has one seat at once: seats are asked for while servers fall asleep, wake, are held up, and
// ask again.
func TestSeatsAgainstEveryState(t *testing.T) {
	t.Parallel()
	inHouseWithSeats(t, func(t *testing.T, h *house) {
		t.Helper()
		const servers, seekers, each = 2, 4, 300
		got := make(chan string, servers*seekers*each)
		for range servers {
			s := h.server(t, "a", "b")
			go func() {
				for {
					select {
					case id := <-s.took:
						got <- id
					case <-s.over:
						return
					}
				}
			}()
			go func() {
				for range 40 {
					time.Sleep(rand.N(2 * time.Second))
					select {
					case s.paused <- rand.N(time.Second):
					case <-s.over:
						return
					}
				}
			}()
		}
		var all sync.WaitGroup
		var kept, given atomic.Int32
		for n := range seekers {
			all.Go(func() {
				for i := range each {
					queue := []string{"a", "b"}[rand.N(2)]
					if rand.N(3) == 0 {
						h.enqueue(queue, fmt.Sprintf("rung-%d-%d", n, i))
						given.Add(1)
					}
					seat := h.bell.Seat(queue)
					if seat == nil {
						time.Sleep(rand.N([]time.Duration{asynqSleep, 2 * time.Second}[rand.N(2)]))
						continue
					}
					if kept.Add(1) > servers {
						t.Error("want one seat on a server at once")
					}
					if rand.N(2) == 0 {
						time.Sleep(rand.N(1500 * time.Millisecond))
					}
					kept.Add(-1)
					if rand.N(3) == 0 {
						seat.Leave()
						continue
					}
					given.Add(1)
					give(seat, fmt.Sprintf("seated-%d-%d", n, i))
				}
			})
		}
		all.Wait()
		time.Sleep(time.Minute)
		seen := map[string]bool{}
		for range len(got) {
			id := <-got
			if seen[id] {
				t.Errorf("want %s taken once", id)
			}
			seen[id] = true
		}
		if len(seen) != int(given.Load()) {
			t.Errorf("want %d tasks taken, have %d", given.Load(), len(seen))
		}
	})
}
