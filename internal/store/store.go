// Package store says what keeps locks where many processes find them, and how it is asked.
package store

import (
	"context"
	"errors"
	"strings"
	"time"
)

// ErrLost says that the caller's token does not hold the lock, or no longer.
var ErrLost = errors.New("lock: lease lost")

// A Store keeps locks where many processes find them. lock.Redis returns one on Redis; there
// are others on a quorum of Redis servers (lock/redlock), on etcd (lock/etcdlock) and in memory
// (lock/locktest). A lock.Locker does all the rest: it decides when to call, and what to believe
// of the answer.
//
// Each method is one atomic step, and may be applied twice with the effect of
// once: a client that lost an answer sends it again. The calls carry what is
// needed for that. An error other than [ErrLost] says that the Store could not
// be asked or did not answer; the step may have been applied. One that has a method
// Passing() bool says by it whether it may pass by itself, and those who wait go on.
type Store interface {
	// Acquire gives the lock to claim.Token if it is free, or is that token's
	// already; else it says who has it. A claim with a waiter that is refused joins
	// the line, if the Store has lines for such waiters.
	Acquire(ctx context.Context, claim Claim) (Answer, error)
	// Renew gives the lock of key, if it is token's, another ttl from now.
	// Otherwise it changes nothing and returns [ErrLost]. keep is Claim.Keep.
	Renew(ctx context.Context, key, token string, ttl, keep time.Duration) error
	// Release takes the lock of key from token and passes it on: it is kept for
	// the first in line who can come, who is told so or, if that is left to
	// the client, returned. The lock of another is left alone: [ErrLost]. A Release that is
	// applied again returns the same turn, if that still stands, and reserves the lock for
	// nobody else. It is no loss if nobody was granted the lock since: line.Fence is still the
	// last fencing token, or the Store knows by other means.
	Release(ctx context.Context, key, token string, line Line) (*Turn, error)
	// Leave takes a waiter out of the line. Where the lock is kept for it, it is
	// passed on as by Release. A value that is not "" names a Turn of the
	// waiter, without which nothing is done.
	Leave(ctx context.Context, key, waiter, value string, line Line) (*Turn, error)
	// Called takes the waiter of turn out of the line, if its turn still stands.
	Called(ctx context.Context, key string, turn Turn) error
}

// A Listener is a Store that tells waiters when it is their turn.
type Listener interface {
	// Listen tells those waiters of whom [ListenerOf] is id, until ctx ends. It
	// calls heard when it has begun to hear calls, and again whenever it may have
	// missed some.
	Listen(ctx context.Context, id string, heard func(), call func(waiter string)) error
}

// A JoinOrdered is a Listener that knows a place in line only by when a waiter joined,
// not by [Claim.Waited]. So all of a process who wait stand in its lines, not
// one at a time.
type JoinOrdered interface {
	Listener
	JoinOrdered()
}

// A Sweeper is a Store that passes on locks whose holders have gone without a release.
type Sweeper interface {
	// Sweep looks at the locks of keys. One that nobody holds, and for which somebody waits, it
	// passes on as Release does. resumed says that no group of waiters is known to be paused:
	// those that were set aside come back, each to its old place. The answers are in the
	// order of keys.
	Sweep(ctx context.Context, keys []string, resumed bool, line Line) ([]Swept, error)
	// Missing reports for each waiter whether it is in no line. rejoin puts those back into
	// theirs, which are kept for so long.
	Missing(ctx context.Context, places []Place, rejoin bool, keep time.Duration) ([]bool, error)
}

// A Place is one in the line of the lock of Key.
type Place struct {
	Key    string
	Waiter string
	Ticket int64
}

// A Swept is what a [Sweeper] has found of one lock.
type Swept struct {
	Waiting bool          // somebody does
	Left    time.Duration // how long the lock stays as it is unless it is renewed; below 0 where that is not known
	Next    *Turn         // whose turn it is, for the client to call; nil for nobody
}

