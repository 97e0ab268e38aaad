// Package store says what a store of locks does. It has the requests, the results and the errors.
package store

import (
	"context"
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
	// Release takes the lock of key from token and hands it off. The lock is then reserved for the
	// first in the wait queue who can come. That one is woken or, if that is left to the client,
	// returned. The lock of another is left alone: [ErrLost]. A Release that is applied again
	// returns the same reservation, if that still stands, and reserves the lock for nobody else.
	// That is no loss if nobody was granted the lock since. r.Fence is then still the last fencing
	// token, or the Store knows by other means. A lease that an operator has revoked is lost, and its
	// lock is handed off all the same: both results may be set.
	Release(ctx context.Context, key, token string, r Release) (*Reservation, error)
	// Leave takes a waiter out of the wait queue. If the lock is reserved for it, the lock is handed
	// off as by Release.
	Leave(ctx context.Context, key, waiter string, l Leave) (*Reservation, error)
	// Confirm takes the waiter of a reservation out of the wait queue, if the reservation still
	// stands.
	Confirm(ctx context.Context, r Reservation) error
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

// A Sweeper is a Store that hands off locks whose holders have gone without a release.
type Sweeper interface {
	// Sweep looks at locks. One that may be held, and for which somebody waits, is handed off as by
	// Release. resumed says that no group of waiters is known to be paused. Waiters of paused groups
	// then come back, each to its old position. The results are in the order of locks.
	Sweep(ctx context.Context, locks []Ruled, resumed bool, h Handoff) ([]Swept, error)
	// Missing reports for each waiter whether it is in no wait queue. rejoin queues those again,
	// and has the Store remember their wait queues for queueTTL.
	Missing(ctx context.Context, waiters []Queued, rejoin bool, queueTTL time.Duration) ([]bool, error)
}

// A Queued is a waiter in the wait queue of the lock of Key.
type Queued struct {
	Key    string
	Waiter string
	Ticket int64
}

// A Ruled is a lock with its rule, nil for none.
type Ruled struct {
	Key  string
	Rule *Rule
}

// A Swept is what a [Sweeper] has found of one lock.
type Swept struct {
	Waiting bool           // somebody does
	Left    time.Duration  // how long the lock stays as it is unless it is renewed; below 0 if that is not known
	Next    []*Reservation // whom the client has to wake
	// Later is in how long the lock's rates allow another start; 0 if they do not keep one away.
	Later time.Duration
}

// A TaskListener is a Store whose releases, if they cannot wake a parked task, tell of it.
type TaskListener interface {
	// ListenForTasks tells of reservations for waiters named "siding-task:<group>:<rest>" of
	// groups, until ctx ends. ListenForTasks calls heard when it listens, and again whenever it may
	// have missed some. A message is what lease.Client.ListenForTasks reads.
	ListenForTasks(ctx context.Context, groups []string, heard func(), wake func(message string)) error
}

// A Noter is a Store that keeps notes on what the holders of locks wait for. They are for operators:
// nothing else depends on them.
type Noter interface {
	// Note has the note on the lock of key say for ttl that the work of its holder waits so; none
	// deletes the note. Note does nothing if the lock is not token's, whose fencing token is fence.
	Note(ctx context.Context, key, token string, fence int64, waits []Wait, ttl time.Duration) error
}

// A Wait is a wait for another lock by the work of a holder.
type Wait struct {
	Key string // of that lock
	// Waiter is its name in the wait queue of that lock; "" for one that polls, or that waits until
	// others of its process have the lock.
	Waiter    string
	Elsewhere bool      // that lock may be in another store than the holder's
	Until     time.Time // when the wait ends without the lock, by the clock of its process; zero for never
}

// A Request asks for a lock.
type Request struct {
	Key      string        // of the lock: prefix and resource
	Rule     *Rule         // of the lock; nil for none
	Token    string        // unique per acquisition
	TTL      time.Duration // of the lock
	FenceTTL time.Duration // how long the fencing token is remembered

	// Waiter joins the wait queue of a busy lock; "" does not. The name is unique in the wait
	// queue, and the same in each request of the waiter.
	Waiter  string
	Waited  time.Duration // for how long already, which decides its position
	Came    int64         // or when it came, by the store's clock in µs; 0 goes by Waited
	Handoff Handoff
}

// A Handoff says how a free lock is reserved for a waiter.
type Handoff struct {
	Nonce    string        // unique per call, in letters, digits and '-'; see RecoveryNonce
	Stepwise bool          // the client wakes those waiters who do not listen
	Timeout  time.Duration // how long a lock is reserved for somebody
	QueueTTL time.Duration // how long a wait queue is remembered that nobody comes to
	Overdue  time.Duration // how old a reservation is that a sweep names again, if its waiter is still queued; 0 for none
}

// traceMark comes between the nonce of a release and the traceparent of the run that made the release.
const traceMark = "-trace-"

// WithTrace returns a nonce that tells the next holder a traceparent, if there is one.
func WithTrace(nonce, traceparent string) string {
	if traceparent == "" {
		return nonce
	}
	return nonce + traceMark + traceparent
}

// TraceOf returns the traceparent in a nonce, "" if it has none.
func TraceOf(nonce string) string {
	if at := strings.LastIndex(nonce, traceMark); at >= 0 {
		return nonce[at+len(traceMark):]
	}
	return ""
}

// RecoveryNonce begins the nonce of a call that reserves a lock which it finds free. Nobody released
// that lock, as its holder has gone.
const RecoveryNonce = "recovery-"

// TimerNonce begins the nonce of a call that reserves a lock for a waiter which comes by itself. No
// release ends the wait of that waiter.
const TimerNonce = "timer-"

// A Release says how a lock is released.
type Release struct {
	Handoff

	Fence int64  // the fencing token of the lease; 0 if that is not known
	Rule  *Rule  // of the lock; nil for none
	For   string // the lock is reserved for this waiter, if the Store has named ones; "" for the first
	Start *Start // with what the next waiter may start; nil if it may not
	Send  Send   // runs the release of the Store on Redis; nil for the Store itself
}

// A Leave says why a waiter leaves the wait queue.
type Leave struct {
	Handoff

	Rule        *Rule  // of the lock; nil for none
	Reservation string // its value, without which nothing is done; "" for any
	Ticket      int64  // by which the waiter was to be woken; if it has another one, it stays. 0 for any
	Paused      bool   // for a [Sweeper]: the waiter's group is paused, and keeps its tickets
}

// A Send runs a script that calls release_lock, see redisstore.ReleaseLua and
// lease.Lease.HandOffBy. send returns what release_lock returns.
type Send func(ctx context.Context, keys []string, argv []any) (reply any, err error)

// A Start lets the next waiter start at once, in the step in which the lock is released; see
// lease.Lease.HandOffBy.
type Start struct {
	ID       string        // what makes its token unique, in letters, digits and '-'
	TTL      time.Duration // of the lock
	FenceTTL time.Duration // how long the fencing token is remembered
	Args     []any         // for what wakes it, see redisstore.Waking
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
	// HandOff is how long the lock was reserved for this waiter; below zero if it was not. From is the
	// nonce of the call that reserved the lock, "" if it was not or the Store does not know.
	HandOff time.Duration
	From    string

	// The rest is for a busy lock.

	// Holder is the token of the holder, or what another program has put there.
	Holder string
	// Reserved is set while the lock is reserved for a waiter, and nobody holds it.
	Reserved bool
	// Split is set if nobody was seen to hold the lock. Several asked at once, and none got enough
	// of the votes. Each must ask again after a random pause. Holder is who may hold it all the
	// same, "" for nobody.
	Split bool
	// Left is how long the lock lives on if nobody renews it.
	Left time.Duration
	// Since is when the lock was last taken, by the store's clock; zero if that is not known.
	Since time.Time
	// Position and Ticket are those of the waiter, zero if it is not queued.
	Position int
	Ticket   int64
	// Next is whom the client has to wake; nil for nobody.
	Next *Reservation
	// Holders is how many permits of a lock with a [Rule] are held or reserved. Later is in how long
	// its rates allow another start; 0 if they do not keep one away.
	Holders int
	Later   time.Duration
}

// A Reservation is a lock that is reserved for a waiter until the hand-off timeout has passed. A client
// that has to wake the waiter then says what came of it: lease.Client.Confirm or lease.Client.Drop. If
// it says nothing, the reservation expires.
type Reservation struct {
	Key    string // of the lock
	Waiter string // the name under which it joined the wait queue
	Ticket int64
	Value  string // what the Store keeps in the lock's place

	// If Later is set, nobody is woken. The rates of the lock allow the next start after that time,
	// and the client sweeps the lock then.
	Later time.Duration

	// If the waiter has started, see [Start], it has the lock, and the rest is set instead.
	Grant *Grant // a Store sets the token and the fence
	Reply []any  // what the script has said of it
}

// A message on a channel wakes a waiter with a name of such a prefix. A goroutine hears the message
// itself. A process that hears the message wakes a parked task.
const (
	GoroutinePrefix = "siding-goroutine:"
	TaskPrefix      = "siding-task:"
)

// ListenerOf returns the id of the [Listener] that wakes waiter. It returns false for a waiter that
// the client has to wake.
func ListenerOf(waiter string) (id string, listens bool) {
	rest, listens := strings.CutPrefix(waiter, GoroutinePrefix)
	id, _, _ = strings.Cut(rest, ":")
	return id, listens
}

// NextHolder is shown as the holder of a lock that is reserved.
const NextHolder = "the next in the wait queue"

// ForeignHolder is shown as the holder of a lock that a program on the plain protocol holds.
const ForeignHolder = "another program"

// A Grant is a lock that a script has taken together with a task, see redisstore.LockLua.
type Grant struct {
	Resource string
	Permit   string // see [Result]
	Token    string
	Fence    int64
	HandOff  time.Duration // since it was reserved; negative if it was not
	From     string        // the nonce of the call that reserved it
	Start    time.Time     // before the script was sent
}
