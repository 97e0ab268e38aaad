package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// unrenewed is a lease of order:1 that is trusted for 14 s, and not renewed.
func unrenewed(t *testing.T) *leased { t.Helper(); return newLeasedAs(t, &lock.Options{NoRenew: true}) }

// A lease that is not renewed ends before anybody else can have the lock, whatever contexts it has.
func TestNoRenewEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := unrenewed(t)
		work := l.Context(t.Context())
		time.Sleep(6 * time.Second)
		ctx, end := context.WithCancel(t.Context())
		l.Context(ctx)
		end()
		more := l.Context(t.Context()) // nor does new work renew it
		l.wantAlive(t, work)
		l.wantEnd(t, work, 14*time.Second)
		l.wantEnd(t, more, 14*time.Second)
		if l.redis.get() == "" {
			t.Error("want the contexts ended before the lock is free")
		}
		time.Sleep(time.Minute)
		if sent := l.redis.Sent(); len(sent) != 1 {
			t.Errorf("want the acquire alone sent, have %+v", sent)
		}
	})
}

// A release after the end is no error, whoever has the lock by then and whether or not the store answers. A release
// that finds the lock lost before the end is.
func TestReleaseOfNoRenew(t *testing.T) {
	t.Parallel()
	type row struct {
		after   time.Duration
		then    func(*leased)
		lost    bool
		refused bool
	}
	inBubbles(t, map[string]row{
		"in time":                          {after: 13 * time.Second},
		"after the deadline":               {after: 14 * time.Second},
		"after the TTL":                    {after: 16 * time.Second},
		"another has it by then":           {after: 16 * time.Second, then: func(l *leased) { l.redis.put("theirs") }},
		"the store refuses after the end":  {after: 16 * time.Second, then: func(l *leased) { l.redis.Set(locktest.Refuse) }},
		"the store hangs past the end":     {after: 13 * time.Second, then: func(l *leased) { l.redis.Set(locktest.BlackHole) }},
		"the store refuses before the end": {after: time.Second, then: func(l *leased) { l.redis.Set(locktest.Refuse) }, refused: true},
		"deleted before the end":           {after: time.Second, then: func(l *leased) { l.redis.put("theirs") }, lost: true},
		"found lost before the end": {after: time.Second, lost: true, then: func(l *leased) {
			l.redis.put("theirs")
			_ = l.Renew(context.Background())
			time.Sleep(time.Minute)
		}},
	}, func(t *testing.T, tc row) {
		t.Helper()
		l := unrenewed(t)
		time.Sleep(tc.after)
		if tc.then != nil {
			tc.then(l)
		}
		err := l.Release(t.Context())
		if errors.Is(err, lock.ErrLost) != tc.lost || (err != nil) != (tc.lost || tc.refused) {
			t.Errorf("have %v", err)
		}
	})
}

// Renew prolongs such a lease once, by its TTL.
func TestRenewOfNoRenew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := unrenewed(t)
		work := l.Context(t.Context())
		time.Sleep(10 * time.Second)
		must(t, l.Renew(t.Context()))
		l.wantEnd(t, work, 24*time.Second)
	})
}

// Do tells of work that took longer than its lock.
func TestDoWithNoRenew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for took, lost := range map[time.Duration]bool{13 * time.Second: false, 20 * time.Second: true} {
			err := lockerOn(t, newFake().Store).Do(t.Context(), "order:1", &lock.Options{NoRenew: true}, func(context.Context) error {
				time.Sleep(took)
				return nil
			})
			if errors.Is(err, lock.ErrLost) != lost || !lost && err != nil {
				t.Errorf("%v: want ErrLost %t, have %v", took, lost, err)
			}
		}
	})
}