// A TaskListener is a Store whose releases, where they cannot wake a parked task, tell of it.
type TaskListener interface {
	// ListenForTasks tells of turns of waiters named "siding-task:<group>:<rest>" for some
	// groups, until ctx ends. It calls heard when it has begun to hear, and again whenever it
	// may have missed some. A message is what lock.Locker.ListenForTasks reads.
	ListenForTasks(ctx context.Context, groups []string, heard func(), call func(message string)) error
}

// A Claim asks for a lock.
type Claim struct {
	Key   string        // of the lock: prefix and resource
	Token string        // unique per acquisition
	TTL   time.Duration // of the lock
	Keep  time.Duration // how long the fencing token is remembered

	// Waiter stands in line when refused; "" does not. Its name is unique in
	// the line, and the same in each of its claims.
	Waiter string
	Waited time.Duration // for how long already, which is its place in line
	Came   int64         // or when it came, by the store's clock in us; 0 goes by Waited
	Line   Line
}

// Line says how a line is to be dealt with.
type Line struct {
	Nonce  string        // unique per call, in letters, digits and '-'
	ByHand bool          // the client calls those waiters who do not listen
	Grace  time.Duration // how long a lock is kept for somebody
	Keep   time.Duration // how long a line is remembered that nobody comes to
	Start  *Start        // for a Release: with what the next waiter may begin; nil if it may not
	For    string        // for a Release: the lock is kept for this waiter, if the Store has named ones
	Fence  int64         // for a Release: the fencing token of the lease; 0 where that is not known
	Send   Send          // for a Release by the Store on Redis: what runs it; nil for the Store itself
	Paused bool          // for a Leave of a [Sweeper]: the waiter's group is paused, and keeps its tickets
}

// A Send runs a script that calls release_ahead, see redisstore.Release and lock.Lease.HandOver. It returns what
// release_ahead returns.
type Send func(ctx context.Context, keys []string, argv []any) (answer any, err error)

// A Start is with what the next waiter can begin at once, in the step in which the lock is
// released; see lock.Lease.HandOver.
type Start struct {
	ID   string        // what makes its token unique, in letters, digits and '-'
	TTL  time.Duration // of the lock
	Keep time.Duration // how long the fencing token is remembered
	Args []any         // for summon, see redisstore.Calling
}

// An Answer is what came of a [Claim].
type Answer struct {
	// Taken says that the lock is the claim's now.
	Taken bool
	// Fence is the fencing token, above every earlier one of the key; 0 from a Store
	// that has none.
	Fence int64
	// HandOff is how long the lock was kept for this waiter; below zero if it was not.
	HandOff time.Duration

	// The rest is for a claim that was refused.

	// Holder is the token of the holder, or what another program has put there.
	Holder string
	// Reserved is set while the lock is kept for a waiter, and nobody holds it.
	Reserved bool
	// Split is set when nobody was seen to hold it, as of several who asked at once none got
	// enough of the votes. They are to ask again, each after a time of its own. Holder is
	// who may hold it all the same, "" for nobody.
	Split bool
	// Left is how long the lock lives on if nobody renews it.
	Left time.Duration
	// Since is when it was last taken, by the store's clock; zero if that is not known.
	Since time.Time
	// Place, Ticket and Waited are those of the waiter, zero if it is in no line.
	Place  int
	Ticket int64
	Waited time.Duration
	// Next is whose turn it is, for the client to call; nil for nobody.
	Next *Turn
}

// A Turn is a lock that is kept for a waiter.
type Turn struct {
	Waiter string
	Ticket int64
	Value  string // what the Store keeps in the lock's place

	// Of a waiter that has begun, see [Start], the rest is set instead.
	Token  string
	Fence  int64
	Answer []any // what summon has said of it; its numbers are text where the call came twice
}

// What begins the names of waiters who are told of their turn on a channel: a goroutine, and a
// parked task, of which somebody else is told.
const (
	CallPrefix = "siding-call:"
	TaskPrefix = "siding-task:"
)

// ListenerOf returns the id of the [Listener] that tells waiter, and false for a
// waiter who has to be called by hand.
func ListenerOf(waiter string) (id string, listens bool) {
	rest, listens := strings.CutPrefix(waiter, CallPrefix)
	id, _, _ = strings.Cut(rest, ":")
	return id, listens
}
