package engine

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/taskredis"
)

// These are asynq's.
const (
	aggregationChecks   = 3               // rounds of checks at once, as functions of the user may take long
	aggregationInterval = 7 * time.Second // between the rounds, or the grace period if that is shorter
	reclaimInterval     = time.Minute
)

// How long calls may take: a master of a Cluster that does not answer must not hold up the groups on the others.
const (
	groupsListFor = time.Second
	groupsMoveFor = 3 * time.Second // to take or reclaim tasks
)

// An aggregation makes one task of each group of tasks that is ready. It also puts back the tasks that a server had
// taken for that when it died.
type aggregation struct {
	groups  taskredis.Groups
	queues  []string
	rule    taskredis.GroupRule
	user    asynq.GroupAggregator // nil: no group is aggregated here
	enqueue func(context.Context, *asynq.Task, ...asynq.Option) (*asynq.TaskInfo, error)
	logger  *slog.Logger

	checking, reclaiming, busy outage
}

func newAggregation(cfg *Config, queues []string) *aggregation {
	return &aggregation{
		groups:     taskredis.NewGroups(cfg.Redis),
		queues:     queues,
		rule:       taskredis.GroupRule{Grace: cfg.GroupGracePeriod, MaxDelay: cfg.GroupMaxDelay, MaxSize: cfg.GroupMaxSize},
		user:       cfg.GroupAggregator,
		enqueue:    asynq.NewClientFromRedisClient(cfg.Redis).EnqueueContext,
		logger:     cfg.Logger,
		checking:   outage{logger: cfg.Logger, fails: "groups of tasks cannot be aggregated", works: "groups of tasks are aggregated again"},
		reclaiming: outage{logger: cfg.Logger, fails: "groups of servers that have died cannot be reclaimed", works: "groups of servers that have died are reclaimed again"},
		busy:       outage{logger: cfg.Logger, fails: "groups of tasks wait, as earlier aggregations take long", works: "groups of tasks do not wait for earlier aggregations any more"},
	}
}

// run works until ctx ends. It then returns when the groups that are in hand are done, which takes as long as the
// user's function; whoever does not wait for that loses nothing, as the groups are reclaimed.
func (a *aggregation) run(ctx context.Context) {
	var rounds sync.WaitGroup
	defer rounds.Wait()
	var check <-chan time.Time
	if a.user != nil {
		ticker := time.NewTicker(max(min(a.rule.Grace, aggregationInterval), time.Second))
		defer ticker.Stop()
		check = ticker.C
	}
	rounds.Go(func() {
		for a.reclaim(ctx); sleep.For(ctx, reclaimInterval) == nil; {
			a.reclaim(ctx)
		}
	})
	free := make(chan struct{}, aggregationChecks)
	for {
		select {
		case <-ctx.Done():
			return
		case <-check:
			select {
			case free <- struct{}{}:
				a.busy.saw(ctx, nil)
				rounds.Go(func() {
					defer func() { <-free }()
					a.checking.saw(ctx, a.round(ctx))
				})
			default:
				a.busy.saw(ctx, errBusy)
			}
		}
	}
}

var errBusy = errors.New("the user's GroupAggregator has not returned")

// reclaim puts stale groups back. A queue with which that fails does not hold up the others.
func (a *aggregation) reclaim(ctx context.Context) {
	var problem error
	for _, queue := range a.queues {
		limited, cancel := context.WithTimeout(ctx, groupsMoveFor)
		problem = cmp.Or(problem, a.groups.Reclaim(limited, queue))
		cancel()
	}
	a.reclaiming.saw(ctx, problem)
}

// round looks at each group once, and returns the first problem with Redis. A group whose data is broken, or a queue whose master
// does not answer, does not hold up the others.
func (a *aggregation) round(ctx context.Context) error {
	var problem error
	for _, queue := range a.queues {
		limited, cancel := context.WithTimeout(ctx, groupsListFor)
		groups, err := a.groups.List(limited, queue)
		cancel()
		problem = cmp.Or(problem, err)
		for _, group := range groups {
			if ctx.Err() != nil {
				break
			}
			err := a.aggregate(ctx, queue, group)
			problem = cmp.Or(problem, err)
			if err != nil && !redisreply.Answered(err) {
				break // its other groups are there, too
			}
		}
	}
	return problem
}

// aggregate makes one task of a group if the group is ready. If that fails after the group was taken, its tasks go
// back to the group when their time is over, as those of a server that has died.
func (a *aggregation) aggregate(running context.Context, queue, group string) error {
	// A group that was taken is done also when the server ends. One that was taken after all, by a call whose answer is late, is
	// reclaimed.
	limited, cancel := context.WithTimeout(context.WithoutCancel(running), groupsMoveFor)
	set, err := a.groups.Take(limited, queue, group, a.rule)
	cancel()
	if err != nil || set == nil {
		return err
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(running), set.Deadline)
	defer cancel()
	logger := a.logger.With("queue", queue, "group", group)
	// insist tries until it works, so that a group does not wait for its reclaim when a connection is lost.
	insist := func(f func(context.Context, *taskredis.AggregationSet) error) error {
		err := f(ctx, set)
		for err != nil && running.Err() == nil && sleep.For(ctx, time.Second) == nil {
			err = f(ctx, set)
		}
		return err
	}
	if err := insist(a.groups.Read); err != nil {
		return err
	}
	if len(set.Unreadable) > 0 {
		logger.ErrorContext(ctx, "tasks of a group cannot be read and are archived", "task_ids", set.Unreadable)
	}
	if len(set.Tasks) > 0 {
		task, err := try(func() (*asynq.Task, error) { return a.user.Aggregate(group, tasksOf(set)), nil })
		if err != nil {
			logBroken(ctx, logger, "GroupAggregator", err)
			return nil
		}
		if _, err := a.enqueue(ctx, task, asynq.Queue(queue)); err != nil {
			logger.ErrorContext(ctx, "an aggregated task may not be enqueued, and its group is aggregated again", "error", err)
			return nil
		}
	}
	if err := insist(a.groups.Delete); err != nil {
		logger.ErrorContext(ctx, "an aggregated task is enqueued, but its group is still there and is aggregated again", "error", err)
		return err
	}
	return nil
}

func tasksOf(set *taskredis.AggregationSet) []*asynq.Task {
	tasks := make([]*asynq.Task, len(set.Tasks))
	for i, m := range set.Tasks {
		tasks[i] = AsynqTask(m)
	}
	return tasks
}
