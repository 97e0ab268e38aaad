package asynqredis

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisreply"
)

var wakeScript = OwnScript(lua("notify", "waits", "wake") +
	"return wake(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1], ARGV[2], ARGV[3])")

// A WakeResult says what a wake has done.
type WakeResult string

// The outcomes of [Wake].
const (
	Woken  WakeResult = "woken"  // the task is at the head of pending, or at least in pending
	Marked WakeResult = "marked" // the task is active; it goes to the head of pending when it parks
	Paused WakeResult = "paused" // its queue is paused
	Gone   WakeResult = "gone"   // the task does not wait under this ticket: deleted, archived, or in its own back-off
)

// Wake wakes the task that was parked under ticket.
func Wake(ctx context.Context, rdb redis.Scripter, queue, id string, ticket int64) (WakeResult, error) {
	got, err := wakeScript.Run(ctx, rdb,
		[]string{TaskKey(queue, id), RetryKey(queue), PendingKey(queue), PausedKey(queue), NotifyKey(queue)},
		id, strconv.FormatInt(ticket, 10), time.Now().UnixNano()).Text()
	return WakeResult(got), failed(err, "wake", id)
}

var replacedScript = OwnScript(lua("waits", "encoded", "replaced"))

// A WaiterState says what is known of a task that was found in a wait queue.
type WaiterState string

// The outcomes of [StateOfWaiter] and [DeleteWaiter].
const (
	WaiterRuns    WaiterState = "runs"    // it is to run, or runs
	WaiterDeleted WaiterState = "deleted" // it was parked, and is deleted
	WaiterGone    WaiterState = "gone"    // it is over, or was deleted before
)

// StateOfWaiter says whether a task that was found in the wait queue of a lock is still to run.
func StateOfWaiter(ctx context.Context, rdb redis.Scripter, queue, id, lock string) (WaiterState, error) {
	state, _, err := waiterState(ctx, rdb, queue, id, 0, lock, 0)
	return state, err
}

// DeleteWaiter deletes a task that is parked under ticket for a lock, and nothing else. It returns the
// priority of a task that it has deleted.
func DeleteWaiter(ctx context.Context, rdb redis.Scripter, queue, id string, ticket int64, lock string) (state WaiterState, priority int64, err error) {
	return waiterState(ctx, rdb, queue, id, ticket, lock, 1)
}

func waiterState(ctx context.Context, rdb redis.Scripter, queue, id string, ticket int64, lock string, deletes int) (WaiterState, int64, error) {
	got, err := replacedScript.Run(ctx, rdb, []string{TaskKey(queue, id), RetryKey(queue)},
		id, strconv.FormatInt(ticket, 10), lock, deletes).Slice()
	return WaiterState(redisreply.Text(got, 0)), redisreply.Int(got, 1), failed(err, "ask for", id)
}
