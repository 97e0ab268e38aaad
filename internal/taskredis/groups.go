package taskredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/redisreply"
)

// AggregationTimeout is how long a server may keep an [AggregationSet], as in asynq.
const AggregationTimeout = 2 * time.Minute

// readAtOnce bounds the tasks that one call to Redis reads.
const readAtOnce = 1000

var (
	groupTakeScript    = script("group_take")
	groupDeleteScript  = script("group_delete")
	groupReclaimScript = script("group_reclaim")
)

// Groups works on the groups of tasks in Redis, in asynq's layout. A group is a sorted set of the tasks that are to
// become one task, by when they came. Once the group is ready, a server takes its tasks: they move into an aggregation
// set, which is the server's for [AggregationTimeout]. The server makes and enqueues the one task, and then deletes
// the set with its tasks. If it dies before, another server puts the tasks back into their group.
//
// So no task of a group is lost. It may be in two aggregated tasks, if its server dies between the enqueueing and the
// deletion or is slower than that time, or if no answer to the enqueueing comes. asynq's servers may work on the same groups.
type Groups struct{ rdb redis.UniversalClient }

// NewGroups returns the groups in rdb, which it does not close.
func NewGroups(rdb redis.UniversalClient) Groups { return Groups{rdb: rdb} }

// A GroupRule says when a group is ready: if any of the three is so. asynq counts in whole seconds.
type GroupRule struct {
	Grace    time.Duration // no task has come for so long
	MaxDelay time.Duration // the oldest task has waited for so long; 0 for no such limit
	MaxSize  int           // so many tasks are there; no more are taken at once; 0 for no such limit
}

// An AggregationSet has the tasks that a server has taken from a group.
type AggregationSet struct {
	Queue, Group string
	IDs          []string   // of the tasks, the oldest first
	Tasks        []*Message // after Read, in the same order
	Unreadable   []string   // after Read, the ids of tasks that cannot be read; Delete archives them
	Deadline     time.Time  // up to then nobody else takes the tasks

	id string
}

func (s *AggregationSet) key() string { return GroupKey(s.Queue, s.Group) + ":" + s.id }

// List returns the names of a queue's groups.
func (g Groups) List(ctx context.Context, queue string) ([]string, error) {
	groups, err := g.rdb.SMembers(ctx, GroupsKey(queue)).Result()
	if err != nil {
		return nil, fmt.Errorf("taskredis: list the groups of queue %q: %w", queue, err)
	}
	return groups, nil
}

// Take takes the tasks of a group if it is ready, and returns nil if it is not. After an error the tasks may be in a
// set that nobody knows, until somebody reclaims it.
func (g Groups) Take(ctx context.Context, queue, group string, rule GroupRule) (*AggregationSet, error) {
	set := &AggregationSet{Queue: queue, Group: group, id: uuid.NewString(), Deadline: time.Now().Add(AggregationTimeout - time.Second)}
	keys := []string{GroupKey(queue, group), set.key(), aggregationSetsKey(queue)}
	var err error
	set.IDs, err = groupTakeScript.Run(ctx, g.rdb, keys,
		seconds(rule.Grace), seconds(rule.MaxDelay), rule.MaxSize, seconds(AggregationTimeout)).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("taskredis: take group %q of queue %q: %w", group, queue, err)
	}
	if len(set.IDs) == 0 {
		return nil, nil
	}
	return set, nil
}

// Read reads the tasks of a set. It may be called again. A task that is gone is passed over: its hash was deleted
// by other means than asynq's.
func (g Groups) Read(ctx context.Context, set *AggregationSet) error {
	set.Tasks, set.Unreadable = nil, nil
	for ids := range slices.Chunk(set.IDs, readAtOnce) {
		if err := g.read(ctx, set, ids); err != nil {
			return fmt.Errorf("taskredis: read the tasks of group %q of queue %q: %w", set.Group, set.Queue, err)
		}
	}
	return nil
}

func (g Groups) read(ctx context.Context, set *AggregationSet, ids []string) error {
	encoded := make([]*redis.StringCmd, len(ids))
	_, err := g.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			encoded[i] = p.HGet(ctx, TaskKey(set.Queue, id), "msg")
		}
		return nil
	})
	if err != nil && !redisreply.Answered(err) {
		return err
	}
	for i, id := range ids {
		text, err := encoded[i].Bytes()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return err
		}
		var task *Message
		if err == nil {
			task, err = DecodeMessage(text)
		}
		if err != nil {
			set.Unreadable = append(set.Unreadable, id)
			continue
		}
		set.Tasks = append(set.Tasks, task)
	}
	return nil
}

// Delete deletes a set and its tasks, as their aggregated task is enqueued. It may be called again.
func (g Groups) Delete(ctx context.Context, set *AggregationSet) error {
	keys := together(set.Queue, set.key(), aggregationSetsKey(set.Queue), GroupKey(set.Queue, set.Group), GroupsKey(set.Queue), ArchivedKey(set.Queue))
	argv := texts([]any{TaskKey(set.Queue, ""), set.Group}, set.Unreadable)
	if err := groupDeleteScript.Run(ctx, g.rdb, keys, argv...).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("taskredis: delete the aggregated tasks of group %q of queue %q: %w", set.Group, set.Queue, err)
	}
	return nil
}

// Reclaim puts the tasks of a queue's stale sets back into their groups. A set with which that fails is tried
// again after [AggregationTimeout], and the sets after it with the next call.
func (g Groups) Reclaim(ctx context.Context, queue string) error {
	for {
		keys := together(queue, aggregationSetsKey(queue), GroupsKey(queue))
		err := groupReclaimScript.Run(ctx, g.rdb, keys, GroupKey(queue, ""), seconds(AggregationTimeout)).Err()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("taskredis: reclaim the groups of queue %q: %w", queue, err)
		}
	}
}

// seconds returns whole seconds, as asynq does. But asynq makes no limit at all of a part of a second.
func seconds(d time.Duration) int64 {
	if d > 0 && d < time.Second {
		return 1
	}
	return int64(d / time.Second)
}
