package taskredis

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisreply"
)

// An Upkeep makes the calls by which one server looks after queues for all servers that have the same; see package
// engine. A call takes Redis about a millisecond. It may be made twice, and by two servers. None reads a message but
// that of a task which has crashed.
type Upkeep struct {
	Redis        redis.Cmdable
	Session      string        // unique among all servers
	Scope        string        // in a Cluster the queue; else ""
	Queues       []string      // all that are looked after
	TTL          time.Duration // of locks
	Crashes      int           // how many crashes of a guarded task use no retry
	NoRetriesToo bool          // also of one without retries
}

// ElectedFor is how long a server stays elected after [Upkeep.Look].
const ElectedFor = 3 * time.Second

// MostQueues is how many queues one call should look at.
const MostQueues = 64

var (
	lookScript   = script("upkeep_look")
	peekScript   = script("upkeep_peek")
	leasesScript = script("upkeep_leases")
	endScript    = script("upkeep_end")
	mendScript   = script("upkeep_mend")
)

// Key has the session of the server that is elected. It is the same for all servers with the same queues.
func (u *Upkeep) Key() string {
	if u.Scope != "" {
		return sidingKey(u.Scope, "upkeep")
	}
	names := slices.Sorted(slices.Values(u.Queues))
	sum := sha256.Sum256([]byte(strings.Join(names, "\n")))
	return "siding:upkeep:" + hex.EncodeToString(sum[:8])
}

// A Look says what to look at. Without queues it only asks who is elected.
type Look struct {
	Queues []string
	Clean  int  // how many completed tasks that have expired to delete of each queue at most
	Cut    bool // what is due later than it can be is due now, as Redis' clock may have stepped back
}

// A Looked is what a [Look] found.
type Looked struct {
	Elected    bool     // this server is; else the rest is empty
	Now        int64    // Redis' clock, in µs
	Next       int64    // when something is due next, in µs; -1 for never
	Unfinished []string // queues to look at again at once, as there may be more to do
	Found      []string // queues with something for a server; an idle one of each was woken
	Ended      []string // queues with leases that have ended
	Troubles   []string // for the log
}

// Look has this server elected, if no other one is, and looks at queues for it: it forwards the tasks whose time has
// come, and deletes completed tasks that have expired. A task that waits for a lock goes on waiting until its deadline.
func (u *Upkeep) Look(ctx context.Context, l Look) (Looked, error) { return u.look(ctx, l, ElectedFor) }

// Resign lets another server be elected at once.
func (u *Upkeep) Resign(ctx context.Context) error {
	_, err := u.look(ctx, Look{}, time.Millisecond)
	return err
}

func (u *Upkeep) look(ctx context.Context, l Look, electedFor time.Duration) (is Looked, _ error) {
	const most = 100 // tasks that are moved or deleted
	far := 0.0
	if l.Cut {
		far = u.TTL.Seconds() + 1
	}
	argv := texts([]any{u.Session, electedFor.Milliseconds(), far, l.Clean, most}, l.Queues)
	r := redisreply.NewReader(lookScript.Run(ctx, u.Redis, together(u.Scope, u.Key()), argv...).Result())
	if r.Number() == 1 {
		is = Looked{Elected: true, Now: r.Number(), Next: r.Number(), Unfinished: r.Texts(), Found: r.Texts(), Ended: r.Texts(), Troubles: r.Texts()}
	}
	return is, upkeepError("look", r.Err())
}

// A Peeked says whether a queue has pending tasks.
type Peeked string

// What [Upkeep.Peek] finds.
const (
	Empty  Peeked = "empty"  // it has none
	Paused Peeked = "paused" // it has some, and nobody may take them
	Woken  Peeked = "woken"  // it has some, and a server was woken if one is idle
	Busy   Peeked = "busy"   // it has some, and no server is idle
)

// Peek looks for pending tasks. If there are none that takes one command, and nothing is returned.
func (u *Upkeep) Peek(ctx context.Context, queues []string) (map[string]Peeked, error) {
	keys := keysOf(queues, PendingKey)
	n, err := u.Redis.Exists(ctx, keys...).Result()
	if n == 0 || err != nil {
		return nil, upkeepError("peek", err)
	}
	r, err := peekScript.Run(ctx, u.Redis, together(u.Scope, keys...), texts(nil, queues)...).StringSlice()
	peeked := make(map[string]Peeked)
	for i, text := range r {
		peeked[queues[i]] = Peeked(text)
	}
	return peeked, upkeepError("peek", err)
}

