package redlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/lock/redlock"
)

// TestTimeOfANode: all nodes are waited for at once. A node that hangs costs its time and no more,
// even if its client does not keep to that.
func TestTimeOfANode(t *testing.T) {
	t.Parallel()
	const most = 50 * time.Millisecond
	for _, tc := range []struct {
		name  string
		fault locktest.Fault
		nodes []int
		want  time.Duration
	}{
		{"all well", locktest.Fine, nil, 0},
		{"one slow", locktest.Slow(20 * time.Millisecond), []int{1}, 20 * time.Millisecond},
		{"all slow", locktest.Slow(20 * time.Millisecond), []int{0, 1, 2, 3, 4}, 20 * time.Millisecond},
		{"one hangs", locktest.BlackHole, []int{2}, most},
		{"two hang", locktest.BlackHole, []int{0, 4}, most},
		{"two ignore deadlines", locktest.OwnTimeout(3 * time.Second), []int{0, 4}, most},
		{"two refuse", locktest.Refuse, []int{3, 4}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newMemories(5)
			locker, networks := nodes.process(t, redlock.Config{})
			each(networks, tc.fault, tc.nodes...)
			took := func(what string, do func() error) {
				t.Helper()
				start := time.Now()
				if err := do(); err != nil || time.Since(start) != tc.want {
					t.Fatalf("%s: %s: want it done after %v, have %v after %v", tc.name, what, tc.want, err, time.Since(start))
				}
			}
			var lease *lock.Lease
			took("acquire", func() (err error) { lease, err = locker.Acquire(t.Context(), "order:1", nil); return err })
			took("renew", func() error { return lease.Renew(t.Context()) })
			took("release", func() error { return lease.Release(t.Context()) })
			nodes.wantOn(t, tc.name, ".....")
		})
	}
}

// TestTooManyHang: an error in some node timeouts, and nothing left on the others.
func TestTooManyHang(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]locktest.Fault{"they hang": locktest.BlackHole, "they ignore deadlines": locktest.OwnTimeout(3 * time.Second), "they refuse": locktest.Refuse} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newMemories(5)
			locker, networks := nodes.process(t, redlock.Config{})
			each(networks, fault, 0, 2, 4)
			start := time.Now()
			wantBroken(t, name, expect.Err(locker.Acquire(t.Context(), "order:1", nil)))
			took := time.Since(start)
			expect.That(t, took <= 150*time.Millisecond, "%s: want three node timeouts at most, have %v", name, took)
			nodes.wantOn(t, name, ".....")
		})
	}
}

// A wait during which too many nodes go away does not end with the news that the lock is busy.
func TestWaitEndsWithoutAQuorum(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string][]int{"too many": {0, 2, 4}, "few": {1, 3}} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newMemories(5)
			nodes.put("another", 0, 1, 2, 3, 4)
			locker, networks := nodes.process(t, redlock.Config{})
			time.AfterFunc(time.Second, func() { each(networks, locktest.BlackHole, gone...) })
			err := expect.Err(locker.Acquire(t.Context(), "order:1", &lock.Options{Wait: 2 * time.Second, Retry: lock.Fixed(time.Hour)}))
			expect.That(t, err != nil && errors.Is(err, lock.ErrBusy) == (name == "few"), "%s: want what is wrong if too few are left, have %v", name, err)
			nodes.wantOn(t, name, "-----")
		})
	}
}

// TestNothingIsLeft of a request that failed, on any node: also one whose answer was lost.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		fault   locktest.Fault
		nodes   []int
		foreign []int
		want    string
	}{
		{"no answers", locktest.Only(locktest.Acquire, locktest.SwallowReply), []int{0, 1, 2}, nil, "....."},
		{"late answers", locktest.Only(locktest.Acquire, locktest.Slow(time.Second)), []int{0, 1, 2}, nil, "....."},
		{"another program has most", locktest.Fine, nil, []int{0, 1, 2}, "---.."},
		{"and an answer is lost", locktest.Only(locktest.Acquire, locktest.SwallowReply), []int{3}, []int{0, 1, 2}, "---.."},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newMemories(5)
			nodes.put("another", tc.foreign...)
			locks, networks := nodes.open(t, redlock.Config{})
			each(networks, tc.fault, tc.nodes...)
			answer, err := locks.Acquire(t.Context(), store.Request{Key: key, Token: "siding:1:me", TTL: 15 * time.Second, FenceTTL: time.Minute})
			busy := tc.foreign != nil
			expect.That(t, !answer.Taken && busy == (err == nil && answer.Holder == "another" && !answer.Split),
				"%s: want it busy %t, else an error, have %+v, %v", tc.name, busy, answer, err)
			nodes.wantOn(t, tc.name, tc.want)
		})
	}
}

