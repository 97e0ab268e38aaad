package asynqredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/roundtrip"
)

var (
	taskScript   = OwnScript(lua("task"))
	activeScript = OwnScript(lua("active"))
	sizesScript  = OwnScript(lua("sizes"))
)

// LookDepth is how many pending tasks [LookTask] searches.
const LookDepth = 1000

// A TaskLook is a task at a moment.
type TaskLook struct {
	Now     time.Time // by the clock of the task's server
	Queue   string
	ID      string
	State   string // asynq's
	Message Message
	Payload []byte
	Rank    int       // among the pending tasks, 1 for the next; 0 beyond [LookDepth]
	Pending int       // how many are pending, if the task is
	Lease   time.Time // when asynq's lease ends
	At      time.Time // the time of the set that the task is in: when it comes, failed or is deleted
	Paused  bool      // the queue is
	Parked  bool      // the task is in the retry set because it was parked
	Ticket  int64     // in us, 0 for none
	Lock    string    // the key of the lock in whose wait queue the task is, or ""
	Parks   int       // how often it was parked
	Crashes int
	Losses  int
	Known   bool      // a hook has dequeued it
	Started bool      // as in [Orphan]
	Came    time.Time // into pending
}

// Orphaned reports whether the task is an orphan, as [Orphans] lists them.
func (t TaskLook) Orphaned() bool { return t.State == "active" && isOrphan(t.Lease, t.Now) }

func isOrphan(lease, now time.Time) bool { return lease.Unix() <= now.Unix()+unrenewed }

// OrphanAt is when a lease becomes that of an orphan.
func OrphanAt(lease time.Time) time.Time { return lease.Add(-unrenewed * time.Second) }

// ExpiredAt is when asynq takes the task of a lease for lost.
func ExpiredAt(lease time.Time) time.Time { return lease.Add(asynqWaits * time.Second) }

// LookTask looks for the tasks of an id, in one round trip, or one for each node of a Cluster. It
// returns one for each of the queues that has such a task. It changes nothing.
func LookTask(ctx context.Context, rdb redis.UniversalClient, queues []string, id string) ([]TaskLook, error) {
	replies, err := listsOf(roundtrip.Run(ctx, rdb, taskScript, len(queues), func(i int) ([]string, []any) {
		q := queues[i]
		return []string{
			TaskKey(q, id), PendingKey(q), LeaseKey(q), PausedKey(q), RetryKey(q), Prefix(q) + "scheduled", Prefix(q) + "archived", Prefix(q) + "completed",
		}, []any{id, LookDepth}
	}))
	if err != nil {
		return nil, failed(err, "look at task", id)
	}
	var found []TaskLook
	for i, row := range replies {
		if redisreply.Text(row, 1) == "" {
			continue
		}
		t := TaskLook{
			Now: time.UnixMicro(redisreply.Int(row, 0)), Queue: queues[i], ID: id, State: redisreply.Text(row, 1),
			Rank: int(redisreply.Int(row, 3)), Pending: int(redisreply.Int(row, 4)),
			Lease: unixTime(redisreply.Int(row, 5)), At: unixTime(redisreply.Int(row, 6)), Paused: redisreply.Int(row, 7) == 1,
			Ticket: redisreply.Int(row, 8), Lock: redisreply.Text(row, 9), Parks: int(redisreply.Int(row, 10)),
			Crashes: int(redisreply.Int(row, 11)), Losses: int(redisreply.Int(row, 12)),
			Known: redisreply.Text(row, 13) != "", Came: unixTime(redisreply.Int(row, 15) / int64(time.Second)),
		}
		t.Started = t.Known && redisreply.Text(row, 13) == redisreply.Text(row, 14)
		encoded := redisreply.Text(row, 2)
		if m, err := ParseMessage(encoded); err == nil {
			payload, _ := field([]byte(encoded), fieldPayload)
			t.Message, t.Payload = m, []byte(payload)
		}
		t.Parked = t.State == "retry" && t.Message.Waited
		found = append(found, t)
	}
	return found, nil
}

