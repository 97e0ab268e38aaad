package asynqdiff

import (
	"fmt"
	"math"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
)

const days = 24 * time.Hour

// cleaning deletes what is kept no longer, in such batches.
func cleaning(batch int) func(c *asynq.Config) {
	return func(c *asynq.Config) { c.JanitorInterval, c.JanitorBatchSize = 10*time.Millisecond, batch }
}

// upkeep is about what servers do beside running tasks.
var upkeep = []scenario{
	{name: "a task is kept no longer", config: cleaning(0), tasks: []task{{name: "a", opts: kept}, {name: "b", opts: kept}}, play: func(r *rig) {
		r.finish()
		r.move(taskredis.CompletedKey("default"), r.id("a"), -time.Minute)
		r.start()
		r.state("a", "")
	}},
	{name: "many tasks are kept no longer", config: cleaning(1), tasks: []task{{name: "a", opts: kept}, {name: "b", opts: kept}, {name: "c", opts: kept}, {name: "d", opts: kept}}, play: func(r *rig) {
		r.finish()
		for _, name := range []string{"a", "b", "c"} {
			r.move(taskredis.CompletedKey("default"), r.id(name), -time.Minute)
		}
		r.start()
		for _, name := range []string{"a", "b", "c"} {
			r.state(name, "")
		}
	}},
	{name: "a task is kept no longer in a paused queue", config: cleaning(0), tasks: []task{{name: "a", opts: kept}}, play: func(r *rig) {
		r.finish()
		r.note("pause", r.inspect.PauseQueue("default"))
		r.move(taskredis.CompletedKey("default"), r.id("a"), -time.Minute)
		r.start()
		r.state("a", "")
	}},
	{name: "an old task in the archive", tasks: []task{{name: "a", does: never}, {name: "b", does: never}, {name: "c", opts: noRetries, does: once(returns(errBoom))}}, play: func(r *rig) {
		for _, name := range []string{"a", "b"} {
			r.note("archive "+name, r.inspect.ArchiveTask("default", r.id(name)))
		}
		r.move(taskredis.ArchivedKey("default"), r.id("a"), -91*days)
		r.move(taskredis.ArchivedKey("default"), r.id("b"), -89*days)
		r.finish()
	}},
	{name: "a full archive", tasks: []task{{name: "a", does: never}, {name: "b", opts: noRetries, does: once(returns(errBoom))}}, play: func(r *rig) {
		r.note("archive a", r.inspect.ArchiveTask("default", r.id("a")))
		r.move(taskredis.ArchivedKey("default"), r.id("a"), -2*days) // the oldest
		members := make([]redis.Z, 10_000)
		for i := range members {
			age := days + time.Duration(len(members)-1-i)*time.Second
			members[i] = redis.Z{Score: float64(time.Now().Add(-age).Unix()), Member: fmt.Sprintf("x%05d", i)}
		}
		r.note("fill", r.redis.ZAdd(r.t.Context(), taskredis.ArchivedKey("default"), members...).Err())
		r.finish()
		r.note("left", r.redis.ZCard(r.t.Context(), taskredis.ArchivedKey("default")).Val())
	}},
	{name: "counts", config: minorIsNone, tasks: []task{
		{name: "a"},
		{name: "b", opts: kept},
		{name: "c", does: once(returns(errBoom))},
		{name: "d", does: once(returns(errMinor))},
		{name: "e", opts: noRetries, does: once(returns(errBoom))},
		{name: "f", does: once(returns(asynq.RevokeTask))},
		{name: "g", does: []step{returns(errBoom), returns(errMinor), returns(nil)}},
	}, play: func(r *rig) {
		r.finish()
		history, err := r.inspect.History("default", 2)
		r.note("history", err)
		for _, day := range history {
			r.note("history", fmt.Sprintf("%s: %d, %d", moment(day.Date), day.Processed, day.Failed))
		}
	}},
	{name: "counts that cannot grow", config: func(c *asynq.Config) {
		c.Queues = map[string]int{"done": 4, "kept": 3, "retry": 2, "archived": 1}
		c.StrictPriority = true
	}, tasks: []task{
		{name: "a", opts: with(asynq.Queue("done"))},
		{name: "b", opts: with(asynq.Queue("kept"), asynq.Retention(time.Hour))},
		{name: "c", opts: with(asynq.Queue("retry")), does: once(returns(errBoom))},
		{name: "d", opts: with(asynq.Queue("archived"), asynq.MaxRetry(0)), does: once(returns(errBoom))},
	}, play: func(r *rig) { // begin anew
		for _, t := range r.all() {
			r.do([]any{"SET", "asynq:{" + t.queue() + "}:processed", math.MaxInt64}, []any{"SET", "asynq:{" + t.queue() + "}:failed", 7})
		}
		r.finish()
	}},
	{name: "health", config: func(c *asynq.Config) {
		c.HealthCheckFunc, c.HealthCheckInterval = func(error) {}, 10*time.Millisecond
	}, play: func(r *rig) {
		r.start()
		r.until("a check", func() bool { r.record.mu.Lock(); defer r.record.mu.Unlock(); return len(r.record.calls) > 0 })
	}},
	{name: "a server is listed", config: func(c *asynq.Config) {
		c.Concurrency, c.Queues, c.StrictPriority = 7, map[string]int{"high": 6, "low": 3}, true
	}, play: func(r *rig) {
		r.start()
		r.snapshotServers("while it runs")
	}},
	{name: "two servers are listed", play: func(r *rig) {
		first, second := r.start(), r.start()
		r.snapshotServers("while two run")
		first.shutdown()
		r.snapshotServers("while one runs")
		second.shutdown()
	}},
}

