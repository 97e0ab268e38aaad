package lock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/lock"
)

// An aheadCall is one of take_ahead from a script of another package.
type aheadCall struct{ resource, id, holder, waiter string }

// ahead makes the call; nil where the lock is not taken.
func (s *setup) ahead(c aheadCall) *lock.Grant {
	s.Helper()
	source, with := redisstore.Ahead(), s.Ahead()
	script := redis.NewScript(source + `
return (take_ahead({ARGV[5], ARGV[6], ARGV[7], ARGV[8]}, ARGV[1], ARGV[2], ARGV[3], ARGV[4])) or {}`)
	start := time.Now()
	got, err := script.Run(s.Context(), s.rdb, nil, append([]any{c.resource, c.id, c.holder, c.waiter}, with...)...).StringSlice()
	if err != nil {
		s.Fatalf("take ahead: %v", err)
	}
	if len(got) == 0 {
		return nil
	}
	if len(got) != 3 {
		s.Fatalf("want a token, a fence and a time, have %q", got)
	}
	fence, err1 := strconv.ParseInt(got[1], 10, 64)
	since, err2 := strconv.ParseInt(got[2], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		s.Fatal(err)
	}
	return &lock.Grant{Resource: c.resource, Token: got[0], Fence: fence, HandOff: time.Duration(since) * time.Microsecond, Start: start}
}

// aheadFor is ahead for the setup's resource, for a waiter.
func (s *setup) aheadFor(waiter string) *lock.Grant {
	s.Helper()
	return s.ahead(aheadCall{s.res, "id", "holder of " + waiter, waiter})
}

func (s *setup) adopt(g *lock.Grant) *lock.Lease {
	s.Helper()
	if g == nil {
		s.Fatal("want a grant, have none")
	}
	lease, err := s.Adopt(s.Context(), *g)
	if err != nil {
		s.Fatalf("adopt: %v", err)
	}
	return lease
}

// What is taken ahead is a lock like any other, once it is adopted.
func TestTakenAhead(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		lease := s.adopt(s.aheadFor("me"))
		if _, handed := lease.HandedOff(); handed || !lease.Valid() || lease.Fence() == 0 {
			s.Errorf("want a valid lease of a free lock, have %+v", lease)
		}
		s.wantTTL(s.key, 10*time.Second, 15*time.Second)
		s.wantTTL(s.fence, time.Minute, 1000*time.Hour)
		if busy := s.refuse("other"); busy.Holder != "holder of me" || busy.Place != 1 {
			s.Errorf("want it held by its holder, have %+v", busy)
		}
		work := lease.Keep(s.Context())
		again, err := s.Acquire(work, s.res, &lock.Options{Reentrant: true})
		if err != nil || again.Fence() != lease.Fence() {
			s.Errorf("want it taken again by its holder, have %v, %v", again, err)
		}
		s.release(again)
		s.handOff(lease, "other")
		grant := s.aheadFor("other")
		s.expectHandOff(s.adopt(grant))
		if have := s.line(); len(have) != 0 {
			s.Errorf("want nobody in line, have %v", have)
		}
	})
}

func (s *setup) expectHandOff(l *lock.Lease) {
	s.Helper()
	if _, handed := l.HandedOff(); !handed {
		s.Error("want a hand-off")
	}
}