// An Active task is one that a worker has.
type Active struct {
	Orphan

	Lease    time.Time // when asynq's lease ends
	Orphaned bool      // no worker renews it
}

// activeBatch is how many active tasks are listed in one call.
const activeBatch = 100

// AllActive lists the active tasks of queues. It changes nothing. A task that becomes active meanwhile
// may be missing.
func AllActive(ctx context.Context, rdb redis.UniversalClient, queues []string) ([]Active, error) {
	var all []Active
	seen := make(map[[2]string]bool)
	queues = slices.Clone(queues)
	for from := 0; len(queues) > 0; from += activeBatch {
		replies, err := listsOf(roundtrip.Run(ctx, rdb, activeScript, len(queues), func(i int) ([]string, []any) {
			return []string{ActiveKey(queues[i]), LeaseKey(queues[i])}, []any{TaskKeyPrefix(queues[i]), from, activeBatch}
		}))
		if err != nil {
			return nil, fmt.Errorf("asynqredis: list active tasks: %w", err)
		}
		var more []string
		for i, rows := range replies {
			now := time.UnixMicro(redisreply.Int(rows, 0))
			for n := range rows[1:] {
				row := redisreply.List(rows, n+1)
				a := Active{Lease: unixTime(redisreply.Int(row, 5))}
				a.Orphan = orphanOf(queues[i], redisreply.Text(row, 0), redisreply.Text(row, 3), redisreply.Text(row, 1))
				a.Crashes, a.Started = int(redisreply.Int(row, 2)), a.attempt != "" && a.attempt == redisreply.Text(row, 4)
				a.Orphaned = isOrphan(a.Lease, now)
				if key := [2]string{a.Queue, a.ID}; !seen[key] {
					seen[key], all = true, append(all, a)
				}
			}
			if len(rows)-1 == activeBatch {
				more = append(more, queues[i])
			}
		}
		queues = more
	}
	return all, nil
}

// Sizes are how many tasks a queue has.
type Sizes struct {
	Queue                                                  string
	Pending, Active, Scheduled, Retry, Archived, Completed int
	Aggregating                                            int
	Contended                                              int // locks
	Paused                                                 bool
	Read, Parked                                           int // of the retry set: how many tasks were read, and how many of those are parked
}

// SizesOf counts the tasks of queues, in one round trip, or one for each node of a Cluster. Of each
// retry set it reads sample tasks at most. It changes nothing.
func SizesOf(ctx context.Context, rdb redis.UniversalClient, queues []string, sample int) ([]Sizes, error) {
	replies, err := listsOf(roundtrip.Run(ctx, rdb, sizesScript, len(queues), func(i int) ([]string, []any) {
		q, asynq := queues[i], Prefix(queues[i])
		return []string{
			PendingKey(q), ActiveKey(q), asynq + "scheduled", RetryKey(q), asynq + "archived", asynq + "completed", PausedKey(q), asynq + "groups", ContendedKey(q),
		}, []any{TaskKeyPrefix(q), asynq + "g:", sample}
	}))
	if err != nil {
		return nil, fmt.Errorf("asynqredis: count tasks: %w", err)
	}
	all := make([]Sizes, len(queues))
	for i, row := range replies {
		n := func(at int) int { return int(redisreply.Int(row, at)) }
		all[i] = Sizes{
			Queue: queues[i], Pending: n(0), Active: n(1), Scheduled: n(2), Retry: n(3), Archived: n(4), Completed: n(5), Paused: n(6) == 1,
			Aggregating: n(7), Contended: n(8), Read: n(9), Parked: n(10),
		}
	}
	return all, nil
}

