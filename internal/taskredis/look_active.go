package taskredis

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/redisreply"
)

// An Active task is one that a server has.
type Active struct {
	Queue, ID string
	Message   *Message // only its id and its kind if the task has a lock; empty if it cannot be read
	Lock      string   // the key by which its attempt holds a lock; "" for none
	Attempt   string   // "" if no server of ours has begun it
	First     string   // as in [TaskLook]
	Crashes   int
	Guarded   bool // as in [TaskLook], and Last
	Last      bool
	Lease     time.Time // when its lease ends; zero for none
	Orphaned  bool      // that has ended
}

// firstOf returns the attempt under whose lock another one runs, as holder_of of common.lua does; "" if it runs under its own.
func firstOf(attempt string) string {
	name, first, _ := strings.Cut(attempt, "\n")
	if strings.Contains(strings.TrimPrefix(name, "siding:"), ":") {
		return ""
	}
	return first
}

// activePage is how many active tasks are listed in one call.
const activePage = 100

// AllActive lists the active tasks of queues. A task that becomes active meanwhile may be missing.
func AllActive(ctx context.Context, rdb redis.UniversalClient, queues []string) ([]Active, error) {
	var all []Active
	seen := make(map[[2]string]bool)
	from := make(map[string]int)
	for len(queues) > 0 {
		var more []string
		for i, call := range lockredis.RunAll(ctx, rdb, lookActiveScript, len(queues), func(i int) ([]string, []any) {
			return []string{ActiveKey(queues[i])}, []any{queues[i], from[queues[i]], activePage}
		}) {
			row, err := call.Slice()
			if err != nil {
				return nil, fmt.Errorf("taskredis: list active tasks: %w", err)
			}
			now := time.UnixMicro(redisreply.Int(row, 0))
			for at := 2; at+8 < len(row); at += 9 {
				text := func(n int) string { return redisreply.Text(row, at+n) }
				a := Active{
					Queue: queues[i], ID: text(0), Lock: text(2), Crashes: int(redisreply.Int(row, at+4)), Attempt: text(5), Lease: unixSeconds(text(8)),
					Message: &Message{ID: text(0), Type: text(1)},
				}
				if text(1) == "" || text(2) == "" {
					a.Message, _ = messageOf(text(7), "")
				}
				a.First = firstOf(a.Attempt)
				a.Guarded, a.Last = crashes(a.Attempt, a.Lock, text(3), text(6))
				a.Orphaned = !a.Lease.After(now)
				if name := [2]string{a.Queue, a.ID}; !seen[name] {
					seen[name], all = true, append(all, a)
				}
			}
			if redisreply.Int(row, 1) == 1 {
				from[queues[i]] += len(row) / 9
				more = append(more, queues[i])
			}
		}
		queues = more
	}
	return all, nil
}

// A Worker is a server that says it runs a task, and since when.
type Worker struct {
	*ServerInfo

	Since time.Time
}

// WorkerOf returns which of the servers says that it runs a task. A server says so every 5 s. It returns false if none does.
func WorkerOf(ctx context.Context, rdb redis.UniversalClient, servers []*ServerInfo, queue, id string) (Worker, bool, error) {
	entries, err := Each(ctx, rdb, servers, func(pipe redis.Pipeliner, s *ServerInfo) *redis.StringCmd {
		return pipe.HGet(ctx, workersKey+":"+s.name(), id)
	})
	if err != nil {
		return Worker{}, false, fmt.Errorf("taskredis: list workers: %w", err)
	}
	var found Worker
	for i, entry := range entries {
		if since, of := workerEntry([]byte(entry)); of == queue && since.After(found.Since) {
			found = Worker{servers[i], since}
		}
	}
	return found, found.ServerInfo != nil, nil
}

// workerEntry returns since when a worker runs a task, and the task's queue.
func workerEntry(entry []byte) (since time.Time, queue string) {
	var started timestamp
	_, _ = decode(entry, []field{{7, &queue}, {8, &started}}) // see WorkerInfo; what cannot be read is no entry
	return time.Unix(started.seconds, int64(started.nanos)), queue
}
