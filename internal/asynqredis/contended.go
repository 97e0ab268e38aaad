package asynqredis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisreply"
)

var (
	contendedScript = OwnScript(lua("contended"))
	scannedScript   = OwnScript(lua("scanned"))
	waitingScript   = OwnScript(lua("waits", "parking", "waiting"))
)

// ContendedBatch is how many locks are listed in one call, at most or about.
const ContendedBatch = 200

// Contended are the locks that tasks of a queue wait for, or some of them.
type Contended struct {
	Paused bool   // the queue is
	All    int    // how many there are
	Next   string // where to go on, "" at the end
	Locks  []ContendedLock
}

// A ContendedLock is the key of a lock, and when its scan was due.
type ContendedLock struct {
	Key string
	at  string
}

// ListContended lists locks. Without a cursor it lists those whose scans are due, the most urgent first,
// at most [ContendedBatch]. Otherwise it lists all from a cursor on, "0" at first; a lock that is there
// all the while is listed at least once.
func ListContended(ctx context.Context, rdb redis.Scripter, queue, cursor string) (c Contended, err error) {
	keys := []string{ContendedKey(queue), PausedKey(queue)}
	got, err := listed(contendedScript.Run(ctx, rdb, keys, ContendedBatch, cursor), 4, "contended locks", queue)
	if err != nil {
		return c, err
	}
	c = Contended{Paused: redisreply.Int(got, 0) == 1, All: int(redisreply.Int(got, 1)), Next: redisreply.Text(got, 2)}
	if c.Next == "0" {
		c.Next = ""
	}
	pairs := redisreply.List(got, 3)
	for i := 0; i+1 < len(pairs); i += 2 {
		c.Locks = append(c.Locks, ContendedLock{redisreply.Text(pairs, i), redisreply.Text(pairs, i+1)})
	}
	return c, nil
}

// A Scan says when the sweeper scans a lock next.
type Scan struct {
	Lock ContendedLock
	In   time.Duration
	Over bool // nobody waits for it
}

// Scanned records when the sweeper scans locks of a queue next. A lock stays as it is if a task has
// come to wait for it since it was listed.
func Scanned(ctx context.Context, rdb redis.Scripter, queue string, scans []Scan) error {
	argv := make([]any, 0, 3*len(scans))
	for _, l := range scans {
		in := any("")
		if !l.Over {
			in = l.In.Microseconds()
		}
		argv = append(argv, l.Lock.Key, l.Lock.at, in)
	}
	return failed(scannedScript.Run(ctx, rdb, []string{ContendedKey(queue)}, argv...).Err(), "record the scans of", queue)
}

// A Waiting task is in the wait queue of a lock.
type Waiting struct {
	ID     string
	Lock   string // the key of the lock
	Ticket int64
}

// AllWaiting lists tasks of a queue that are in wait queues, from a cursor on, "0" at first. next
// is where to go on, "" at the end. A call reads some [ContendedBatch] tasks.
func AllWaiting(ctx context.Context, rdb redis.Scripter, queue, cursor string) (_ []Waiting, next string, _ error) {
	return listWaiting(ctx, rdb, queue, cursor, ContendedBatch)
}

// StillWaiting returns those of some tasks of a queue that are in wait queues, and lists their locks
// as contended.
func StillWaiting(ctx context.Context, rdb redis.Scripter, queue string, ids []string) ([]Waiting, error) {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	some, _, err := listWaiting(ctx, rdb, queue, "", args...)
	return some, err
}

func listWaiting(ctx context.Context, rdb redis.Scripter, queue, cursor string, args ...any) (some []Waiting, next string, err error) {
	argv := append([]any{TaskKeyPrefix(queue), cursor}, args...)
	got, err := listed(waitingScript.Run(ctx, rdb, []string{RetryKey(queue), ContendedKey(queue)}, argv...), 2, "waiting tasks", queue)
	if err != nil {
		return nil, "", err
	}
	fields := redisreply.List(got, 1)
	for i := 0; i+2 < len(fields); i += 3 {
		w := Waiting{ID: redisreply.Text(fields, i), Lock: redisreply.Text(fields, i+1), Ticket: redisreply.Int(fields, i+2)}
		if w.Ticket != 0 {
			some = append(some, w)
		}
	}
	if next = redisreply.Text(got, 0); next == "0" {
		next = ""
	}
	return some, next, nil
}

// listed returns the answer of a script that lists something of a queue, which is an array of n.
func listed(cmd *redis.Cmd, n int, what, queue string) ([]any, error) {
	got, err := cmd.Slice()
	if err == nil && len(got) != n {
		err = fmt.Errorf("%w: want %d values, have %d", ErrEncoding, n, len(got))
	}
	return got, failed(err, "list "+what+" of", queue)
}