// TestCallerGoes while the nodes are asked, which answer after 10 ms. Nothing is left, whether
// enough of them voted or not.
func TestCallerGoes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		fault   locktest.Fault
		hit     []int
		foreign []int
		want    string
	}{
		{"enough", locktest.Fine, nil, nil, "....."},
		{"too few answer", locktest.SwallowReply, []int{2, 3, 4}, nil, "....."},
		{"another has most", locktest.Fine, nil, []int{0, 1, 2}, "---.."},
		{"another has some", locktest.SwallowReply, []int{4}, []int{0, 1}, "--..."},
	} {
		for _, way := range []string{"cancelled", "deadline", "before"} {
			synctest.Test(t, func(t *testing.T) {
				nodes := newMemories(5)
				nodes.put("another", tc.foreign...)
				locker, networks := nodes.process(t, redlock.Config{})
				slowly := locktest.Slow(10 * time.Millisecond)
				if way == "cancelled" {
					slowly = far // such a call is waited for, or it would take the lock after that was given back
				}
				each(networks, locktest.Only(locktest.Acquire, slowly), 0, 1, 2, 3, 4)
				each(networks, locktest.Only(locktest.Acquire, tc.fault), tc.hit...)
				ctx, cancel := context.WithCancel(t.Context())
				switch way {
				case "cancelled":
					time.AfterFunc(5*time.Millisecond, cancel)
				case "deadline":
					ctx, cancel = context.WithTimeout(ctx, 5*time.Millisecond)
				default:
					cancel()
				}
				defer cancel()
				start := time.Now()
				_, err := locker.Acquire(ctx, "order:1", nil)
				expect.That(t, ctx.Err() != nil && err != nil && !errors.Is(err, lock.ErrLost),
					"%s, %s: want an error after the context's end, have %v", tc.name, way, err)
				took := time.Since(start)
				expect.That(t, took <= 20*time.Millisecond, "%s, %s: want it back soon, have %v", tc.name, way, took)
				locker.Close() // waits for what is given back
				time.Sleep(time.Second)
				nodes.wantOn(t, tc.name+", "+way, tc.want)
			})
		}
	}
}

// TestNodeTimeoutAndTTL: a node that hangs must not use up the lease. Nobody waits for that to pass.
func TestNodeTimeoutAndTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker, _ := newMemories(3).process(t, redlock.Config{NodeTimeout: 501 * time.Millisecond})
		err := expect.Err(locker.Acquire(t.Context(), "order:1", &lock.Options{TTL: time.Second}))
		const want = "redlock: node timeout: want at most half of the ttl (500ms), have 501ms"
		expect.That(t, err != nil && strings.HasSuffix(err.Error(), want), "want %q, have %v", want, err)
		wantPassing(t, err, false)
	})
}

// TestRenewal needs most of the nodes, makes no key anew, and is not ended by one of them.
func TestRenewal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		gone     []int
		fault    locktest.Fault
		hit      []int
		want     string // where the lock is, 15 s after it was taken
		ok, lost bool
	}{
		{"all well", nil, locktest.Fine, nil, "+++++", true, false},
		{"two lost it", []int{0, 1}, locktest.Fine, nil, "..+++", true, false},
		{"two refuse", nil, locktest.Refuse, []int{0, 1}, "..+++", true, false},
		{"two hang", nil, locktest.BlackHole, []int{0, 4}, ".+++.", true, false},
		{"one lost it, one refuses", []int{4}, locktest.Refuse, []int{0}, ".+++.", true, false},
		{"two lost it, one refuses", []int{3, 4}, locktest.Refuse, []int{0}, ".++..", false, false},
		{"three refuse", nil, locktest.Refuse, []int{0, 1, 2}, "...++", false, false},
		{"three hang", nil, locktest.BlackHole, []int{0, 1, 2}, "...++", false, false},
		{"three lost it", []int{0, 1, 2}, locktest.Fine, nil, ".....", false, true},
		{"all lost it", []int{0, 1, 2, 3, 4}, locktest.Fine, nil, ".....", false, true},
		{"three lost it, two hang", []int{0, 1, 2}, locktest.BlackHole, []int{3, 4}, ".....", false, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newMemories(5)
			locker, networks := nodes.process(t, redlock.Config{})
			start := time.Now()
			lease, err := locker.Acquire(t.Context(), "order:1", nil)
			expect.OK(t, err)
			abandon(lease)
			time.Sleep(5 * time.Second)
			nodes.put("", tc.gone...)
			each(networks, tc.fault, tc.hit...)
			err = lease.Renew(t.Context())
			expect.That(t, tc.ok == (err == nil) && tc.lost == errors.Is(err, lock.ErrLost) && !lease.Deadline().IsZero() != tc.lost,
				"%s: want ok %t, lost %t, have %v, valid: %t", tc.name, tc.ok, tc.lost, err, !lease.Deadline().IsZero())
			time.Sleep(time.Until(start.Add(15 * time.Second)))
			expect.That(t, !lease.Deadline().IsZero() == tc.ok,
				"%s: want it valid after its first deadline %t, have %t", tc.name, tc.ok, !lease.Deadline().IsZero())
			if !tc.lost { // else nobody knows whether the others have prolonged it
				nodes.wantOn(t, tc.name, tc.want)
			}
			each(networks, locktest.Fine, 0, 1, 2, 3, 4)
			_ = lease.Release(t.Context())
			nodes.wantOn(t, tc.name, ".....")
		})
	}
}