// Queues returns the names of asynq's queues, in order.
func Queues(ctx context.Context, rdb redis.UniversalClient) ([]string, error) {
	names, err := rdb.SMembers(ctx, "asynq:queues").Result()
	if err != nil {
		return nil, fmt.Errorf("asynqredis: list queues: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// ContendedKeys returns the keys of at most so many locks that tasks of queues wait for, each once, and
// how many more there are. It changes nothing.
func ContendedKeys(ctx context.Context, rdb redis.UniversalClient, queues []string, most int) (keys []string, more int, _ error) {
	pipe := rdb.Pipeline()
	sizes, lists := make([]*redis.IntCmd, len(queues)), make([]*redis.StringSliceCmd, len(queues))
	for i, queue := range queues {
		sizes[i] = pipe.ZCard(ctx, ContendedKey(queue))
		lists[i] = pipe.ZRange(ctx, ContendedKey(queue), 0, int64(most-1))
	}
	if len(queues) > 0 {
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, 0, fmt.Errorf("asynqredis: list contended locks: %w", err)
		}
	}
	seen := make(map[string]bool)
	for i := range queues {
		listed := lists[i].Val()
		more += max(0, int(sizes[i].Val())-len(listed))
		for _, key := range listed {
			switch {
			case seen[key]:
			case len(keys) == most:
				more++
			default:
				seen[key], keys = true, append(keys, key)
			}
		}
	}
	return keys, more, nil
}

// A Worker is what a server says of a task that it runs.
type Worker struct {
	Server

	Since time.Time
}

// WorkerOf returns which of the servers says that it runs a task. A server says so every 5 s. It returns
// false if none does.
func WorkerOf(ctx context.Context, rdb redis.UniversalClient, servers []Server, queue, id string) (Worker, bool, error) {
	pipe := rdb.Pipeline()
	entries := make([]*redis.StringCmd, len(servers))
	for i, s := range servers {
		entries[i] = pipe.HGet(ctx, fmt.Sprintf("%s{%s:%d:%s}", workersKeys, s.Host, s.PID, s.ID), id)
	}
	if len(servers) > 0 {
		_, _ = pipe.Exec(ctx) // each entry has its own error
	}
	var found Worker
	for i, entry := range entries {
		encoded, err := entry.Bytes()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return Worker{}, false, fmt.Errorf("asynqredis: list workers: %w", err)
		}
		if since, of := workerEntry(encoded); of == queue && since.After(found.Since) {
			found = Worker{servers[i], since}
		}
	}
	return found, !found.Since.IsZero(), nil
}

// Field numbers of asynq's WorkerInfo.
const (
	fieldWorkerQueue   = 7
	fieldWorkerStarted = 8
)

// workerEntry returns since when a worker runs a task, and the task's queue.
func workerEntry(entry []byte) (since time.Time, queue string) {
	_ = fields(entry, func(num protowire.Number, typ protowire.Type, value []byte) {
		switch {
		case typ != protowire.BytesType:
		case num == fieldWorkerQueue:
			queue = textOf(value)
		case num == fieldWorkerStarted:
			var seconds, nanos uint64
			stamp, _ := protowire.ConsumeBytes(value)
			_ = fields(stamp, func(num protowire.Number, typ protowire.Type, value []byte) {
				n, _ := protowire.ConsumeVarint(value)
				switch {
				case typ != protowire.VarintType:
				case num == 1:
					seconds = n
				case num == 2:
					nanos = n
				}
			})
			since = time.Unix(int64(seconds), int64(nanos))
		}
	})
	return since, queue
}

// listsOf returns the answers of calls, each of which is an array.
func listsOf(calls []*redis.Cmd) ([][]any, error) {
	all := make([][]any, len(calls))
	for i, call := range calls {
		var err error
		if all[i], err = call.Slice(); err != nil {
			return nil, err
		}
		if len(all[i]) == 0 {
			return nil, fmt.Errorf("%w: an empty answer", ErrEncoding)
		}
	}
	return all, nil
}

// unixTime returns the time of so many seconds, zero for none.
func unixTime(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}
