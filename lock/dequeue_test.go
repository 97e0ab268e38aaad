package lock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// A dequeueCall is one of acquire_lock from a script of another package.
type dequeueCall struct{ resource, id, holder, waiter string }

// dequeue makes the call; nil if the lock is not taken.
func (s *setup) dequeue(c dequeueCall) *store.Grant {
	s.Helper()
	source, with := redisstore.LockLua(), redisstore.LockArgs(s.cfg.Prefix, s.cfg.TTL, s.cfg.FenceTTL(), s.cfg.QueueTTL())
	script := redis.NewScript(source + `
return (acquire_lock({ARGV[5], ARGV[6], ARGV[7], ARGV[8]}, ARGV[1], ARGV[2], ARGV[3], ARGV[4])) or {}`)
	start := time.Now()
	got, err := script.Run(s.Context(), s.rdb, nil, append([]any{c.resource, c.id, c.holder, c.waiter}, with...)...).StringSlice()
	if err != nil {
		s.Fatalf("locking dequeue: %v", err)
	}
	if len(got) == 0 {
		return nil
	}
	if len(got) != 4 {
		s.Fatalf("want a token, a fence, a time and a nonce, have %q", got)
	}
	fence, err1 := strconv.ParseInt(got[1], 10, 64)
	since, err2 := strconv.ParseInt(got[2], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		s.Fatal(err)
	}
	return &store.Grant{Resource: c.resource, Token: got[0], Fence: fence, HandOff: time.Duration(since) * time.Microsecond, From: got[3], Start: start}
}

// dequeueFor is dequeue for the setup's resource, for a waiter.
func (s *setup) dequeueFor(waiter string) *store.Grant {
	s.Helper()
	return s.dequeue(dequeueCall{s.res, "id", "holder of " + waiter, waiter})
}

func (s *setup) takeGrant(g *store.Grant) *lease.Lease {
	s.Helper()
	if g == nil {
		s.Fatal("want a grant, have none")
	}
	held, err := s.Take(s.Context(), *g)
	if err != nil {
		s.Fatalf("take: %v", err)
	}
	s.Cleanup(held.Detach)
	return held
}

// A lock that a locking dequeue took is like any other.
func TestLockingDequeue(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		held := s.takeGrant(s.dequeueFor("me"))
		if _, handed := held.HandedOff(); handed || held.Deadline().IsZero() || held.Fence() == 0 {
			s.Errorf("want a valid lease of a free lock, have %+v", held)
		}
		s.wantTTL(s.key, 10*time.Second, 15*time.Second)
		s.wantTTL(s.fence, time.Minute, 1000*time.Hour)
		if busy := s.refuse("other"); busy.Holder != "holder of me" || busy.Position != 1 {
			s.Errorf("want it held by its holder, have %+v", busy)
		}
		work := held.Context(s.Context())
		again, err := s.Acquire(work, s.res, &lock.Options{Reentrant: true})
		if err != nil || again.Fence() != held.Fence() {
			s.Errorf("want it taken again by its holder, have %v, %v", again, err)
		}
		s.release(again)
		s.handOff(held, "other")
		grant := s.dequeueFor("other")
		s.expectHandOff(s.takeGrant(grant))
		if have := s.queue(); len(have) != 0 {
			s.Errorf("want nobody queued, have %v", have)
		}
	})
}

func (s *setup) expectHandOff(l *lease.Lease) {
	s.Helper()
	if _, handed := l.HandedOff(); !handed {
		s.Error("want a hand-off")
	}
}

// A locking dequeue takes nothing that [lock.Locker.Acquire] would not give at once, nor what is no
// resource; and nothing is left of the attempt.
func TestLockingDequeueTakesNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		put  func(s *setup)
		call func(s *setup) dequeueCall
	}{
		"held":                 {put: func(s *setup) { s.take("") }},
		"held by me":           {put: func(s *setup) { s.take("me") }},
		"another program's":    {put: func(s *setup) { s.rdb.Set(s.Context(), s.key, "5c8d9a1f00", time.Minute) }},
		"reserved for another": {put: func(s *setup) { s.rdb.Set(s.Context(), s.key, "siding-reserved:n:1:other", time.Minute) }},
		"reserved for one with my name in its": {put: func(s *setup) {
			s.rdb.Set(s.Context(), s.key, "siding-reserved:n:1:me:me", time.Minute)
		}},
		"somebody queued": {put: func(s *setup) { s.rdb.ZAdd(s.Context(), s.row, redis.Z{Score: 1, Member: "other"}) }},
		"me queued":       {put: func(s *setup) { s.rdb.ZAdd(s.Context(), s.row, redis.Z{Score: 1, Member: "me"}) }},
		"empty":           {call: func(*setup) dequeueCall { return dequeueCall{"", "id", "h", "me"} }},
		"oversized":       {call: func(*setup) dequeueCall { return dequeueCall{strings.Repeat("x", 513), "id", "h", "me"} }},
		"braces":          {call: func(s *setup) dequeueCall { return dequeueCall{s.res + "{a}", "id", "h", "me"} }},
		"a brace":         {call: func(s *setup) dequeueCall { return dequeueCall{s.res + "}", "id", "h", "me"} }},
		"control":         {call: func(s *setup) dequeueCall { return dequeueCall{s.res + "\n", "id", "h", "me"} }},
		"nul":             {call: func(s *setup) dequeueCall { return dequeueCall{s.res + "\x00", "id", "h", "me"} }},
		"long holder":     {call: func(s *setup) dequeueCall { return dequeueCall{s.res, "id", strings.Repeat("h", 201), "me"} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				s.Helper()
				if tt.put != nil {
					tt.put(s)
				}
				call := dequeueCall{s.res, "id", "holder of me", "me"}
				if tt.call != nil {
					call = tt.call(s)
				}
				before := s.dump()
				if g := s.dequeue(call); g != nil {
					s.Errorf("want nothing taken, have %+v", g)
				}
				if have := s.dump(); have != before {
					s.Errorf("want nothing changed: before %s, after %s", before, have)
				}
			})
		})
	}
}