// TestRelease reports what most of the nodes say, and deletes what there is on the others.
func TestRelease(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		foreign []int
		fault   locktest.Fault
		hit     []int
		want    string
		ok      bool
		lost    bool
	}{
		{"all well", nil, locktest.Fine, nil, ".....", true, false},
		{"two are another's", []int{0, 1}, locktest.Fine, nil, "--...", true, false},
		{"two hang", nil, locktest.BlackHole, []int{0, 1}, "++...", true, false},
		{"three are another's", []int{0, 1, 4}, locktest.Fine, nil, "--..-", false, true},
		{"three hang", nil, locktest.BlackHole, []int{0, 1, 4}, "++..+", false, false},
		{"two are another's, one hangs", []int{0, 1}, locktest.BlackHole, []int{4}, "--..+", false, false},
		{"three are another's, two hang", []int{0, 1, 2}, locktest.BlackHole, []int{3, 4}, "---++", false, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newMemories(5)
			locker, networks := nodes.process(t, redlock.Config{})
			lease, err := locker.Acquire(t.Context(), "order:1", nil)
			expect.OK(t, err)
			nodes.put("another", tc.foreign...)
			each(networks, tc.fault, tc.hit...)
			err = lease.Release(t.Context())
			expect.That(t, tc.ok == (err == nil) && tc.lost == errors.Is(err, lock.ErrLost),
				"%s: want ok %t, lost %t, have %v", tc.name, tc.ok, tc.lost, err)
			nodes.wantOn(t, tc.name, tc.want)
			nodes.put("", 0, 1, 2, 3, 4)
		})
	}
}

// TestRestartDelayOfARequest is at least its TTL.
func TestRestartDelayOfARequest(t *testing.T) {
	t.Parallel()
	for cfg, want := range map[time.Duration]time.Duration{
		0:                      15 * time.Second,
		time.Second:            15 * time.Second,
		time.Minute:            time.Minute,
		redlock.NoRestartDelay: redlock.NoRestartDelay,
	} {
		delays := make(chan time.Duration, 3)
		var voters []redlock.Voter
		for i := range 3 {
			voters = append(voters, memory{Store: locktest.NewMemory(), run: string(rune('a' + i)), delays: delays, fences: new(sync.Map)})
		}
		lease := expect.Value(lockerOn(t, redlock.NewOf(redlock.Config{RestartDelay: cfg}, voters...), lock.Config{}).Acquire(t.Context(), "order:1", nil))(t)
		for range voters {
			expect.Equal(t, cfg.String(), <-delays, want)
		}
		_ = lease.Release(t.Context())
	}
}

// contenders are three processes that reach two, two and one of five nodes before the others.
func contenders(t *testing.T, nodes memories) (stores []lock.Store) {
	t.Helper()
	for _, near := range [][]int{{0, 1}, {2, 3}, {4}} {
		store, networks := nodes.open(t, redlock.Config{})
		each(networks, locktest.Only(locktest.Acquire, far), 0, 1, 2, 3, 4)
		each(networks, locktest.Fine, near...)
		stores = append(stores, store)
	}
	return stores
}

// TestSplitVote: nobody gets the lock, all are told so, and nothing stays on a node.
func TestSplitVote(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := newMemories(5)
		var all sync.WaitGroup
		for i, locks := range contenders(t, nodes) {
			all.Go(func() {
				answer, err := locks.Acquire(t.Context(), store.Request{Key: key, Token: "siding:" + string(rune('a'+i)), TTL: time.Second, FenceTTL: time.Minute})
				expect.That(t, err == nil && answer.Split && !answer.Taken && answer.Holder == "", "want a split vote, have %+v, %v", answer, err)
			})
		}
		all.Wait()
		nodes.wantOn(t, "after a split vote", ".....")
	})
}
