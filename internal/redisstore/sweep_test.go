package redisstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// A sweep of locks with many free permits makes 20 reservations at most, so that Redis serves others
// meanwhile. Another one, a millisecond later, goes on. At last each waiter has its reservation, in order.
func TestSweepOfManyPermits(t *testing.T) {
	t.Parallel()
	const waiters, most = 30, 20
	rdb := redistest.Shared(t).Client(t)
	s, ok := redisstore.New(rdb).(sweepingStore)
	if !ok {
		t.Fatal("want a store that sweeps")
	}
	var locks []store.Ruled
	var want [2][]string
	for l := range want {
		key := fmt.Sprintf("lock:%s:%d", t.Name(), l)
		locks = append(locks, store.Ruled{Key: key, Rule: &store.Rule{Limit: 2 * waiters}})
		for n := range waiters {
			want[l] = append(want[l], waiter(n))
			must(t, rdb.ZAdd(t.Context(), "{"+key+"}:queue", redis.Z{Score: float64(n + 1), Member: waiter(n)}).Err())
		}
	}
	var have [2][]string
	for round := 0; len(have[0])+len(have[1]) < 2*waiters; round++ {
		found, err := s.Sweep(t.Context(), locks, false, handoff(fmt.Sprint("sweep-", round)))
		must(t, err)
		made, later := 0, false
		for l, swept := range found {
			made += len(swept.Next)
			later = later || swept.Later == time.Millisecond
			for _, next := range swept.Next {
				have[l] = append(have[l], next.Waiter)
			}
		}
		if all := len(have[0]) + len(have[1]); made == 0 || made > most || !later && all < 2*waiters {
			t.Fatalf("round %d: want 1 to %d reservations, and more later if there are more, have %d (%d in all), later %t", round, most, made, all, later)
		}
	}
	for l := range want {
		if !slices.Equal(have[l], want[l]) {
			t.Errorf("lock %d: want all waiters in order, have %q", l, have[l])
		}
	}
}

// Another program may put a key of another type where a lock was. For its waiters that is a holder. The other
// locks of the sweep are handed off.
func TestSweepOfAnotherType(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]*store.Rule{"no rule": nil, "limit": {Limit: 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Shared(t).Client(t)
			s, ok := redisstore.New(rdb).(sweepingStore)
			if !ok {
				t.Fatal("want a store that sweeps")
			}
			var locks []store.Ruled
			for _, what := range []string{"hash", "hash that expires", "free"} {
				key := fmt.Sprintf("lock:%s:%s", t.Name(), what)
				locks = append(locks, store.Ruled{Key: key, Rule: rule})
				must(t, rdb.ZAdd(t.Context(), "{"+key+"}:queue", redis.Z{Score: 1, Member: waiter(1)}).Err())
				if what != "free" {
					must(t, rdb.HSet(t.Context(), key, "another", "program").Err())
				}
			}
			must(t, rdb.PExpire(t.Context(), locks[1].Key, time.Minute).Err())
			found, err := s.Sweep(t.Context(), locks, false, handoff("sweep-"+name))
			must(t, err)
			for i, swept := range found {
				if want := i / 2; !swept.Waiting || len(swept.Next) != want {
					t.Errorf("%s: want a waiter, and %d reservations, have %+v", locks[i].Key, want, swept)
				}
			}
			if left := found[1].Left; left <= 0 || left > time.Minute {
				t.Errorf("want the time left of the key that expires, have %s", left)
			}
		})
	}
}
