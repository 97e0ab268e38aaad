package lockredis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/store"
)

var lookScript = Script(luaFiles, "look")

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
	From, Count int    // index of the first waiter, 0 for the first of all, and how many; at most math.MaxInt32
	// Waiter is the id of a task of Queue whose position is asked for, "" for none.
	Queue, Waiter string
	Rates         []store.Rate // are asked for [Looked.Next]
}

// A Looked is a lock, and who waits for it, at a moment. It has no token.
type Looked struct {
	Now        time.Time // by the clock of the lock's server
	State      LookState
	Holder     string    // the holder's label, or the waiter for whom the lock is reserved
	Since      time.Time // of the grant or the reservation; zero if that is not known
	Left       time.Duration
	Endless    bool      // the lock never expires
	Fence      int64     // the last, 0 if that is not known
	Revoking   bool      // the lock is revoked, and its holder has not released it yet
	Revoked    *Record   // the last revocation
	Permits    []Permit  // in use. If there are several, Holder and Since are not set
	Lines      []Line    // of tasks, the one with the oldest head first
	Goroutines int       // how many wait
	First      int64     // the first ticket of all who wait, in µs; 0 for none
	Waiters    []Waiter  // as LookAt asks, in their order
	Position   int       // of LookAt.Waiter among all, 1 for the first; 0 if it does not wait
	Next       time.Time // from when on LookAt.Rates allow another start; zero for now
	Rated      bool      // some rates hold for the lock, maybe others than LookAt.Rates
}

// Waiting returns how many wait for the lock.
func (l *Looked) Waiting() int {
	n := l.Goroutines
	for _, line := range l.Lines {
		n += line.Waiting
	}
	return n
}

// A Line has the tasks of a queue that wait for a lock.
type Line struct {
	Queue   string
	Waiting int
	First   int64 // the ticket of its head
}

// A Record says how an operator has revoked a lease last.
type Record struct {
	At                 time.Time
	By, Reason, Holder string
}

// A Waiter waits for a lock: a task of Queue, whose id is Name; or a goroutine, with Queue "".
type Waiter struct {
	Queue, Name string
	Ticket      int64
}

// A Permit of a lock with a rule is held, or reserved for a waiter.
type Permit struct {
	Number   int
	Reserved bool
	Name     string // of the holder, or of the waiter
	Fence    int64  // of the holder; 0 for a reservation
	Left     time.Duration
	Since    time.Time // of the grant or the reservation
	Revoking bool      // the lease was revoked, and its holder has not released it yet
}

// Permits lists the permits of the lock of key that are in use.
func Permits(ctx context.Context, rdb redis.Scripter, key string) ([]Permit, error) {
	keys, argv := (&LookAt{Key: key}).args()
	looked, err := lookedOf(redisreply.NewReader(lookScript.Run(ctx, rdb, keys, argv...).Result()))
	if err != nil {
		return nil, fmt.Errorf("lockredis: look at %s: %w", key, err)
	}
	return looked.Permits, nil
}

// Look looks at locks in one round trip, or one for each node of a Cluster. It changes nothing.
func Look(ctx context.Context, rdb redis.UniversalClient, locks []LookAt) ([]Looked, error) {
	calls := RunAll(ctx, rdb, lookScript, len(locks), func(i int) (keys []string, argv []any) { return locks[i].args() })
	looked := make([]Looked, len(locks))
	for i, call := range calls {
		var err error
		if looked[i], err = lookedOf(redisreply.NewReader(call.Result())); err != nil {
			return nil, fmt.Errorf("lockredis: look at %s: %w", locks[i].Key, err)
		}
	}
	return looked, nil
}

func (l *LookAt) args() (keys []string, argv []any) {
	rule := ""
	if len(l.Rates) > 0 {
		rule = (&store.Rule{Rates: l.Rates}).String()
	}
	return []string{l.Key}, []any{l.From, l.Count, l.Queue, l.Waiter, rule}
}

func lookedOf(r *redisreply.Reader) (Looked, error) {
	l := Looked{Now: time.UnixMicro(r.Number()), State: LookState(r.Text()), Holder: r.Text(), Since: usTime(r.Number())}
	left := msOf(r)
	l.Left, l.Endless = max(0, left), left == -time.Millisecond
	l.Fence, l.Revoking = r.Number(), r.Number() == 1
	revoked, permits, lines := r.List(), r.List(), r.List()
	if revoked.More() {
		l.Revoked = &Record{At: usTime(revoked.Number()), By: revoked.Text(), Reason: revoked.Text(), Holder: revoked.Text()}
	}
	for permits.More() {
		l.Permits = append(l.Permits, Permit{
			Number: int(permits.Number()), Reserved: permits.Text() == string(LookReserved), Name: permits.Text(), Fence: permits.Number(),
			Left: msOf(permits), Revoking: permits.Number() == 1, Since: usTime(permits.Number()),
		})
	}
	for lines.More() {
		l.Lines = append(l.Lines, Line{Queue: lines.Text(), Waiting: int(lines.Number()), First: lines.Number()})
	}
	l.Goroutines, l.First = int(r.Number()), r.Number()
	waiters := r.List()
	for waiters.More() {
		l.Waiters = append(l.Waiters, Waiter{Queue: waiters.Text(), Name: waiters.Text(), Ticket: waiters.Number()})
	}
	l.Position, l.Next, l.Rated = int(r.Number()), usTime(r.Number()), r.Number() == 1
	if l.State == lookLimited {
		l.State, l.Holder, l.Since = LookFree, "", time.Time{}
		for _, p := range l.Permits {
			if l.State = LookHeld; p.Reserved && len(l.Permits) == 1 {
				l.State = LookReserved
			}
		}
		if len(l.Permits) == 1 {
			l = l.Of(l.Permits[0])
		}
	}
	return l, r.Err()
}

// Of returns l as the lock of the one who has a permit.
func (l Looked) Of(p Permit) Looked {
	l.State, l.Holder, l.Since, l.Left, l.Endless, l.Revoking = LookHeld, p.Name, p.Since, p.Left, false, p.Revoking
	if p.Reserved {
		l.State = LookReserved
	}
	if p.Fence > 0 {
		l.Fence = p.Fence
	}
	return l
}
