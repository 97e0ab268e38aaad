package asynqdiff

import (
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/taskredis"
)

// grouping makes one task of each group. It looks every second, which is the least that asynq accepts. So that the time does not decide
// which task goes with which, plays write the times at which tasks came to their group.
func grouping(size int, delay time.Duration, opts ...asynq.Option) func(c *asynq.Config) {
	return func(c *asynq.Config) {
		c.GroupGracePeriod, c.GroupMaxSize, c.GroupMaxDelay = time.Second, size, delay
		c.GroupAggregator = asynq.GroupAggregatorFunc(func(group string, tasks []*asynq.Task) *asynq.Task {
			payloads := make([]string, len(tasks))
			for i, t := range tasks {
				payloads[i] = string(t.Payload()) + t.Headers()["trace"]
			}
			return asynq.NewTask("batch of "+group, []byte(strings.Join(payloads, ", ")), opts...)
		})
	}
}

func inGroup(group, name string, opts ...asynq.Option) task {
	return task{name: name, payload: []byte(name), opts: append(opts, asynq.Group(group)), does: never}
}

// came writes when the tasks of a group came to it, from now: all are in the queue default.
func (r *rig) came(group string, times map[string]time.Duration) {
	r.t.Helper()
	now := time.Now() // equal times have to be equal
	for name, at := range times {
		r.do([]any{"ZADD", "asynq:{default}:g:" + group, "XX", now.Add(at).Unix(), r.id(name)})
	}
}

// What Siding does otherwise, where several scenarios show it.
const differsListed = "asynq does not list a group whose tasks have come back to it, so they stay there until another one comes;" +
	" Siding lists each group that has tasks or may get them back"

// Times of tasks: long ago is long enough for everything, and a time to come for nothing.
const (
	longAgo  = -2 * time.Hour
	inAnHour = time.Hour
)

