package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// sweep scans the setup's lock.
// nextOf returns whom the client has to wake, nil for nobody.
func nextOf(f store.Swept) *store.Reservation {
	if len(f.Next) == 0 {
		return nil
	}
	return f.Next[0]
}

func (s *setup) sweep(resumed bool) store.Swept {
	s.Helper()
	found, err := s.stranger().Sweep(s.Context(), []string{s.key}, resumed)
	if err != nil || len(found) != 1 {
		s.Fatalf("sweep: want the one lock, have %+v, %v", found, err)
	}
	return found[0]
}

// A lock that nobody holds is handed off to the first in the wait queue, also if a reservation has
// expired; one that is held, or reserved, is left as it is.
func TestSweepHandsOffWhatIsFree(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		if f := s.sweep(false); f.Waiting || len(f.Next) > 0 {
			s.Errorf("no lock: want nobody, have %+v", f)
		}
		held := s.take("")
		s.join("w1", "w2", "w3")
		before := s.value()
		f := s.sweep(false)
		if !f.Waiting || len(f.Next) > 0 || s.value() != before {
			s.Errorf("held: want it left alone, have %+v", f)
		}
		s.wantLeft("the held lock", 14*time.Second, 15*time.Second, f.Left)
		s.expire() // the holder died
		for _, want := range []string{"w1", "w2", "w3"} {
			f := s.sweep(false)
			if s.wantNext(nextOf(f), want); !f.Waiting {
				s.Errorf("%s: want others to wait, have %+v", want, f)
			}
			s.wantLeft("the reservation", 59*time.Second, time.Minute, f.Left)
			if again := s.sweep(false); len(again.Next) > 0 {
				s.Errorf("reserved: want it left alone, have %+v", again)
			}
			s.confirmed(nextOf(f))
			s.expire() // it did not come
		}
		if f := s.sweep(false); f.Waiting || s.value() != "" {
			s.Errorf("nobody left: have %+v, %q", f, s.value())
		}
		_ = held
	})
}

// Many locks are looked at in one call; the answers are in its order.
func TestSweepOfMany(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		var keys []string
		for n := range 10 {
			one := s.on(fmt.Sprint(s.res, ":", n))
			keys = append(keys, one.key)
			one.take("")
			one.join(slices.Repeat([]string{fmt.Sprint("w", n)}, 1)...)
			if n%2 == 0 {
				one.expire()
			}
		}
		found, err := s.Sweep(s.Context(), keys, false)
		if err != nil || len(found) != len(keys) {
			s.Fatalf("want %d answers, have %d, %v", len(keys), len(found), err)
		}
		for n, f := range found {
			want := ""
			if n%2 == 0 {
				want = fmt.Sprint("w", n)
			}
			if s.wantNext(nextOf(f), want); !f.Waiting {
				s.Errorf("want %s with somebody waiting, have %+v", keys[n], f)
			}
		}
		if found, err := s.Sweep(s.Context(), nil, false); err != nil || len(found) != 0 {
			s.Errorf("of none: want nothing, have %v, %v", found, err)
		}
	})
}

// The list of contended locks may name some of another prefix: of tasks that were parked before
// that was changed. They are passed on all the same.
func TestSweepOfAnotherPrefix(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.take("")
		s.join("w1", "w2")
		s.expire()
		other := s.with(lock.Config{Prefix: "other:"})
		found, err := other.Sweep(s.Context(), []string{s.key}, false)
		if err != nil {
			s.Fatal(err)
		}
		s.wantNext(nextOf(found[0]), "w1")
		next, err := other.Drop(s.Context(), nextOf(found[0]), false)
		if err != nil {
			s.Fatal(err)
		}
		s.wantNext(next, "w2")
		other.confirmed(next)
		s.wantQueue()
	})
}

// An unknown type of client, which may be that of a Cluster, gets a call for one lock after the
// other.
func TestSweepThroughAWrapper(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.take("")
		s.join("w1")
		s.expire()
		locker, err := lease.New(lock.Redis(struct{ redis.Scripter }{s.rdb}), s.cfg)
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(locker.Close)
		found, err := locker.Sweep(s.Context(), []string{s.key, s.key + ":free"}, false)
		if err != nil || len(found) != 2 {
			s.Fatalf("want two answers, have %+v, %v", found, err)
		}
		s.wantNext(nextOf(found[0]), "w1")
		s.wantNext(nextOf(found[1]), "")
	})
}

// Whoever reserved a lock should have woken its waiter within a second, and may have had no answer. Then a
// sweep names the reservation, until the waiter is woken.
func TestSweepNamesWhoWasNotWoken(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.join("w1", "w2")
		start, next := time.Now(), s.handOff(held, "w1")
		var found *store.Reservation
		poll.Eventually(s, "the reservation named", func() bool {
			found = nextOf(s.sweep(false))
			return found != nil
		})
		if took := time.Since(start); took < time.Second {
			s.Errorf("want it named after a second, have it after %v", took)
		}
		if found.Waiter != "w1" || found.Value != next.Value || found.Ticket != next.Ticket {
			s.Errorf("want %+v, have %+v", next, found)
		}
		s.confirmed(found)
		s.wantNext(nextOf(s.sweep(false)), "")
	})
}

