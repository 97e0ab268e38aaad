package lockredis_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

func (w *world) look(at lockredis.LookAt) lockredis.Looked {
	w.Helper()
	at.Key = key
	looked := expect.Value(lockredis.Look(w.Context(), w.rdb, []lockredis.LookAt{at, {Key: "lock:other"}}))(w)
	other := looked[1]
	expect.That(w, other.State == lockredis.LookFree && other.Waiting() == 0 && other.Fence == 0, "want a lock that nobody wants, have %+v", other)
	return looked[0]
}

// Those who wait are listed in one order, of whatever kind they are.
func TestLookAtThoseWhoWait(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		holder := w.takes("holder")
		w.parks("q", "1")
		w.waits("2")
		w.parks("other", "3")
		w.parks("q", "4")
		w.waits("5")
		l := w.look(lockredis.LookAt{From: 1, Count: 3, Queue: "q", Waiter: "4"})
		if l.State != lockredis.LookHeld || l.Holder != "holder of holder" || l.Fence != holder.Fence || l.Since.UnixMicro() != holder.Fence || l.Left <= 0 || l.Endless {
			w.Errorf("want the holder, have %+v", l)
		}
		var names []string
		for _, waiter := range l.Waiters {
			names = append(names, waiter.Queue+"/"+waiter.Name)
		}
		want := []string{"/" + waiter("2"), "other/3", "q/4"}
		expect.That(w, slices.Equal(names, want), "want the waiters %q, have %q", want, names)
		expect.That(w, l.Position == 4 && l.Goroutines == 2 && l.Waiting() == 5, "want the fourth of five, two of them goroutines, have %+v", l)
		if len(l.Lines) != 2 || l.Lines[0] != (lockredis.Line{Queue: "q", Waiting: 2, First: l.First}) || l.Lines[1].Queue != "other" {
			w.Errorf("want two lines, the older first, have %+v", l.Lines)
		}
		if l := w.look(lockredis.LookAt{Queue: "q", Waiter: "unknown"}); l.Position != 0 {
			w.Errorf("want no position, have %+v", l)
		}
		w.ends("q", "1", "")
	})
}

// Another program may lock for longer than a [time.Duration] is.
func TestLookAtALockOfManyYears(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	expect.OK(t, rdb.Do(t.Context(), "SET", key, "random", "PX", int64(1e16)).Err())
	looked := expect.Value(lockredis.Look(t.Context(), rdb, []lockredis.LookAt{{Key: key}}))(t)
	expect.Equal(t, "time left", looked[0].Left, math.MaxInt64)
	result := expect.Value(lockredis.New(rdb).Acquire(t.Context(), store.Request{Key: key, Token: "siding:token:me", TTL: time.Minute, FenceTTL: time.Minute}))(t)
	expect.Equal(t, "time left for one who asks", result.Left, math.MaxInt64)
}

// A reservation, a revocation and another program are all told apart.
func TestLookAtStates(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		if l := w.look(lockredis.LookAt{}); l.State != lockredis.LookFree || l.Waiting() != 0 {
			w.Errorf("want it free, have %+v", l)
		}
		w.takes("holder")
		_, _, _, _, err := lockredis.Revoke(w.Context(), w.rdb, lockredis.Revocation{Key: key, By: "alice", Reason: "stuck", Handoff: hand("x")})
		w.must(err)
		if l := w.look(lockredis.LookAt{}); l.State != lockredis.LookHeld || !l.Revoking || l.Revoked == nil || l.Revoked.By != "alice" || l.Revoked.Holder != "holder of holder" {
			w.Errorf("want it revoked, have %+v", l)
		}
		w.waits("g")
		_ = w.release("holder")
		if l := w.look(lockredis.LookAt{}); l.State != lockredis.LookReserved || l.Holder != waiter("g") || l.Revoking || l.Since.IsZero() {
			w.Errorf("want it reserved, have %+v", l)
		}
		w.rdb.Set(w.Context(), key, "8f3a60", 0)
		if l := w.look(lockredis.LookAt{}); l.State != lockredis.LookForeign || !l.Endless {
			w.Errorf("want it held by another program for ever, have %+v", l)
		}
		w.rdb.Del(w.Context(), key)
		w.rdb.HSet(w.Context(), key, "field", "value")
		if l := w.look(lockredis.LookAt{}); l.State != lockredis.LookForeign {
			w.Errorf("want it held by another program, have %+v", l)
		}
	})
}

func TestLookAtPermits(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		rates := []store.Rate{{Starts: 3, Period: time.Hour}}
		w.rule = &store.Rule{Limit: 2, Rates: rates}
		first := w.takes("1")
		if l := w.look(lockredis.LookAt{Rates: rates}); l.State != lockredis.LookHeld || l.Holder != "holder of 1" || l.Fence != first.Fence || !l.Rated || !l.Next.IsZero() {
			w.Errorf("want one holder, have %+v", l)
		}
		w.takes("2")
		w.waits("3")
		w.leaves("1")
		l := w.look(lockredis.LookAt{Rates: rates})
		expect.Need(w, l.State == lockredis.LookHeld && l.Holder == "" && len(l.Permits) == 2, "want two permits, have %+v", l)
		if p := l.Permits[0]; p.Number != 1 || !p.Reserved || p.Name != waiter("3") || p.Fence != 0 || p.Since.IsZero() {
			w.Errorf("want the first reserved, have %+v", p)
		}
		if p := l.Permits[1]; p.Number != 2 || p.Reserved || p.Name != "holder of 2" || p.Fence == 0 || p.Since.UnixMicro() != p.Fence || p.Left <= 0 {
			w.Errorf("want the second held, have %+v", p)
		}
		if next := l.Next.Sub(l.Now); next < 59*time.Minute || next > time.Hour { // the reservation counts
			w.Errorf("want the next start in an hour, have it in %v", next)
		}
	})
}
