package taskredis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

var takeoverScript = script("takeover")

// oldKey is the list of locks that the tasks of a queue waited for in an earlier release. TakeOver deletes it.
func oldKey(queue string) string { return sidingKey(queue, "contended") }

// TakeOver puts the tasks of a queue into pending that waited for locks in the way of an earlier [Protocol], in the order in
// which they had come, and returns how many there were. No server of that protocol may be alive. It costs one call if there
// is nothing to take over. After an error it may be called again.
func TakeOver(ctx context.Context, rdb redis.UniversalClient, queue string) (moved int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("taskredis: take over the waiting tasks of %s: %w", queue, err)
		}
	}()
	if n, err := rdb.Exists(ctx, oldKey(queue)).Result(); err != nil || n == 0 {
		return 0, err
	}
	type waiting struct {
		id     string
		ticket int64
	}
	var all []waiting
	for cursor := uint64(0); ; {
		some, next, err := rdb.ZScan(ctx, RetryKey(queue), cursor, "", 500).Result()
		if err != nil {
			return 0, err
		}
		pipe := rdb.Pipeline()
		fields := make(map[string]*redis.SliceCmd, len(some)/2)
		for i := 0; i < len(some); i += 2 {
			fields[some[i]] = pipe.HMGet(ctx, TaskKey(queue, some[i]), "siding_ticket", "siding_until")
		}
		_, _ = pipe.Exec(ctx) // each has its own error; a task of a wrong type waits for nobody
		for id, field := range fields {
			values := field.Val()
			if len(values) != 2 || values[1] != nil {
				continue
			}
			text, _ := values[0].(string)
			if ticket, err := strconv.ParseInt(text, 10, 64); err == nil {
				all = append(all, waiting{id, ticket})
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	slices.SortFunc(all, func(a, b waiting) int { return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.id, b.id)) })
	all = slices.CompactFunc(all, func(a, b waiting) bool { return a.id == b.id }) // a scan may meet one twice
	for some := range slices.Chunk(all, 500) {
		argv := []any{queue}
		for _, w := range some {
			argv = append(argv, w.id)
		}
		n, err := takeoverScript.Run(ctx, rdb, together(queue, RetryKey(queue), PendingKey(queue)), argv...).Int()
		if err != nil {
			return moved, err
		}
		moved += n
	}
	return moved, rdb.Del(ctx, oldKey(queue)).Err()
}
