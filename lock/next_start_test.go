package lock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// Whoever gives up a place hears when the rates allow the next start, and hears that again if the answer
// was lost.
func TestWhoGivesUpHearsOfTheNextStart(t *testing.T) {
	t.Parallel()
	limited := func(starts int) *store.Rule {
		return &store.Rule{Limit: 2, Rates: []store.Rate{{Starts: starts, Period: time.Hour}}}
	}
	handoff := func() store.Handoff {
		return store.Handoff{Nonce: uuid.NewString(), Stepwise: true, Timeout: time.Minute, QueueTTL: time.Hour}
	}
	type held struct{ permit, token string }
	for name, tt := range map[string]struct {
		starts int  // that the rates allow at first; two later
		lost   bool // to the one that gives up
		giveUp func(s *setup, on lock.Store, a held) func() (*store.Reservation, error)
	}{
		"a holder whose lease was revoked": {2, true, func(s *setup, on lock.Store, a held) func() (*store.Reservation, error) {
			s.rdb.Set(s.Context(), a.permit, "siding:revoked-"+strings.TrimPrefix(a.token, "siding:"), time.Minute)
			release := store.Release{Handoff: handoff(), Rule: limited(2)}
			return func() (*store.Reservation, error) { return on.Release(s.Context(), a.permit, a.token, release) }
		}},
		"a waiter": {2, false, func(s *setup, on lock.Store, a held) func() (*store.Reservation, error) {
			if _, err := on.Release(s.Context(), a.permit, a.token, store.Release{Handoff: handoff(), Rule: limited(2)}); err != nil {
				s.Fatal(err)
			}
			leave := store.Leave{Handoff: handoff(), Rule: limited(2)}
			return func() (*store.Reservation, error) { return on.Leave(s.Context(), s.key, "c", leave) }
		}},
		"a waiter for whom a place is reserved": {3, false, func(s *setup, on lock.Store, a held) func() (*store.Reservation, error) {
			if next, err := on.Release(s.Context(), a.permit, a.token, store.Release{Handoff: handoff(), Rule: limited(3)}); err != nil || next == nil || next.Waiter != "c" {
				s.Fatalf("want it reserved for c, have %+v and %v", next, err)
			}
			leave := store.Leave{Handoff: handoff(), Rule: limited(2)}
			return func() (*store.Reservation, error) { return on.Leave(s.Context(), s.key, "c", leave) }
		}},
		"a waiter that is dropped": {3, false, func(s *setup, on lock.Store, a held) func() (*store.Reservation, error) {
			next, err := on.Release(s.Context(), a.permit, a.token, store.Release{Handoff: handoff(), Rule: limited(3)})
			if err != nil || next == nil || next.Waiter != "c" {
				s.Fatalf("want it reserved for c, have %+v and %v", next, err)
			}
			leave := store.Leave{Handoff: handoff(), Rule: limited(2), Reservation: next.Value, Ticket: next.Ticket}
			return func() (*store.Reservation, error) { return on.Leave(s.Context(), next.Key, "c", leave) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(s *setup) {
				on := lock.Redis(s.rdb)
				var first held
				for _, who := range []string{"a", "b", "c", "d"} {
					h := handoff()
					token := "siding:" + h.Nonce + ":" + who
					r, err := on.Acquire(s.Context(), store.Request{
						Key: s.key, Rule: limited(tt.starts), Token: token, TTL: time.Minute, FenceTTL: time.Hour, Waiter: who, Handoff: h,
					})
					if err != nil || r.Taken != (who < "c") {
						s.Fatalf("want a and b at work, and c and d in the wait queue, have %+v and %v for %s", r, err, who)
					}
					if who == "a" {
						first = held{r.Permit, token}
					}
				}
				giveUp := tt.giveUp(s, on, first)
				for range 2 {
					next, err := giveUp()
					if lost := errors.Is(err, store.ErrLost); lost != tt.lost || err != nil && !lost {
						s.Fatalf("want it lost: %v, have %v", tt.lost, err)
					}
					if next == nil || next.Waiter != "" || next.Later < 50*time.Minute || next.Later > time.Hour {
						s.Fatalf("want the time at which d may start, in an hour, have %+v", next)
					}
				}
				for _, last := range []string{"c", "d"} {
					next, err := on.Leave(s.Context(), s.key, last, store.Leave{Handoff: handoff(), Rule: limited(2)})
					if nobody := last == "d"; err != nil || (next == nil) != nobody {
						s.Errorf("want the time while somebody waits, have %+v and %v after %s", next, err, last)
					}
				}
			})
		})
	}
}