// dump shows what there is of the setup's resource.
func (s *setup) dump() string {
	s.Helper()
	return s.value() + " " + s.rdb.Get(s.Context(), s.fence).Val() + " " + strings.Join(s.queue(), ",")
}

// Fences rise with each grant, however it was taken, and whatever the clock does.
func TestFenceRisesByLockingDequeueToo(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		last := int64(0)
		wantAbove := func(have int64) {
			s.Helper()
			if have <= last {
				s.Errorf("want a fence above %d, have %d", last, have)
			}
			last = have
		}
		for range 10 {
			held := s.takeGrant(s.dequeueFor("me"))
			wantAbove(held.Fence())
			s.release(held)
			held = s.take("")
			wantAbove(held.Fence())
			s.release(held)
		}
		for _, mark := range []string{"", "*"} { // the clock has stepped back by a day
			last += int64(24 * time.Hour / time.Microsecond)
			s.rdb.Set(s.Context(), s.fence, strconv.FormatInt(last, 10)+mark, time.Hour)
			before := last
			held := s.takeGrant(s.dequeueFor("me"))
			wantAbove(held.Fence())
			if last != before+1 {
				s.Errorf("mark %q: want %d, have %d", mark, before+1, last)
			}
			s.release(held)
			held = s.take("")
			wantAbove(held.Fence())
			s.release(held)
		}
		s.rdb.Set(s.Context(), s.fence, "7*", time.Hour) // far behind the clock
		wantNear := time.Now().Add(-time.Hour).UnixMicro()
		if held := s.takeGrant(s.dequeueFor("me")); held.Fence() < wantNear {
			s.Errorf("want the time, have %d", held.Fence())
		}
		if have := s.rdb.Get(s.Context(), s.fence).Val(); strings.HasSuffix(have, "*") {
			s.Errorf("want no mark of a reservation left, have %q", have)
		}
	})
}

// A grant that comes too late, or for nobody, is released.
func TestTakeGivesBack(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do   func(s *setup, g *store.Grant) error
		want error
	}{
		"the locker is closed": {want: lock.ErrClosed, do: func(s *setup, g *store.Grant) error {
			s.Client.Close()
			_, err := s.Take(s.Context(), *g)
			return err
		}},
		"the context has ended": {want: context.Canceled, do: func(s *setup, g *store.Grant) error {
			ctx, cancel := context.WithCancel(s.Context())
			cancel()
			_, err := s.Take(ctx, *g)
			return err
		}},
		"its cause": {want: errOver, do: func(s *setup, g *store.Grant) error {
			ctx, cancel := context.WithCancelCause(s.Context())
			cancel(errOver)
			_, err := s.Take(ctx, *g)
			return err
		}},
		"its deadline has passed": {do: func(s *setup, g *store.Grant) error {
			g.Start = g.Start.Add(-s.cfg.TTL)
			_, err := s.Take(s.Context(), *g)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				g := s.dequeueFor("me")
				if g == nil {
					s.Fatal("want a grant")
				}
				err := tt.do(s, g)
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.HasPrefix(err.Error(), "lock: take over "+s.res+": ") {
					s.Errorf("want an error of %v, have %v", tt.want, err)
				}
				if have := s.value(); have != "" {
					s.Errorf("want it released, have %q", have)
				}
			})
		})
	}
}

var errOver = errors.New("its time is over")

// A grant whose lock somebody else has by now is nobody's to give back.
func TestTakeLeavesAnothersLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		g := s.dequeueFor("me")
		s.expire()
		other := s.take("other")
		g.Start = g.Start.Add(-s.cfg.TTL)
		if held, err := s.Take(s.Context(), *g); err == nil {
			s.Errorf("want an error, have %v", held)
		}
		s.release(other)
	})
}