// Nothing is taken ahead that [lock.Locker.Acquire] would not give at once, nor what is no
// resource; and nothing is left of the attempt.
func TestNotTakenAhead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		put  func(s *setup)
		call func(s *setup) aheadCall
	}{
		"held":                 {put: func(s *setup) { s.take("") }},
		"held by me":           {put: func(s *setup) { s.take("me") }},
		"another program's":    {put: func(s *setup) { s.rdb.Set(s.Context(), s.key, "5c8d9a1f00", time.Minute) }},
		"reserved for another": {put: func(s *setup) { s.rdb.Set(s.Context(), s.key, "siding-reserved:n:1:other", time.Minute) }},
		"reserved for one with my name in its": {put: func(s *setup) {
			s.rdb.Set(s.Context(), s.key, "siding-reserved:n:1:me:me", time.Minute)
		}},
		"somebody in line": {put: func(s *setup) { s.rdb.ZAdd(s.Context(), s.row, redis.Z{Score: 1, Member: "other"}) }},
		"me in line":       {put: func(s *setup) { s.rdb.ZAdd(s.Context(), s.row, redis.Z{Score: 1, Member: "me"}) }},
		"empty":            {call: func(*setup) aheadCall { return aheadCall{"", "id", "h", "me"} }},
		"oversized":        {call: func(*setup) aheadCall { return aheadCall{strings.Repeat("x", 513), "id", "h", "me"} }},
		"braces":           {call: func(s *setup) aheadCall { return aheadCall{s.res + "{a}", "id", "h", "me"} }},
		"a brace":          {call: func(s *setup) aheadCall { return aheadCall{s.res + "}", "id", "h", "me"} }},
		"control":          {call: func(s *setup) aheadCall { return aheadCall{s.res + "\n", "id", "h", "me"} }},
		"nul":              {call: func(s *setup) aheadCall { return aheadCall{s.res + "\x00", "id", "h", "me"} }},
		"long holder":      {call: func(s *setup) aheadCall { return aheadCall{s.res, "id", strings.Repeat("h", 201), "me"} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				s.Helper()
				if tt.put != nil {
					tt.put(s)
				}
				call := aheadCall{s.res, "id", "holder of me", "me"}
				if tt.call != nil {
					call = tt.call(s)
				}
				before := s.dump()
				if g := s.ahead(call); g != nil {
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
	return s.value() + " " + s.rdb.Get(s.Context(), s.fence).Val() + " " + strings.Join(s.line(), ",")
}

// Fences rise with each grant, however it was taken, and whatever the clock does.
func TestFenceRisesAheadToo(t *testing.T) {
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
			lease := s.adopt(s.aheadFor("me"))
			wantAbove(lease.Fence())
			s.release(lease)
			lease = s.take("")
			wantAbove(lease.Fence())
			s.release(lease)
		}
		for _, mark := range []string{"", "*"} { // the clock has stepped back by a day
			last += int64(24 * time.Hour / time.Microsecond)
			s.rdb.Set(s.Context(), s.fence, strconv.FormatInt(last, 10)+mark, time.Hour)
			before := last
			lease := s.adopt(s.aheadFor("me"))
			wantAbove(lease.Fence())
			if last != before+1 {
				s.Errorf("mark %q: want %d, have %d", mark, before+1, last)
			}
			s.release(lease)
			lease = s.take("")
			wantAbove(lease.Fence())
			s.release(lease)
		}
		s.rdb.Set(s.Context(), s.fence, "7*", time.Hour) // far behind the clock
		wantNear := time.Now().Add(-time.Hour).UnixMicro()
		if lease := s.adopt(s.aheadFor("me")); lease.Fence() < wantNear {
			s.Errorf("want the time, have %d", lease.Fence())
		}
		if have := s.rdb.Get(s.Context(), s.fence).Val(); strings.HasSuffix(have, "*") {
			s.Errorf("want no mark of a reservation left, have %q", have)
		}
	})
}

// A grant that comes too late, or for nobody, is given back.
func TestAdoptGivesBack(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do   func(s *setup, g *lock.Grant) error
		want error
	}{
		"the locker is closed": {want: lock.ErrClosed, do: func(s *setup, g *lock.Grant) error {
			s.Close()
			_, err := s.Adopt(s.Context(), *g)
			return err
		}},
		"the context has ended": {want: context.Canceled, do: func(s *setup, g *lock.Grant) error {
			ctx, cancel := context.WithCancel(s.Context())
			cancel()
			_, err := s.Adopt(ctx, *g)
			return err
		}},
		"its cause": {want: errAhead, do: func(s *setup, g *lock.Grant) error {
			ctx, cancel := context.WithCancelCause(s.Context())
			cancel(errAhead)
			_, err := s.Adopt(ctx, *g)
			return err
		}},
		"its deadline has passed": {do: func(s *setup, g *lock.Grant) error {
			g.Start = g.Start.Add(-s.Config().TTL)
			_, err := s.Adopt(s.Context(), *g)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				g := s.aheadFor("me")
				if g == nil {
					s.Fatal("want a grant")
				}
				err := tt.do(s, g)
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.HasPrefix(err.Error(), "lock: adopt "+s.res+": ") {
					s.Errorf("want an error of %v, have %v", tt.want, err)
				}
				if have := s.value(); have != "" {
					s.Errorf("want it given back, have %q", have)
				}
			})
		})
	}
}

var errAhead = errors.New("its time is over")

// A grant whose lock somebody else has by now is nobody's to give back.
func TestAdoptLeavesAnothersLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *setup) {
		g := s.aheadFor("me")
		s.expire()
		other := s.take("other")
		g.Start = g.Start.Add(-s.Config().TTL)
		if lease, err := s.Adopt(s.Context(), *g); err == nil {
			s.Errorf("want an error, have %v", lease)
		}
		s.release(other)
	})
}