// groups are about tasks that are aggregated.
var groups = []scenario{
	{name: "a full group", config: grouping(3, 0), tasks: []task{inGroup("g", "a"), inGroup("g", "b"), inGroup("g", "c")}, play: func(r *rig) {
		r.came("g", map[string]time.Duration{"a": inAnHour, "b": inAnHour, "c": 2 * inAnHour})
		r.batches("g", 1)
	}},
	{name: "more than a full group", config: grouping(2, 0), tasks: []task{
		inGroup("g", "a"), inGroup("g", "b"), inGroup("g", "c"), inGroup("g", "d"), inGroup("g", "e"),
	}, play: func(r *rig) { // in the order in which they came; one is left
		r.came("g", map[string]time.Duration{"a": 5 * inAnHour, "b": 4 * inAnHour, "c": 3 * inAnHour, "d": 2 * inAnHour, "e": inAnHour})
		r.batches("g", 2)
	}},
	{name: "a group in which no more come", config: grouping(0, 0), tasks: []task{inGroup("g", "a"), inGroup("g", "b")}, play: func(r *rig) {
		r.came("g", map[string]time.Duration{"a": longAgo, "b": longAgo})
		r.batches("g", 1)
	}},
	{name: "a large group in which no more come", config: grouping(2, 0), tasks: []task{inGroup("g", "a"), inGroup("g", "b"), inGroup("g", "c")}, play: func(r *rig) {
		r.came("g", map[string]time.Duration{"a": longAgo, "b": longAgo, "c": longAgo})
		r.batches("g", 2)
	}},
	{name: "a group that has waited", config: grouping(0, time.Hour), tasks: []task{inGroup("g", "a"), inGroup("g", "b")}, play: func(r *rig) {
		r.came("g", map[string]time.Duration{"a": longAgo, "b": inAnHour})
		r.batches("g", 1)
	}},
	{name: "a large group that has waited", config: grouping(5, time.Hour), tasks: []task{inGroup("g", "a"), inGroup("g", "b")}, play: func(r *rig) {
		r.came("g", map[string]time.Duration{"a": longAgo, "b": inAnHour})
		r.batches("g", 1)
	}},
	{name: "a group that is not ready", config: grouping(3, 3*time.Hour), tasks: []task{inGroup("g", "a"), inGroup("g", "b"), inGroup("h", "c")}, play: func(r *rig) {
		r.came("g", map[string]time.Duration{"a": longAgo, "b": inAnHour})
		r.came("h", map[string]time.Duration{"c": longAgo})
		r.batches("h", 1)
	}},
	{name: "two groups", config: func(c *asynq.Config) {
		grouping(0, 0)(c)
		c.Concurrency = 2 // in any order
	}, tasks: []task{inGroup("g", "a"), inGroup("h:i", "b")}, play: func(r *rig) {
		r.came("g", map[string]time.Duration{"a": longAgo})
		r.came("h:i", map[string]time.Duration{"b": longAgo})
		r.start()
		r.left("batch of g", 1)
		r.left("batch of h:i", 1)
	}},
	{name: "the task of a group fails", config: grouping(1, 0), tasks: []task{inGroup("g", "a")}, play: func(r *rig) {
		r.add(task{name: "batch of g", does: once(returns(errBoom))})
		r.batches("g", 1)
	}},
	{
		name:   "the task of a group has options",
		config: grouping(1, 0, asynq.MaxRetry(3), asynq.Timeout(10*time.Minute), asynq.Retention(time.Hour), asynq.Queue("other"), asynq.Unique(2*time.Hour)),
		tasks:  []task{inGroup("g", "a")},
		play:   func(r *rig) { r.batches("g", 1) },
	},
	{
		name:   "the task of a group is one of a group",
		config: grouping(1, 0, asynq.Group("h"), asynq.ProcessIn(time.Hour)),
		tasks:  []task{inGroup("g", "a")},
		play: func(r *rig) {
			r.start()
			r.state("a", "")
		},
	},
	{
		name:    "no task of a group",
		differs: differsListed,
		config: func(c *asynq.Config) {
			grouping(1, 0)(c)
			c.GroupAggregator = asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task { return nil })
		},
		tasks: []task{inGroup("g", "a")},
		play: func(r *rig) { // the tasks stay in a set of their own, and go back to the group after two minutes
			r.start()
			r.until("a set", func() bool { return r.redis.Exists(r.t.Context(), "asynq:{default}:aggregation_sets").Val() == 1 })
		},
	},
	{
		name:    "a task of a group that cannot be enqueued",
		differs: differsListed,
		config:  grouping(1, 0, asynq.Unique(time.Hour)),
		tasks:   []task{inGroup("g", "a")},
		play: func(r *rig) {
			_, err := r.client.Enqueue(asynq.NewTask("batch of g", []byte("a")), asynq.TaskID(r.id("equal")), asynq.Unique(time.Hour), asynq.ProcessIn(time.Hour))
			r.note("an equal task", err)
			r.start()
			r.until("a set", func() bool { return r.redis.Exists(r.t.Context(), "asynq:{default}:aggregation_sets").Val() == 1 })
		},
	},
	{name: "unique tasks of a group", config: grouping(2, 0), tasks: []task{
		inGroup("g", "a", asynq.Unique(time.Hour)),
		{name: "a", id: "b", payload: []byte("a"), opts: with(asynq.Group("g"), asynq.Unique(time.Hour)), does: never},
		inGroup("g", "c", asynq.Unique(time.Hour)),
	}, play: func(r *rig) { r.batches("g", 1) }},
	{name: "headers of a group's tasks", config: grouping(1, 0), tasks: []task{
		{name: "a", headers: map[string]string{"trace": "1"}, opts: with(asynq.Group("g")), does: never},
	}, play: func(r *rig) { r.batches("g", 1) }},
	{name: "a group of a paused queue", config: grouping(1, 0), tasks: []task{inGroup("g", "a")}, play: func(r *rig) {
		r.note("pause", r.inspect.PauseQueue("default"))
		r.start()
		r.state("a", "")
	}},
	{name: "a group after a stop", config: grouping(1, 0), play: func(r *rig) {
		s := r.start()
		s.Stop()
		r.enqueue(inGroup("g", "a"))
		r.state("a", "")
		s.shutdown()
	}},
	{name: "a scheduled task of a group", config: grouping(1, 0), tasks: []task{
		{name: "a", opts: with(asynq.Group("g"), asynq.ProcessIn(time.Hour))},
	}, play: func(r *rig) { // it has forgotten its group
		r.snapshot("before")
		r.move(taskredis.ScheduledKey("default"), r.id("a"), -time.Minute)
		r.finish()
	}},
	{name: "a group without an aggregator", tasks: []task{inGroup("g", "a"), inGroup("g", "b"), {name: "c"}}},
	{name: "no name of a group", tasks: []task{inGroup(" ", "a")}},
	{name: "tasks of a group are run, deleted and archived", tasks: []task{inGroup("g", "a"), inGroup("g", "b"), inGroup("g", "c"), {name: "d"}}, play: func(r *rig) {
		r.note("run", r.inspect.RunTask("default", r.id("a")))
		r.note("delete", r.inspect.DeleteTask("default", r.id("b")))
		r.note("archive", r.inspect.ArchiveTask("default", r.id("c")))
		r.start()
		r.left("a", 1)
	}},
	{name: "a group is run", tasks: []task{inGroup("g", "a"), inGroup("g", "b")}, play: func(r *rig) {
		r.start()
		n, err := r.inspect.RunAllAggregatingTasks("default", "g")
		r.count("run", n, err)
		r.left("b", 1)
	}},
	{name: "a group is archived", tasks: []task{inGroup("g", "a"), inGroup("g", "b"), {name: "c"}}, play: func(r *rig) {
		n, err := r.inspect.ArchiveAllAggregatingTasks("default", "g")
		r.count("archive", n, err)
		r.finish()
	}},
	{name: "a group is deleted", tasks: []task{inGroup("g", "a", asynq.Unique(time.Hour)), inGroup("g", "b"), {name: "c"}}, play: func(r *rig) {
		n, err := r.inspect.DeleteAllAggregatingTasks("default", "g")
		r.count("delete", n, err)
		r.finish()
	}},
	{name: "a task of a group is run, and fails", differs: differsListed, tasks: []task{{name: "a", opts: with(asynq.Group("g")), does: once(returns(errBoom))}}, play: func(r *rig) {
		r.note("run", r.inspect.RunTask("default", r.id("a"))) // its retry goes to the group again, which is in no list
		r.start()
		r.state("a", "retry")
		r.move(taskredis.RetryKey("default"), r.id("a"), -time.Minute)
		r.state("a", "aggregating")
	}},
	{name: "a server dies while it makes a task of a group", differs: differsListed, config: grouping(0, 0), tasks: []task{inGroup("g", "a"), inGroup("h", "b")}, play: func(r *rig) {
		r.half("g", -time.Minute) // goes back to the group, which is in no list
		r.came("h", map[string]time.Duration{"b": longAgo})
		r.batches("h", 1)
	}},
	{name: "a server makes a task of a group", config: grouping(0, 0), tasks: []task{inGroup("g", "a"), inGroup("h", "b")}, play: func(r *rig) {
		r.half("g", time.Hour)
		r.came("h", map[string]time.Duration{"b": longAgo})
		r.batches("h", 1)
	}},
}

// batches runs a server until so many tasks of a group have run.
func (r *rig) batches(group string, n int) {
	r.t.Helper()
	s := r.start()
	r.left("batch of "+group, n)
	s.shutdown()
}

// half leaves a group as a server does that is about to make a task of it, and has until then for that.
func (r *rig) half(group string, ends time.Duration) {
	r.t.Helper()
	key := "asynq:{default}:g:" + group
	set := key + ":00000000-0000-4000-8000-000000000000"
	r.do(
		[]any{"RENAME", key, set},
		[]any{"SREM", "asynq:{default}:groups", group},
		[]any{"ZADD", "asynq:{default}:aggregation_sets", time.Now().Add(ends).Unix(), set},
	)
}
