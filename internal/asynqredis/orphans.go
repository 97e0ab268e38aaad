package asynqredis

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisreply"
)

var (
	orphansScript = OwnScript(lua("orphans"))
	expiredScript = NewScript(lua("orphans")) // the same, sent through a hook
	recoverScript = OwnScript(lua("notify", "encoded", "recover"))
	leaseScript   = OwnScript(lua("lease"))
)

// unrenewed is how many seconds an orphan's lease lasts at most. asynq renews the leases of running
// tasks every 5 s, each time for 30 s. So the leases of a live worker last for 25 to 30 s more. A lease
// of 18 s has missed two renewals, with 2 s for slow calls and for clocks that differ.
const unrenewed = 18

// LeaseFor is how long asynq's leases last.
const LeaseFor = 30 * time.Second

// Lease gives a lease to the active tasks of a queue that have none, and returns how many it found.
// Redis may have lost writes. If no worker renews the lease, the task becomes an orphan.
func Lease(ctx context.Context, rdb redis.Scripter, queue string) (int, error) {
	n, err := leaseScript.Run(ctx, rdb, []string{ActiveKey(queue), LeaseKey(queue)}, int(LeaseFor.Seconds())).Int()
	return n, failed(err, "look for tasks without a lease of", queue)
}

// OrphanBatch is how many orphans are listed in one call.
const OrphanBatch = 100

// An Orphan is a task that a worker took and whose lease nobody renews. The worker has died, is paused
// or cut off, or never got Redis' answer.
type Orphan struct {
	Queue, ID string
	Type      string
	Payload   []byte
	Headers   map[string]string
	Retries   int  // how often it may be retried in all
	Crashes   int  // how often [Recover] has requeued it
	Started   bool // [Attempt.MarkStarted] has marked it

	Encoded string // as asynq reads it

	attempt string
}

// Known reports whether [Recover] can requeue t: a hook has dequeued t, and its encoding can be read.
func (t Orphan) Known() bool { return t.attempt != "" && t.Type != "" }

// Process names the process that has taken t, alike for all of its tasks; "" if t is of a server without
// a hook. The name of an attempt is that of its process, a hyphen, and a number.
func (t Orphan) Process() string {
	return t.attempt[:max(0, strings.LastIndexByte(t.attempt, '-'))]
}

// Orphans returns orphans of a queue, those first whose leases end first. The first skip of them
// are left out, and at most [OrphanBatch] are returned.
func Orphans(ctx context.Context, rdb redis.Scripter, queue string, skip int) ([]Orphan, error) {
	rows, err := orphansScript.Run(ctx, rdb, []string{LeaseKey(queue)}, TaskKeyPrefix(queue), unrenewed, skip, OrphanBatch).Slice()
	return orphansOf(queue, rows), failed(err, "list orphans of", queue)
}

// asynqWaits is how long after the end of its lease asynq takes a task for lost.
const asynqWaits = 30 // seconds

// Expired returns the tasks of a queue that asynq takes for lost. Expired sends the call past the
// hook of the connection, by next.
func Expired(ctx context.Context, next redis.ProcessHook, queue string) ([]Orphan, error) {
	const all = -1
	got, err := expiredScript.Run(ctx, next, []any{LeaseKey(queue)}, TaskKeyPrefix(queue), -asynqWaits, 0, all)
	rows, _ := got.([]any)
	return orphansOf(queue, rows), err
}

func orphansOf(queue string, rows []any) []Orphan {
	found := make([]Orphan, len(rows))
	for i := range rows {
		row := redisreply.List(rows, i)
		t := orphanOf(queue, redisreply.Text(row, 0), redisreply.Text(row, 1), redisreply.Text(row, 2))
		t.Crashes = int(redisreply.Int(row, 3))
		t.Started = t.attempt != "" && t.attempt == redisreply.Text(row, 4)
		found[i] = t
	}
	return found
}

func orphanOf(queue, id, attempt, encoded string) Orphan {
	t := Orphan{Queue: queue, ID: id, attempt: attempt, Encoded: encoded}
	if m, err := ParseMessage(encoded); err == nil {
		payload, _ := field([]byte(encoded), fieldPayload)
		t.Type, t.Payload, t.Retries, t.Headers = m.Kind, []byte(payload), m.Retries, m.Headers
	}
	return t
}

// Recover requeues t at the tail of pending. Recover counts one more crash and nothing else. The
// last error of t becomes reason, followed by its own last failure. Recover returns false if t is
// not an orphan, if another server has requeued t, or if t is not [Orphan.Known].
func Recover(ctx context.Context, rdb redis.Scripter, t Orphan, reason string) (bool, error) {
	if !t.Known() {
		return false, nil
	}
	moved, err := recoverScript.Run(ctx, rdb,
		[]string{TaskKey(t.Queue, t.ID), ActiveKey(t.Queue), LeaseKey(t.Queue), PendingKey(t.Queue), NotifyKey(t.Queue)},
		t.ID, t.attempt, unrenewed, reason, t.Crashes+1).Bool()
	return moved, failed(err, "recover", t.ID)
}
