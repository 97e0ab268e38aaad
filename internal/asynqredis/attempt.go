package asynqredis

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisreply"
)

var (
	startedScript = OwnScript(lua("started"))
	lossScript    = OwnScript(lua("loss"))
	againScript   = OwnScript(lua("again"))
	lateScript    = OwnScript(lua("late"))
	parkScript    = NewScript(lua("notify", "encoded", "parking", "park"))
	requeueScript = OwnScript(lua("notify", "requeue"))
)

// UniqueMargin is how long the uniqueness of a parked task lasts after its fallback time, at least. The
// task may spend that time in pending.
const UniqueMargin = time.Minute

// An Attempt is one run of a task, as Redis has it.
type Attempt struct {
	Queue string
	ID    string
	Came  int64  // the ticket: when the task first came to its lock, in µs by Redis' clock; or 0
	Name  string // written into the task's hash by the dequeue; "" if the dequeue was not changed
}

// Ticket is the attempt's ticket as scripts have it, "" for none.
func (a Attempt) Ticket() string { return ticketText(a.Came) }

func ticketText(ticket int64) string {
	if ticket == 0 {
		return ""
	}
	return strconv.FormatInt(ticket, 10)
}

// MarkStarted marks in Redis that a's handler is about to start. The result is false if a is not
// the task's latest attempt. After an error the mark may be there or not. Then the handler must not
// start, and the caller calls [Attempt.UnmarkStarted] until that succeeds.
func (a Attempt) MarkStarted(ctx context.Context, rdb redis.Scripter) (latest bool, err error) {
	return a.mark(ctx, rdb, 1)
}

// UnmarkStarted removes the mark.
func (a Attempt) UnmarkStarted(ctx context.Context, rdb redis.Scripter) error {
	_, err := a.mark(ctx, rdb, 0)
	return err
}

func (a Attempt) mark(ctx context.Context, rdb redis.Scripter, starts int) (latest bool, err error) {
	latest, err = startedScript.Run(ctx, rdb, []string{TaskKey(a.Queue, a.ID)}, a.Name, starts).Bool()
	return latest, failed(err, "mark the start of", a.ID)
}

// CountLoss counts that a has lost its lock, and returns how often attempts of its task have lost
// their locks. The result is 0 if a is not the task's latest attempt.
func (a Attempt) CountLoss(ctx context.Context, rdb redis.Scripter) (times int, err error) {
	times, err = lossScript.Run(ctx, rdb, []string{TaskKey(a.Queue, a.ID)}, a.Name).Int()
	return times, failed(err, "count a loss of", a.ID)
}

// How a task comes to an attempt, see [Attempt.CameAgain].
type How string

// A task may be known to come again for no failure of its own; it may come as a new one or by a requeue;
// or it may come from its wait queue.
const (
	HowAgain   How = "1"
	HowUnknown How = "0"
	HowWaited  How = ""
)

// CameAgain reports whether a's task came again, now or earlier, for no failure of its own: after a crash
// or a loss, after a shutdown, or as Redis did not answer. Its handler may have begun then.
func (a Attempt) CameAgain(ctx context.Context, rdb redis.Scripter, how How) (bool, error) {
	again, err := againScript.Run(ctx, rdb, []string{TaskKey(a.Queue, a.ID)}, a.Name, string(how)).Bool()
	return again, failed(err, "read how often a worker had", a.ID)
}

// MarkLate marks that a's task, which has used so many retries, has waited for too long.
func (a Attempt) MarkLate(ctx context.Context, rdb redis.Scripter, retried int) error {
	err := lateScript.Run(ctx, rdb, []string{TaskKey(a.Queue, a.ID)}, a.Name, retried).Err()
	return failed(err, "mark", a.ID)
}

// MarkedLate returns how many retries a's task had used when it was marked by MarkLate, and a negative
// number if it was not.
func (a Attempt) MarkedLate(ctx context.Context, rdb redis.Scripter) (retried int, err error) {
	retried, err = lateScript.Run(ctx, rdb, []string{TaskKey(a.Queue, a.ID)}, a.Name, "").Int()
	return retried, failed(err, "read the mark of", a.ID)
}

// Requeue moves the task of an attempt whose handler has not started to the head of pending. The
// task keeps its ticket. Requeue returns false if the attempt was over.
func (a Attempt) Requeue(ctx context.Context, rdb redis.Scripter) (bool, error) {
	keys := []string{TaskKey(a.Queue, a.ID), ActiveKey(a.Queue), LeaseKey(a.Queue), PendingKey(a.Queue), NotifyKey(a.Queue)}
	moved, err := requeueScript.Run(ctx, rdb, keys, a.Name, a.ID, a.Ticket()).Int()
	return moved == 1, failed(err, "requeue", a.ID)
}

// A Park says how to park an attempt.
type Park struct {
	// At is the task's fallback time, in whole seconds.
	At time.Time
	// Ticket is the task's ticket in the wait queue of the lock of Key. Without a Key the task is
	// in no wait queue. Then the ticket, if not 0, is the one under which the task comes again.
	Ticket int64
	Key    string
	// Resource is what the task waits for. The task's header may name another resource.
	Resource string
	// Reason becomes the task's last error, followed by its own last failure.
	Reason string
	// Done, if set, is called with how often the task has been parked by now.
	Done func(parked int)
}

// Park parks the task of an attempt, and returns how often the task has been parked by now. If the
// attempt was over, Park changes nothing and returns a negative number.
func (p *Park) Park(ctx context.Context, next redis.ProcessHook, a Attempt) (parked int, err error) {
	keys := []any{
		TaskKey(a.Queue, a.ID), ActiveKey(a.Queue), LeaseKey(a.Queue), RetryKey(a.Queue), PendingKey(a.Queue), NotifyKey(a.Queue),
		ContendedKey(a.Queue),
	}
	got, err := parkScript.Run(ctx, next, keys,
		a.ID, p.Reason, p.At.Unix(), a.Name, ticketText(p.Ticket), UniqueMargin.Milliseconds(), p.Key, p.Resource)
	reply, _ := got.([]any)
	if len(reply) != 2 {
		return -1, err
	}
	return int(redisreply.Int(reply, 0)), err
}
