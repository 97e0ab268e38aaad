package asynqredis

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed contended.lua
	contendedSource string
	//go:embed scanned.lua
	scannedSource string
	//go:embed waiting.lua
	waitingSource string

	contendedScript = OwnScript(contendedSource)
	scannedScript   = OwnScript(scannedSource)
	waitingScript   = OwnScript(WaitsLua + ParkingLua + waitingSource)
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
	got, err := contendedScript.Run(ctx, rdb, keys, ContendedBatch, cursor).Slice()
	if err == nil && len(got) != 4 {
		err = fmt.Errorf("%w: %v", ErrEncoding, got)
	}
	if err != nil {
		return c, fmt.Errorf("asynqredis: list contended locks of %s: %w", queue, err)
	}
	paused, _ := got[0].(int64)
	all, _ := got[1].(int64)
	c.Paused, c.All = paused == 1, int(all)
	if next, _ := got[2].(string); next != "0" {
		c.Next = next
	}
	pairs, _ := got[3].([]any)
	for i := 0; i+1 < len(pairs); i += 2 {
		var l ContendedLock
		l.Key, _ = pairs[i].(string)
		l.at, _ = pairs[i+1].(string)
		c.Locks = append(c.Locks, l)
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
	if err := scannedScript.Run(ctx, rdb, []string{ContendedKey(queue)}, argv...).Err(); err != nil {
		return fmt.Errorf("asynqredis: contended locks of %s: %w", queue, err)
	}
	return nil
}

// A Waiting task is in the wait queue of a lock.
type Waiting struct {
	ID     string
	Lock   string // the key of the lock
	Ticket int64
}

// AllWaiting lists tasks of a queue that are in wait queues, from a cursor on, "0" at first, and
// returns where to go on, "" at the end. It reads [ContendedBatch] tasks or so.
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
	got, err := waitingScript.Run(ctx, rdb, []string{RetryKey(queue), ContendedKey(queue)}, argv...).Slice()
	if err == nil && len(got) != 2 {
		err = fmt.Errorf("%w: %v", ErrEncoding, got)
	}
	if err != nil {
		return nil, "", fmt.Errorf("asynqredis: list waiting tasks of %s: %w", queue, err)
	}
	fields, _ := got[1].([]any)
	for i := 0; i+2 < len(fields); i += 3 {
		var w Waiting
		w.ID, _ = fields[i].(string)
		w.Lock, _ = fields[i+1].(string)
		ticket, _ := fields[i+2].(string)
		if w.Ticket, err = strconv.ParseInt(ticket, 10, 64); err == nil {
			some = append(some, w)
		}
	}
	if next, _ = got[0].(string); next == "0" {
		next = ""
	}
	return some, next, nil
}
