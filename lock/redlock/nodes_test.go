package redlock_test

import (
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

// TestPlainProtocol: a program that sets the same key on the same nodes excludes us, and is
// excluded by us.
func TestPlainProtocol(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 5)
	locker := f.process(lock.Config{})

	f.put("8f3a60", time.Minute, 1, 2, 3)
	if busy := f.wantBusy(locker); !busy.Foreign || busy.Remaining <= 0 || busy.Remaining > time.Minute {
		t.Errorf("want a foreign holder with up to a minute left, have %+v", busy)
	}
	f.wantFree(0, 4)
	for _, i := range []int{1, 2, 3} {
		expect.Equal(t, "the other's value", f.value(i, f.key()), "8f3a60")
	}

	f.admins[2].Del(t.Context(), f.key()) // now it has too few
	lease := f.take(locker)
	taken := 0
	for _, admin := range f.admins {
		if ok, _ := admin.SetNX(t.Context(), f.key(), "another", time.Minute).Result(); ok {
			taken++
		}
	}
	expect.That(t, taken == 0, "want no node for the other, have %d", taken)
	f.release(lease)
	expect.That(t, f.value(1, f.key()) == "8f3a60" && f.value(3, f.key()) == "8f3a60", "want the other's values untouched")
	f.wantFree(0, 2, 4)
}

// Another program may lock for longer than a [time.Duration] is.
func TestLockOfManyYears(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	for _, admin := range f.admins {
		expect.OK(t, admin.Do(t.Context(), "SET", f.key(), "another program", "PX", int64(1e16)).Err())
	}
	if busy := f.wantBusy(f.process(lock.Config{})); busy.Remaining < 290*365*24*time.Hour {
		t.Errorf("want the longest time left, have %v", busy.Remaining)
	}
}

// TestWrongTypeOfKey is an error of that node, and nothing is overwritten.
func TestWrongTypeOfKey(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	locker := f.process(lock.Config{})
	f.admins[0].RPush(t.Context(), f.key(), "x")
	f.release(f.take(locker))
	f.admins[1].RPush(t.Context(), f.key(), "x")
	wantBroken(t, "acquire", expect.Err(locker.Acquire(t.Context(), f.Name(), nil)))
	expect.Equal(t, "length of the list", f.admins[0].LLen(t.Context(), f.key()).Val(), 1)
	f.wantFree(2)
}