// A Crash is an attempt whose server has died, and that is to be ended.
type Crash struct {
	Queue, ID string

	state, attempt, lease string // as they were when it was found
}

// Leases are those of a queue that have ended.
type Leases struct {
	Now      int64 // Redis' clock, in µs
	Left     int   // how many were looked at, and stay as they are for now
	More     bool  // there are more behind these
	Found    bool  // a guarded task has crashed, which the next step puts back into its line; an idle server was woken
	Crashed  []Crash
	Troubles []string // for the log
}

// Leases finds out which tasks of a queue have crashed and are not put back by a step: those without a lock 30 s after
// their lease has ended, as in asynq, and those with one that have crashed too often, once their lock is gone. It passes
// the first leases that have ended, and looks at some hundred of the others.
func (u *Upkeep) Leases(ctx context.Context, queue string, pass int) (Leases, error) {
	r := redisreply.NewReader(leasesScript.Run(ctx, u.Redis, together(queue, LeaseKey(queue)), queue, pass, u.Crashes, flag(u.NoRetriesToo)).Result())
	l := Leases{Now: r.Number(), Left: int(r.Number()), More: r.Number() == 1, Found: r.Number() == 1}
	for rows := r.List(); rows.More(); {
		l.Crashed = append(l.Crashed, Crash{queue, rows.Text(), rows.Text(), rows.Text(), rows.Text()})
	}
	l.Troubles = r.Texts()
	return l, upkeepError("look at leases", r.Err())
}

// Message returns the encoded task; nil if it has none any more.
func (u *Upkeep) Message(ctx context.Context, c Crash) ([]byte, error) {
	encoded, err := u.Redis.HGet(ctx, TaskKey(c.Queue, c.ID), "msg").Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return encoded, upkeepError("read a task", err)
}

// End ends a crashed attempt as asynq's recoverer does, by an outcome of kind Retry or Archive. End returns false, and changes
// nothing, if the attempt was renewed or ended since it was found, or if the task is at work again.
func (u *Upkeep) End(ctx context.Context, c Crash, o *Outcome) (bool, error) {
	set := "retry"
	if o.Kind == Archive {
		set = "archived"
	}
	failure, now := flag(o.Counts || o.Kind == Archive), time.Now().UTC()
	ended, err := endScript.Run(ctx, u.Redis, together(c.Queue, TaskKey(c.Queue, c.ID)), c.Queue, c.ID, c.state, c.attempt, c.lease,
		set, o.Message, o.After.Microseconds(), failure, now.Format(time.DateOnly), now.Add(statsTTL).Unix(), flag(o.Hold), o.Unique).Bool()
	return ended, upkeepError("end a task", err)
}

// A MendCursor is how far [Upkeep.Mend] has come. The zero value is the start.
type MendCursor struct {
	seen   int // how many queues it has finished
	cursor string
	rounds int
}

// A Mended is what [Upkeep.Mend] has repaired.
type Mended struct {
	Done     bool     // all queues were gone through; the next call begins anew
	Waiting  int      // tasks that had lost their place in line, or whose lock nobody would have looked at
	Active   int      // tasks without a lease
	Troubles []string // for the log
}

// Mend goes on from a cursor, and repairs what it finds broken in the next fifty tasks or so.
func (u *Upkeep) Mend(ctx context.Context, at *MendCursor) (Mended, error) {
	queues := u.Queues[at.seen:min(at.seen+MostQueues, len(u.Queues))]
	argv := texts([]any{cmp.Or(at.cursor, "0"), at.rounds}, queues)
	r := redisreply.NewReader(mendScript.Run(ctx, u.Redis, together(u.Scope, keysOf(queues, RetryKey)...), argv...).Result())
	seen, cursor := at.seen+int(r.Number()), r.Text()
	m := Mended{Done: seen >= len(u.Queues), Waiting: int(r.Number()), Active: int(r.Number()), Troubles: r.Texts()}
	switch {
	case r.Err() != nil:
		return Mended{}, upkeepError("mend", r.Err())
	case m.Done:
		*at = MendCursor{rounds: at.rounds + 1}
	default:
		*at = MendCursor{seen, cursor, at.rounds}
	}
	return m, nil
}

func keysOf(queues []string, key func(string) string) []string {
	keys := make([]string, len(queues))
	for i, queue := range queues {
		keys[i] = key(queue)
	}
	return keys
}

func texts(argv []any, all []string) []any {
	for _, text := range all {
		argv = append(argv, text)
	}
	return argv
}

func upkeepError(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("taskredis: upkeep: %s: %w", what, err)
}
