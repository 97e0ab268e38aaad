// Package store says what a store of locks does. It has the requests, the results and the errors.
package store

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// A Store keeps locks where many processes find them. lock.Redis returns one on Redis; there are
// others on a quorum of Redis servers (lock/redlock), on etcd (lock/etcdlock) and in memory
// (lock/locktest). Package lease does all the rest: it decides when to ask, and for how long to
// believe the result.
//
// Each method is one atomic step. A call that is applied twice has the effect of one, as a client
// that lost an answer sends the call again. The calls carry what is needed for that. An error other
// than [ErrLost] says that the Store could not be asked or did not answer; the step may have been
// applied. An error may have a method Passing() bool, which says whether it may pass by itself;
// then those who wait go on.
type Store interface {
	// Acquire gives the lock to request.Token if the lock is free, or is that token's already; else
	// it says who has the lock. A waiter then joins the wait queue, if the Store has wait
	// queues for such waiters.
	Acquire(ctx context.Context, request Request) (Result, error)
	// Renew gives the lock of key, if it is token's, another ttl from now. Otherwise it changes
	// nothing and returns [ErrLost]. fenceTTL is Request.FenceTTL.
	Renew(ctx context.Context, key, token string, ttl, fenceTTL time.Duration) error
	// Release takes the lock of key from token and hands it off: the lock is then reserved for the
	// first in the wait queue who can come, and that one is woken. The lock of another is left
	// alone: [ErrLost]. A Release that is applied again reserves the lock for nobody else. That is
	// no loss if nobody was granted the lock since: r.Fence is then still the last fencing token, or
	// the Store knows by other means. A lease that an operator has revoked is lost, and its lock is
	// handed off all the same.
	Release(ctx context.Context, key, token string, r Release) error
	// Leave takes a waiter out of the wait queue of the lock of key. If the lock is reserved for it,
	// the lock is handed off as by Release. A waiter that is not there is no error, but the Store is
	// asked all the same: so one whose wait ends learns whether it is there.
	Leave(ctx context.Context, key, waiter string, l Leave) error
}

// A Listener is a Store that wakes waiters when the lock is reserved for them.
type Listener interface {
	// Listen calls wake for waiters whose [ListenerOf] is id, until ctx ends. Listen calls heard
	// when it listens, and again whenever it may have missed some.
	Listen(ctx context.Context, id string, heard func(), wake func(waiter string)) error
}

// A JoinOrdered is a Listener that knows a position only by when a waiter joined, not by
// [Request.Waited]. So all waiters of a process are queued, not one at a time.
type JoinOrdered interface {
	Listener
	JoinOrdered()
}

// A Request asks for a lock.
type Request struct {
	Key      string        // of the lock: prefix and resource
	Rule     *Rule         // of the lock; nil for none
	Token    string        // unique per acquisition
	TTL      time.Duration // of the lock
	FenceTTL time.Duration // how long the fencing token is remembered

	// Waiter joins the wait queue of a busy lock; "" does not. The name is unique in the wait
	// queue, and the same in each request of the waiter. It begins with [GoroutinePrefix].
	Waiter  string
	Waited  time.Duration // for how long already, which decides its place
	Handoff Handoff
}

// A Handoff says how a free lock is reserved for a waiter.
type Handoff struct {
	Nonce    string        // unique per call, in letters, digits and '-'
	Timeout  time.Duration // how long a lock is reserved for somebody
	QueueTTL time.Duration // how long a wait queue is remembered that nobody comes to
}

// A Release says how a lock is released.
type Release struct {
	Handoff

	Fence int64 // the fencing token of the lease; 0 if that is not known
	Rule  *Rule // of the lock; nil for none
}

// A Leave says how a waiter leaves the wait queue.
type Leave struct {
	Handoff

	Rule *Rule // of the lock; nil for none
}

// A Result is what came of a [Request].
type Result struct {
	// Taken says that the lock is the request's now.
	Taken bool
	// Permit is the key of the permit that was granted, or "" for the whole lock; see [Rule]. The
	// lease is renewed and released by that key.
	Permit string
	// Fence is the fencing token, above every earlier one of the key; 0 from a Store that has none.
	Fence int64

	// The rest is for a busy lock.

	// Holder is the token of the holder, or what another program has put there.
	Holder string
	// Reserved is set while the lock is reserved for a waiter, or offered to tasks that came before.
	// Nobody holds it then.
	Reserved bool
	// Split is set if nobody was seen to hold the lock. Several asked at once, and none got enough
	// of the votes. Each must ask again after a random pause. Holder is who may hold it all the
	// same, "" for nobody.
	Split bool
	// Left is how long the lock lives on if nobody renews it.
	Left time.Duration
	// Since is when the lock was last taken, by the store's clock; zero if that is not known.
	Since time.Time
	// Position is that of the waiter in the wait queue, 1 for the first; 0 if it is not queued.
	Position int
	// Holders is how many permits of a lock with a [Rule] are held or reserved. Later is in how long
	// its rates allow another start; 0 if they do not keep one away.
	Holders int
	Later   time.Duration
}

// GoroutinePrefix begins the name of a waiter: "siding-goroutine:<listener>:<rest>". A [Listener] hears
// the name.
const GoroutinePrefix = "siding-goroutine:"

// ListenerOf returns the id of the [Listener] that wakes waiter. It returns false for a waiter that
// nobody wakes.
func ListenerOf(waiter string) (id string, listens bool) {
	rest, listens := strings.CutPrefix(waiter, GoroutinePrefix)
	id, _, _ = strings.Cut(rest, ":")
	return id, listens
}

// DefaultPrefix is that of the keys of locks.
const DefaultPrefix = "lock:"

// NoPrefix is lock.NoPrefix. As braces are refused in a prefix, no other prefix is the same.
const NoPrefix = "{}"

// Process names this process as the holder of a lock, for people, and Host its machine.
func Process() string { return fmt.Sprintf("%s (pid %d)", Host(), os.Getpid()) }

// Host names this machine.
func Host() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown host"
	}
	return host
}

// NextHolder is shown as the holder of a lock that is reserved.
const NextHolder = "the next in the wait queue"

// ForeignHolder is shown as the holder of a lock that a program on the plain protocol holds.
const ForeignHolder = "another program"
