package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/roundtrip"
	"github.com/sidingq/siding/internal/store"
)

//go:embed look.lua
var lookSource string

var lookScript = redis.NewScript(holdersSource + lookSource)

// A LookState says who may take a lock.
type LookState string

// What [Look] finds in the place of a lock.
const (
	LookHeld     LookState = "held"
	LookReserved LookState = "reserved"
	LookForeign  LookState = "foreign" // held by another program
	LookFree     LookState = "free"
	lookLimited  LookState = "limited" // the lock has permits, and their holders count
)

// A LookAt says which lock to look at, and which of its waiters to list.
type LookAt struct {
	Key         string // of the lock
	From, Count int    // index of the first waiter, 0 for the first of all, and how many
	Waiter      string // whose position is asked for, or ""
}

// A Looked is a lock and its wait queue at a moment. It has no token.
type Looked struct {
	Now       time.Time // by the clock of the lock's server
	State     LookState
	Holder    string    // the holder's label, or the waiter for whom the lock is reserved
	Since     time.Time // of the grant or the reservation; zero if that is not known
	Left      time.Duration
	Endless   bool  // the lock never expires
	Fence     int64 // the last, 0 if that is not known
	Waiting   int   // in the wait queue
	Paused    int   // waiters of paused groups, which are not in the wait queue
	First     int64 // the first ticket in the wait queue, or else of the paused waiters, in us, or 0
	WaitTime  time.Duration
	Revoked   *Record
	Revoking  bool           // the lock is revoked, and its holder has not released it yet
	Waiters   []LookedWaiter // the paused ones last
	Position  int            // of LookAt.Waiter, 0 if it is not in the wait queue
	IsPaused  bool           // it is one of the paused waiters
	HasTicket int64          // its ticket, in us, or 0
	Waits     []store.Wait   // of the holder's work, as the holder has noted
	// Permits are those that are held or reserved, if the lock has a rule. If there are several, Holder
	// and Since are not set.
	Permits []Permit
}

// A Record says how an operator has revoked a lease last.
type Record struct {
	At                 time.Time
	By, Reason, Holder string
}

// A LookedWaiter is one of a wait queue.
type LookedWaiter struct {
	Name   string
	Ticket int64
	Paused bool
}

// Look looks at locks in one round trip, or one for each node of a Cluster. It changes nothing.
func Look(ctx context.Context, rdb redis.UniversalClient, locks []LookAt) ([]Looked, error) {
	calls := roundtrip.Run(ctx, rdb, lookScript, len(locks), func(i int) (keys []string, argv []any) {
		at := locks[i]
		return append(Keys(at.Key), RecordKey(at.Key), WaitsKey(at.Key), permitsKey(at.Key)), []any{at.From, at.Count, at.Waiter}
	})
	looked := make([]Looked, len(locks))
	for i, call := range calls {
		var err error
		if looked[i], err = lookedOf(newReply(call.Result())); err != nil {
			return nil, fmt.Errorf("redisstore: look at %s: %w", locks[i].Key, err)
		}
	}
	return looked, nil
}

func lookedOf(r reply) (Looked, error) {
	l := Looked{Now: time.UnixMicro(r.number()), State: LookState(r.text()), Holder: r.text()}
	l.Since = usTime(r.number())
	left := r.number()
	l.Left, l.Endless = max(0, time.Duration(left)*time.Millisecond), left == -1
	l.Fence = r.number()
	l.Waiting, l.Paused, l.First = int(r.number()), int(r.number()), r.number()
	l.WaitTime = time.Duration(r.number()) * time.Microsecond
	if f := r.list(); len(f.fields) > 0 {
		l.Revoked = &Record{At: usTime(f.number()), By: f.text(), Reason: f.text(), Holder: f.text()}
		r.err = errors.Join(r.err, f.err)
	}
	for _, paused := range []bool{false, true} {
		f := r.list()
		for len(f.fields) > 0 {
			l.Waiters = append(l.Waiters, LookedWaiter{Name: f.text(), Ticket: f.number(), Paused: paused})
		}
		r.err = errors.Join(r.err, f.err)
	}
	l.Position, l.IsPaused, l.HasTicket, l.Revoking = int(r.number()), r.number() == 1, r.number(), r.number() == 1
	l.Waits = waitsOf(r.text())
	permits := r.list()
	l.limited(permits.permits())
	return l, errors.Join(r.err, permits.err)
}

// limited sets the state of a lock with permits.
func (l *Looked) limited(permits []Permit) {
	if l.State != lookLimited && !slices.ContainsFunc(permits, func(p Permit) bool { return p.Number > 0 }) {
		return // the lock has no rule, or its holder is from before that
	}
	if l.Permits = permits; l.State == LookForeign {
		return // another program keeps all others out
	}
	l.State, l.Holder, l.Since, l.Revoking, l.Waits = LookFree, "", time.Time{}, false, nil
	switch {
	case len(permits) == 1:
		*l = l.Of(permits[0])
	case slices.ContainsFunc(permits, func(p Permit) bool { return !p.Reserved }):
		l.State = LookHeld
	case len(permits) > 0:
		l.State = LookReserved
	}
}

// Of returns l as the lock of the one who has a permit.
func (l Looked) Of(p Permit) Looked {
	l.State, l.Holder, l.Since, l.Left, l.Revoking = LookHeld, p.Name, p.Since, p.Left, p.Revoking
	if p.Reserved {
		l.State = LookReserved
	}
	if p.Fence > 0 {
		l.Fence = p.Fence
	}
	return l
}

// list reads an array.
func (r *reply) list() reply { return newReply(r.next(), r.err) }

// usTime returns the time of so many us, zero for none.
func usTime(us int64) time.Time {
	if us <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}
