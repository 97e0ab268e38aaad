package taskredis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/store"
)

// This file is for those who look at tasks from outside. Nothing in it changes anything in Redis.

var (
	lookTaskScript   = script("look_task")
	lookActiveScript = script("look_active")
	lookSizesScript  = script("look_sizes")
)

// QueueNames returns the names of all queues, sorted.
func QueueNames(ctx context.Context, rdb redis.Cmdable) ([]string, error) {
	names, err := rdb.SMembers(ctx, queuesKey).Result()
	if err != nil {
		return nil, fmt.Errorf("taskredis: list queues: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// PausedQueues returns those of queues that are paused.
func PausedQueues(ctx context.Context, rdb redis.UniversalClient, queues []string) (map[string]bool, error) {
	found, err := Each(ctx, rdb, queues, func(pipe redis.Pipeliner, queue string) *redis.IntCmd { return pipe.Exists(ctx, PausedKey(queue)) })
	if err != nil {
		return nil, fmt.Errorf("taskredis: look for paused queues: %w", err)
	}
	paused := make(map[string]bool)
	for i, queue := range queues {
		if found[i] == 1 {
			paused[queue] = true
		}
	}
	return paused, nil
}

// Each sends a command for each of all, in one round trip, or one for each node of a Cluster, and returns what they say. A missing
// key is no error, and hides none behind it: go-redis returns the first of all.
func Each[E, T any, C interface{ Val() T }](ctx context.Context, rdb redis.UniversalClient, all []E, ask func(redis.Pipeliner, E) C) ([]T, error) {
	pipe := rdb.Pipeline()
	asked := make([]C, len(all))
	for i, one := range all {
		asked[i] = ask(pipe, one)
	}
	cmds, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	said := make([]T, len(all))
	for i, cmd := range asked {
		said[i] = cmd.Val()
	}
	return said, nil
}

// LookDepth is how many pending tasks [LookTask] searches.
const LookDepth = 1000

// A TaskLook is a task at a moment.
type TaskLook struct {
	Now      time.Time // by the clock of the task's Redis
	Queue    string
	ID       string
	State    string    // asynq's
	Message  *Message  // without the sentence for people; empty if it cannot be read
	Sentence string    // for people: why a task waits, or its last error
	Rank     int       // among the pending tasks, 1 for the next; 0 beyond [LookDepth]
	Lease    time.Time // when its lease ends; zero for none
	At       time.Time // the time of the set that the task is in: when it comes, failed or is deleted
	Paused   bool      // the queue is
	Waits    bool      // it is in the line of Lock
	Ticket   int64     // its place in µs, 0 for none
	Lock     string    // the key of the lock that it waits for, or by which its attempt holds one
	First    string    // of an active task: the attempt under whose lock its own runs, see [Taken.First]; "" for none
	Parks    int       // how often it was parked
	Crashes  int
	Losses   int
	Came     time.Time // into pending
	Holds    bool      // its line, see hold.lua
	Before   int       // if it waits, how many resources of its queue are looked at before its own
	New      int       // how many tasks are pending then, which take turns with these resources
	Guarded  bool      // see [crashes]
	Last     bool      // likewise
}

// crashes says by the fields of a task what a crash of its attempt comes to, as recover.lua and upkeep_leases.lua decide that. Only
// that of a guarded attempt may use no retry; but not if it is the last one: the task has no retries, and its handler has begun.
// A server whose Recovery has NoRetriesToo does not write down that it has.
func crashes(attempt, lock, resource, began string) (guarded, last bool) {
	return attempt != "" && (lock != "" || resource != ""), began != "" && began == attempt
}

// Orphaned reports whether the lease of an active task has ended: its server is dead or cut off.
func (t *TaskLook) Orphaned() bool { return t.State == "active" && !t.Lease.After(t.Now) }

// LookTask looks for the tasks of an id, in one round trip, or one for each node of a Cluster. It returns one for each of the
// queues that has such a task.
func LookTask(ctx context.Context, rdb redis.UniversalClient, queues []string, id string) ([]TaskLook, error) {
	var found []TaskLook
	for i, call := range lockredis.RunAll(ctx, rdb, lookTaskScript, len(queues), func(i int) ([]string, []any) {
		return []string{TaskKey(queues[i], id)}, []any{queues[i], id, LookDepth}
	}) {
		row, err := call.Slice()
		if err != nil {
			return nil, fmt.Errorf("taskredis: look at task %s: %w", id, err)
		}
		if text := func(at int) string { return redisreply.Text(row, at) }; text(1) != "" {
			n := func(at int) int { return int(redisreply.Int(row, at)) }
			t := TaskLook{
				Now: time.UnixMicro(redisreply.Int(row, 0)), Queue: queues[i], ID: id, State: text(1), Rank: n(3),
				Lease: unixSeconds(text(4)), At: unixSeconds(text(5)), Paused: n(6) == 1,
				Ticket: redisreply.Int(row, 7), Lock: text(8), Parks: n(10), Crashes: n(11), Losses: n(12), Came: time.Unix(0, redisreply.Int(row, 14)),
				First: firstOf(text(16)), Before: n(19), New: n(20),
			}
			t.Guarded, t.Last = crashes(text(16), text(8), text(17), text(18))
			t.Waits = t.State == "retry" && t.Lock != "" && t.Ticket > 0 && text(9) != "" && unixSeconds(text(9)).Equal(t.At)
			t.Holds = text(15) != "" && (t.Waits || t.State == "pending" || t.State == "archived" && text(15) == "stop")
			t.Message, t.Sentence = messageOf(text(2), text(13))
			found = append(found, t)
		}
	}
	return found, nil
}

// messageOf decodes a task, and returns it without the sentence that was appended for people, and that sentence. A task that
// cannot be read is empty.
func messageOf(encoded, appended string) (*Message, string) {
	shown, err := DecodeMessage([]byte(encoded))
	if err != nil {
		return &Message{}, ""
	}
	own, err := DecodeMessage([]byte(strings.TrimSuffix(encoded, appended)))
	if err != nil {
		own = shown
	}
	return own, shown.ErrorMsg
}

// Sizes are how many tasks a queue has.
type Sizes struct {
	Pending, Active, Scheduled, Retry, Archived, Completed int
	Paused                                                 bool
	Aggregating                                            int
	Lines                                                  int // locks that tasks wait for
	Waiting                                                int // tasks that wait in lines, which are part of Retry
	Held, Stopped                                          int // lines that wait for a task which has failed; those of them that have stopped
	Estimated                                              bool
}

// mostLines is of how many lines of a queue [SizesOf] counts the tasks.
const mostLines = 500

// SizesOf counts the tasks of queues, in one round trip, or one for each node of a Cluster. Those that wait are estimated
// from 500 lines if a queue has more, and where tasks need several locks, see look_sizes.lua.
func SizesOf(ctx context.Context, rdb redis.UniversalClient, queues []string) ([]Sizes, error) {
	all := make([]Sizes, len(queues))
	for i, call := range lockredis.RunAll(ctx, rdb, lookSizesScript, len(queues), func(i int) ([]string, []any) {
		return []string{PendingKey(queues[i])}, []any{queues[i], mostLines}
	}) {
		row, err := call.Slice()
		if err != nil {
			return nil, fmt.Errorf("taskredis: count tasks: %w", err)
		}
		n := func(at int) int { return int(redisreply.Int(row, at)) }
		s := Sizes{
			Pending: n(0), Active: n(1), Scheduled: n(2), Retry: n(3), Archived: n(4), Completed: n(5), Paused: n(6) == 1, Aggregating: n(7),
			Lines: n(8), Waiting: n(10), Estimated: n(9) < n(8) || n(13) == 1, Held: n(11), Stopped: n(12),
		}
		if n(9) < n(8) {
			s.Waiting = int(math.Round(float64(s.Waiting) * float64(n(8)) / float64(n(9))))
		}
		s.Waiting = min(s.Waiting, s.Retry)
		all[i] = s
	}
	return all, nil
}

// A Ready is an entry of a ready set: a lock that tasks of a queue wait for, and when somebody should look at it.
type Ready struct {
	Queue, Lock string
	Due         int64 // in µs
}

// AllReady lists entries of the ready sets of queues, at most so many, those of each queue that are due first. All queues have the
// same share, of which the smaller ones leave to others what they do not need. more is how many entries it has left out.
func AllReady(ctx context.Context, rdb redis.UniversalClient, queues []string, most int) (entries []Ready, more int, _ error) {
	sizes, err := Each(ctx, rdb, queues, func(pipe redis.Pipeliner, queue string) *redis.IntCmd { return pipe.ZCard(ctx, ReadyKey(queue)) })
	if err != nil {
		return nil, 0, fmt.Errorf("taskredis: count locks that tasks wait for: %w", err)
	}
	type share struct {
		queue string
		size  int
	}
	var shares []share
	for i, queue := range queues {
		shares = append(shares, share{queue, int(sizes[i])})
	}
	slices.SortFunc(shares, func(a, b share) int { return cmp.Compare(a.size, b.size) })
	for i := range shares {
		size := min(shares[i].size, most/(len(shares)-i))
		most -= size
		more += shares[i].size - size
		shares[i].size = size
	}
	shares = slices.DeleteFunc(shares, func(s share) bool { return s.size == 0 })
	lists, err := Each(ctx, rdb, shares, func(pipe redis.Pipeliner, s share) *redis.ZSliceCmd {
		return pipe.ZRangeWithScores(ctx, ReadyKey(s.queue), 0, int64(s.size-1))
	})
	if err != nil {
		return nil, 0, fmt.Errorf("taskredis: list locks that tasks wait for: %w", err)
	}
	for i, list := range lists {
		for _, z := range list {
			lock, _ := z.Member.(string)
			entries = append(entries, Ready{shares[i].queue, lock, int64(z.Score)})
		}
	}
	return entries, more, nil
}

// ReadyAt returns when somebody should look at each of these entries, in µs; 0 for one that is not there. It takes one round
// trip, or one for each node of a Cluster.
func ReadyAt(ctx context.Context, rdb redis.UniversalClient, entries []Ready) error {
	scores, err := Each(ctx, rdb, entries, func(pipe redis.Pipeliner, e Ready) *redis.FloatCmd {
		return pipe.ZScore(ctx, ReadyKey(e.Queue), e.Lock)
	})
	if err != nil {
		return fmt.Errorf("taskredis: look for locks that tasks wait for: %w", err)
	}
	for i, score := range scores {
		entries[i].Due = int64(score)
	}
	return nil
}

// FreedAt returns when the lock of each of these entries was freed last while tasks waited for it, in µs of Redis' clock; 0 if that
// is not known. It takes one round trip, or one for each node of a Cluster.
func FreedAt(ctx context.Context, rdb redis.UniversalClient, entries []Ready) ([]int64, error) {
	marks, err := Each(ctx, rdb, entries, func(pipe redis.Pipeliner, e Ready) *redis.StringCmd {
		return pipe.Get(ctx, store.Beside(e.Lock, "freed"))
	})
	if err != nil {
		return nil, fmt.Errorf("taskredis: look when locks were freed: %w", err)
	}
	freed := make([]int64, len(entries))
	for i, mark := range marks {
		digits, _, _ := strings.Cut(mark, " ")
		freed[i], _ = strconv.ParseInt(digits, 10, 64)
	}
	return freed, nil
}

// Attended reports whether one of the servers that have these queues looks after them; see [Upkeep].
func Attended(ctx context.Context, rdb redis.UniversalClient, queues []string) (bool, error) {
	keys := []string{(&Upkeep{Queues: queues}).Key()}
	if lockredis.IsCluster(rdb) {
		keys = keysOf(queues, func(queue string) string { return (&Upkeep{Scope: queue}).Key() })
	}
	found, err := Each(ctx, rdb, keys, func(pipe redis.Pipeliner, key string) *redis.IntCmd { return pipe.Exists(ctx, key) })
	if err != nil {
		return false, fmt.Errorf("taskredis: look who looks after queues: %w", err)
	}
	return !slices.Contains(found, 0), nil
}

// unixSeconds reads a time in Unix seconds, maybe with a fraction; zero for none.
func unixSeconds(text string) time.Time {
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || s <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(math.Round(s * 1000)))
}
