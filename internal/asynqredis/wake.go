package asynqredis

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
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