// heartbeats take five seconds, in which asynq writes down what it does.
var heartbeats = []scenario{
	{name: "a worker is listed", tasks: []task{
		{name: "a", payload: []byte("payload"), opts: with(asynq.Timeout(10 * time.Minute)), does: once(held(returns(nil)))},
	}, play: func(r *rig) {
		r.start()
		r.begun("a", 1)
		r.until("a worker to be listed", func() bool { return len(r.workers()) == 1 })
		r.snapshotServers("while it runs")
		r.open("a")
	}},
	{name: "a stopped server is listed", tasks: []task{{name: "a"}}, play: func(r *rig) {
		s := r.start()
		r.left("a", 1)
		s.Stop()
		r.until("a server that is stopped", func() bool {
			servers := r.listed()
			return len(servers) == 1 && servers[0].Status == "stopped"
		})
		r.snapshotServers("after the stop")
		s.shutdown()
	}},
	{name: "a server that shuts down is listed", tasks: []task{{name: "a", does: once(held(returns(nil)))}}, play: func(r *rig) {
		s := r.start()
		r.begun("a", 1)
		s.down()
		r.until("a server that is closed", func() bool {
			servers := r.listed()
			return len(servers) == 1 && servers[0].Status == "closed" && len(servers[0].ActiveWorkers) == 1
		})
		r.snapshotServers("in the shutdown")
		r.open("a")
		s.shutdown()
	}},
	{name: "a lease is renewed", tasks: []task{{name: "a", does: once(held(returns(nil)))}}, play: func(r *rig) {
		r.start()
		r.begun("a", 1)
		r.move(taskredis.LeaseKey("default"), r.id("a"), 8*time.Second)
		r.until("a new lease", func() bool {
			score, err := r.redis.ZScore(r.t.Context(), taskredis.LeaseKey("default"), r.id("a")).Result()
			return err == nil && time.Until(time.Unix(int64(score), 0)) > 20*time.Second
		})
		r.open("a")
	}},
}

func (r *rig) workers() []*asynq.WorkerInfo {
	var workers []*asynq.WorkerInfo
	for _, s := range r.listed() {
		workers = append(workers, s.ActiveWorkers...)
	}
	return workers
}