// The same call made twice, as its answer was lost, names the same reservation.
func TestSweepWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, 0, lock.Config{})
	f.direct.take("")
	f.direct.join("w1", "w2")
	f.direct.expire()
	_ = f.direct.on("warm").sweep(false)
	before := f.direct.value()
	var found []store.Swept
	err := f.unheard(func() (err error) {
		found, err = f.Sweep(t.Context(), []string{f.key}, false)
		return err
	}, f.changed(before))
	if err != nil {
		t.Fatal(err)
	}
	f.wantNext(nextOf(found[0]), "w1")
	f.wantQueue("w1", "w2")
}

const group = "siding-task:q:"

// The waiters of a paused group keep their positions; others pass meanwhile. They are back once
// one of them asks for the lock.
func TestPausedWaitersComeBackWithTheirGroup(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.join(group+"1", group+"2", "siding-task:other:1", group+"3", "siding-task:qq:1")
		next, err := s.Drop(s.Context(), s.handOff(held, group+"1"), true)
		if err != nil {
			s.Fatal(err)
		}
		s.wantNext(next, "siding-task:other:1")
		s.wantQueue("siding-task:other:1", "siding-task:qq:1")
		s.confirmed(next)
		held = s.take("siding-task:other:1")
		s.join("siding-task:other:2")
		s.wantQueue("siding-task:qq:1", "siding-task:other:2")
		s.join(group + "4")
		s.wantQueue(group+"1", group+"2", group+"3", "siding-task:qq:1", "siding-task:other:2", group+"4")
		s.handOff(held, group+"1")
	})
}

// A newcomer of the group does not overtake those who were paused. The lock is free, and nobody is
// in the wait queue.
func TestNewcomerDoesNotOvertakeThePaused(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.join(group+"1", group+"2")
		next, err := s.Drop(s.Context(), s.handOff(held, group+"1"), true)
		if err != nil || next != nil || s.value() != "" {
			s.Fatalf("want a free lock, have %v, %v, %q", next, err, s.value())
		}
		s.expireMark()
		other := s.take("siding-task:other:1") // whose group is not paused
		s.handOff(other, "")
		s.expireMark()
		busy := s.refuse(group + "3")
		s.wantNext(busy.Next, group+"1")
		s.wantQueue(group+"1", group+"2", group+"3")
	})
}

// expireMark forgets that the lock has been reserved, as a grant does.
func (s *setup) expireMark() {
	s.Helper()
	if err := s.rdb.Del(s.Context(), s.fence).Err(); err != nil {
		s.Fatal(err)
	}
}

// A sweep brings them back that knows of no pause any more.
func TestSweepBringsBackThePaused(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.join(group+"1", group+"2")
		if _, err := s.Drop(s.Context(), s.handOff(held, group+"1"), true); err != nil {
			s.Fatal(err)
		}
		if f := s.sweep(false); !f.Waiting || len(f.Next) > 0 {
			s.Errorf("paused: want somebody waiting and nobody woken, have %+v", f)
		}
		s.wantQueue()
		s.wantTTL("{"+s.key+"}:paused", 3*time.Hour, 4*time.Hour)
		f := s.sweep(true)
		s.wantNext(nextOf(f), group+"1")
		s.wantQueue(group+"1", group+"2")
		s.wantTTL(s.row, 3*time.Hour, 4*time.Hour)
	})
}

// A waiter that leaves while it is paused is gone.
func TestWaiterLeavesWhilePaused(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.join(group+"1", group+"2")
		if _, err := s.Drop(s.Context(), s.handOff(held, group+"1"), true); err != nil {
			s.Fatal(err)
		}
		if _, err := s.Leave(s.Context(), lease.Request{Resource: s.res, Waiter: group + "1"}); err != nil {
			s.Fatal(err)
		}
		s.wantNext(nextOf(s.sweep(true)), group+"2")
	})
}

// A group that is paused may be large.
func TestManyWaitersArePaused(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		const each = 1200
		held := s.take("")
		var want []string
		var queued []redis.Z
		for n := range each {
			w := fmt.Sprint(group, n)
			if n%3 == 2 {
				w = fmt.Sprint("siding-task:other:", n)
				want = append(want, w)
			}
			queued = append(queued, redis.Z{Score: float64(n + 1), Member: w})
		}
		if err := s.rdb.ZAdd(s.Context(), s.row, queued...).Err(); err != nil {
			s.Fatal(err)
		}
		next, err := s.Drop(s.Context(), s.handOff(held, group+"0"), true)
		if err != nil {
			s.Fatal(err)
		}
		s.wantNext(next, want[0])
		s.wantQueue(want...)
		if n := s.rdb.ZCard(s.Context(), "{"+s.key+"}:paused").Val(); n != each*2/3 {
			s.Errorf("want %d paused, have %d", each*2/3, n)
		}
	})
}

