package redisstore_test

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/redisstore"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// A lock is reserved for a waiter, who then takes the position of an equal one. So the client does not
// find it under its ticket. It is not dropped, but woken by its new ticket.
func TestAWaiterWithAnotherTicketIsNotDropped(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	s, key := redisstore.New(rdb), "lock:"+t.Name()
	acquire := func(token, waiter string) store.Result {
		t.Helper()
		got, err := s.Acquire(t.Context(), store.Request{Key: key, Token: "siding:" + token + ":x", TTL: time.Hour, FenceTTL: time.Hour, Waiter: waiter, Handoff: handoff(token)})
		must(t, err)
		return got
	}
	acquire("holder", "")
	first := acquire("a", "first")
	acquire("b", "second")
	r, err := s.Release(t.Context(), key, "siding:holder:x", store.Release{Handoff: handoff("c")})
	must(t, err)
	if r == nil || r.Waiter != "first" || r.Ticket != first.Ticket {
		t.Fatalf("want the first waiter, by its ticket %d; have %+v", first.Ticket, r)
	}
	position := first.Ticket - 5
	_, err = redisstore.Waiter{Key: key, Name: "first", Came: first.Ticket, Equal: "x", TTL: time.Hour, Ticket: position}.Others(t.Context(), rdb)
	must(t, err)
	for range 2 { // the answer may be lost
		again, err := s.Leave(t.Context(), key, "first", store.Leave{Handoff: handoff("d"), Reservation: r.Value, Ticket: r.Ticket})
		must(t, err)
		want := &store.Reservation{Key: key, Waiter: "first", Ticket: position, Value: r.Value}
		if diff := gocmp.Diff(want, again); diff != "" {
			t.Fatalf("what the client has to wake (-want +have):\n%s", diff)
		}
	}
	next, err := s.Leave(t.Context(), key, "first", store.Leave{Handoff: handoff("e"), Reservation: r.Value, Ticket: position})
	must(t, err)
	if next == nil || next.Waiter != "second" {
		t.Errorf("want the second waiter, have %+v", next)
	}
}

// A waiter is registered as the one that waits, and its answer is lost. Before it asks again, another one
// joins the wait queue, and perhaps ends in favour of the one that is registered. That one is not too many.
func TestARegisteredWaiterIsNotTooMany(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	s, key := redisstore.New(rdb), "lock:"+t.Name()
	ask := func(name string, came int64) redisstore.Others {
		t.Helper()
		got, err := redisstore.Waiter{Key: key, Name: name, Came: came, Equal: "x", TTL: time.Hour, Most: 1}.Others(t.Context(), rdb)
		must(t, err)
		return got
	}
	join := func(waiter string) int64 {
		t.Helper()
		got, err := s.Acquire(t.Context(), store.Request{Key: key, Token: "siding:" + waiter + ":x", TTL: time.Hour, FenceTTL: time.Hour, Waiter: waiter, Handoff: handoff(waiter)})
		must(t, err)
		return got.Ticket
	}
	join("") // holds the lock
	first := join("first")
	ask("first", first)
	second := join("second")
	if got := ask("first", first); got.Waiting != 1 || got.Equal != "" {
		t.Errorf("want the first one registered, of 1 that waits; have %+v", got)
	}
	if got := ask("second", second); got.Waiting != 2 || got.Equal != "first" {
		t.Errorf("want the first one of 2 found, have %+v", got)
	}
	if got := ask("first", first+1); got.Waiting != 2 { // a later task of its id
		t.Errorf("want 2 that wait, have %+v", got)
	}
}
