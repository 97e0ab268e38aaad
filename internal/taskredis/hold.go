package taskredis

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/redisreply"
)

var (
	lookHeldScript = script("look_held")
	goOnScript     = script("go_on")
)

// A HeldLine is the line of a lock in a queue that waits for its first task, as that has failed.
type HeldLine struct {
	Queue, Lock string
	Until       time.Time // when it goes on; zero if it has stopped, as the task is archived
	ID          string    // of the task
	Message     *Message  // empty if it cannot be read
	Waiting     int       // tasks behind it
}

// MostHeld is how many held lines of a queue are listed.
const MostHeld = 500

// HeldLines lists the held lines of queues, for each at most [MostHeld], those that have stopped first, in one round trip, or one for
// each node of a Cluster. lock is that of the only line to look at, "" for all. more is how many it has left out.
func HeldLines(ctx context.Context, rdb redis.UniversalClient, queues []string, lock string) (lines []HeldLine, more int, _ error) {
	for i, call := range lockredis.RunAll(ctx, rdb, lookHeldScript, len(queues), func(i int) ([]string, []any) {
		return []string{HeldKey(queues[i])}, []any{queues[i], lock, MostHeld}
	}) {
		row, err := call.Slice()
		if err != nil {
			return nil, 0, fmt.Errorf("taskredis: list held lines: %w", err)
		}
		if lock == "" {
			more += max(0, int(redisreply.Int(row, 0))-MostHeld)
		}
		for at := 1; at+4 < len(row); at += 5 {
			l := HeldLine{Queue: queues[i], Lock: redisreply.Text(row, at), ID: redisreply.Text(row, at+2), Waiting: int(redisreply.Int(row, at+4))}
			if us, err := strconv.ParseInt(redisreply.Text(row, at+1), 10, 64); err == nil {
				l.Until = time.UnixMicro(us)
			}
			l.Message, _ = messageOf(redisreply.Text(row, at+3), "")
			lines = append(lines, l)
		}
	}
	return lines, more, nil
}

// HeldUntil returns until when the line of each of these entries is held, in µs; [math.MaxInt64] if it has stopped, 0 if it is not
// held. It takes one round trip, or one for each node of a Cluster.
func HeldUntil(ctx context.Context, rdb redis.UniversalClient, entries []Ready) ([]int64, error) {
	scores, err := Each(ctx, rdb, entries, func(pipe redis.Pipeliner, e Ready) *redis.FloatCmd { return pipe.ZScore(ctx, HeldKey(e.Queue), e.Lock) })
	if err != nil {
		return nil, fmt.Errorf("taskredis: look for held lines: %w", err)
	}
	held := make([]int64, len(entries))
	for i, score := range scores {
		if held[i] = math.MaxInt64; !math.IsInf(score, 1) {
			held[i] = int64(score)
		}
	}
	return held, nil
}

// RetryHeld has the task that holds a line run now, before those behind it. It returns false, and changes nothing, if the task holds
// none, or is about to run.
func RetryHeld(ctx context.Context, rdb redis.Scripter, queue, id string) (bool, error) {
	done, err := goOnScript.Run(ctx, rdb, together(queue, TaskKey(queue, id)), queue, id, "retry", "", "", "").Bool()
	if err != nil {
		return false, fmt.Errorf("taskredis: retry a task: %w", err)
	}
	return done, nil
}

// SkipHeld gives up the task that holds a line: it is archived, and the line goes on. change writes down in the task why. It returns
// false as [RetryHeld] does.
func SkipHeld(ctx context.Context, rdb redis.UniversalClient, queue, id string, change func(*Message)) (bool, error) {
	before, err := rdb.HGet(ctx, TaskKey(queue, id), "msg").Bytes()
	if err != nil {
		return false, fmt.Errorf("taskredis: read a task: %w", err)
	}
	after, unique := before, ""
	if m, err := DecodeMessage(before); err == nil { // else it is kept as it is
		change(m)
		after, unique = m.Encode(), m.Frees(Archive)
	}
	done, err := goOnScript.Run(ctx, rdb, together(queue, TaskKey(queue, id)), queue, id, "skip", after, before, unique).Bool()
	if err != nil {
		return false, fmt.Errorf("taskredis: skip a task: %w", err)
	}
	return done, nil
}