// A waiter that has lost its position gets it again. Others keep theirs.
func TestMissingWaitersRejoin(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		s.take("")
		first, second, third := s.refuse(group+"1"), s.refuse(group+"2"), s.refuse(group+"3")
		places := []store.Queued{
			{Key: s.key, Waiter: group + "1", Ticket: first.Ticket},
			{Key: s.key, Waiter: group + "2", Ticket: second.Ticket},
			{Key: s.key, Waiter: group + "3", Ticket: third.Ticket},
		}
		if err := s.rdb.ZRem(s.Context(), s.row, group+"2").Err(); err != nil {
			s.Fatal(err)
		}
		for _, rejoin := range []bool{false, true} {
			missing, err := s.Missing(s.Context(), places, rejoin)
			if err != nil || !slices.Equal(missing, []bool{false, true, false}) {
				s.Fatalf("want the second missing, have %v, %v", missing, err)
			}
		}
		s.wantQueue(group+"1", group+"2", group+"3")
		if missing, err := s.Missing(s.Context(), places, true); err != nil || slices.Contains(missing, true) {
			s.Errorf("want nobody missing, have %v, %v", missing, err)
		}
	})
}

// A lock may be kept for a waiter in no wait queue. Those in the wait queue wait on.
func TestReleaseFor(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.take("")
		s.join("w1")
		if err := held.ReleaseFor(s.Context(), "me", 8*time.Second); err != nil {
			s.Fatal(err)
		}
		s.wantTTL(s.key, 6*time.Second, 8*time.Second)
		if busy := s.refuse("w2"); busy.Holder != "the next in the wait queue" || busy.Next != nil {
			s.Errorf("want it kept, have %+v", busy)
		}
		next := s.take("me")
		if next.Fence() <= held.Fence() {
			s.Errorf("want a fence above %d, have %d", held.Fence(), next.Fence())
		}
		s.handOff(next, "w1")
		if err := held.ReleaseFor(s.Context(), "me", time.Second); err != nil {
			s.Errorf("released before: want nothing done, have %v", err)
		}
	})
}

// A release that cannot wake a parked task publishes the reservation. The task stays in the wait
// queue until somebody has woken it. If nobody listens for its group, the hand-off passes over the
// task.
func TestReleaseTellsOfATasksReservation(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		group := "siding-task:" + s.res + ":" // nobody else listens
		held := s.take("")
		s.join(group+"1", group+"2")
		s.release(held)
		if s.value() != "" {
			s.Errorf("nobody listens: want a free lock, have %q", s.value())
		}
		s.wantQueue(group+"1", group+"2")

		ctx, cancel := context.WithCancel(s.Context())
		heard, turns, over := make(chan struct{}, 1), make(chan *store.Reservation, 1), make(chan error, 1)
		listener := s.stranger()
		go func() {
			over <- listener.ListenForTasks(ctx, []string{s.res}, func() { heard <- struct{}{} }, func(r *store.Reservation) { turns <- r })
		}()
		<-heard
		held = s.take("")
		s.release(held)
		r := <-turns
		if r.Key != s.key || r.Waiter != group+"1" || r.Ticket == 0 {
			s.Fatalf("want the reservation of the first, have %+v", r)
		}
		s.wantQueue(group+"1", group+"2")
		s.confirmed(r)
		s.wantQueue(group + "2")
		s.handOff(s.take(group+"1"), group+"2")
		cancel()
		if err := <-over; !errors.Is(err, context.Canceled) {
			s.Errorf("want the end of the context, have %v", err)
		}
	})
}

// A store that is not on Redis neither sweeps nor tells.
func TestSweepIsNotForAllStores(t *testing.T) {
	t.Parallel()
	locker, err := lease.New(locktest.NewMemory(), lease.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	if _, err := locker.Sweep(t.Context(), []string{"lock:order:1"}, false); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("sweep: want it unsupported, have %v", err)
	}
	if err := locker.ListenForTasks(t.Context(), []string{"q"}, nil, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("listen: want it unsupported, have %v", err)
	}
}

// In one process, callers that poll and callers in the wait queue do not wait for one another.
func TestPollersDoNotSlowDownTheQueued(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		const want = 40
		locker := s.stranger()
		ctx, cancel := context.WithCancel(s.Context())
		over := make(chan struct{}, 3)
		var holds atomic.Int32
		for _, opts := range []*lock.Options{{Wait: lock.Forever}, {Wait: lock.Forever}, {Wait: lock.Forever, Retry: lock.Fixed(10 * time.Second)}} {
			go func() {
				defer func() { over <- struct{}{} }()
				for ctx.Err() == nil {
					_ = locker.Do(ctx, s.res, opts, func(ctx context.Context) error {
						holds.Add(1)
						return sleep.For(ctx, 5*time.Millisecond)
					})
				}
			}()
		}
		// Those in the wait queue need some ms each; behind the one that polls it would be seconds each, and minutes in all.
		poll.Eventually(s.T, "the lock to be held often", func() bool { return holds.Load() >= want })
		cancel()
		for range 3 {
			<-over
		}
	})
}
