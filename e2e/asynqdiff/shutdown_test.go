package asynqdiff

import (
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/taskredis"
)

// What Siding does otherwise, where several scenarios show it.
const differsDeleted = "asynq writes a part of a task that was deleted while it ran, when that ends; for Siding it stays deleted"

// hurried gives handlers hardly any time at a shutdown.
func hurried(c *asynq.Config) { c.ShutdownTimeout = 50 * time.Millisecond }

// shutdowns are about servers that end, in time or not.
var shutdowns = []scenario{
	{name: "a shutdown without tasks", play: func(r *rig) {
		s := r.start()
		s.shutdown()
		s.Shutdown()
		s.Stop()
	}},
	{name: "a shutdown waits for a handler", tasks: []task{{name: "a", does: once(held(returns(nil)))}, {name: "b", does: never}}, play: func(r *rig) {
		r.whileItEnds(func() {})
	}},
	{name: "a shutdown waits for an error", tasks: []task{{name: "a", does: once(held(returns(errBoom)))}}, play: func(r *rig) {
		r.whileItEnds(func() {})
	}},
	{name: "a timeout in a shutdown", tasks: []task{timesOut(untilEnd(returnsEnd))}, play: func(r *rig) {
		s := r.start()
		r.begun("a", 1)
		s.shutdown()
	}},
	{name: "canceled in a shutdown", tasks: []task{{name: "a", does: once(untilEnd(returnsEnd))}}, play: func(r *rig) {
		r.whileItEnds(func() { r.cancel("a") })
	}},
	{
		name:   "a shutdown does not wait for ever",
		config: hurried,
		tasks: []task{
			{name: "a", opts: unique(asynq.Retention(time.Hour)), does: once(held(writes("late", returns(errBoom))))},
			{name: "b", does: never},
		},
		play: func(r *rig) { // a is at the head of the queue again, and what its handler does then is lost
			s := r.start()
			r.begun("a", 1)
			s.shutdown()
			r.snapshot("after the shutdown")
			r.open("a")
		},
	},
	{
		name:   "a shutdown does not wait for a retry",
		config: hurried,
		tasks:  []task{{name: "a", does: []step{writes("1", returns(errBoom)), held(returns(nil))}}},
		play: func(r *rig) {
			s := r.start()
			r.begun("a", 2)
			s.shutdown()
		},
	},
	{
		name:   "the next server takes what was given back",
		config: hurried,
		tasks:  []task{{name: "a", does: []step{held(returns(nil)), returns(nil)}}, {name: "b"}},
		play: func(r *rig) {
			s := r.start()
			r.begun("a", 1)
			s.shutdown()
			s = r.start()
			r.state("a", "")
			r.state("b", "")
			s.shutdown()
		},
	},
	{
		name:  "another server goes on",
		tasks: []task{{name: "a"}},
		play: func(r *rig) {
			first, second := r.start(), r.start()
			r.left("a", 1)
			first.shutdown()
			r.enqueue(task{name: "b"})
			r.left("b", 1)
			second.shutdown()
		},
	},
	{
		name: "a stop",
		tasks: []task{
			{name: "a", does: once(held(returns(nil)))},
			{name: "b", does: never},
			{name: "c", opts: with(asynq.ProcessIn(time.Hour)), does: never},
		},
		play: func(r *rig) { // it takes no more tasks, but goes on otherwise
			s := r.start()
			r.begun("a", 1)
			s.Stop()
			s.Stop()
			r.open("a")
			r.state("a", "")
			r.move(taskredis.ScheduledKey("default"), r.id("c"), -time.Minute)
			r.state("c", "pending")
			r.snapshot("after the stop")
			s.shutdown()
		},
	},
	{
		name:  "canceled after a stop",
		tasks: []task{{name: "a", does: once(untilEnd(returnsEnd))}},
		play: func(r *rig) {
			s := r.start()
			r.begun("a", 1)
			s.Stop()
			r.cancel("a")
			r.state("a", "retry")
			s.shutdown()
		},
	},
	{
		name:   "a stop, and a shutdown that does not wait",
		config: hurried,
		tasks:  []task{{name: "a", does: once(held(returns(nil)))}},
		play: func(r *rig) {
			s := r.start()
			r.begun("a", 1)
			s.Stop()
			s.shutdown()
		},
	},
	{
		name:  "the task is deleted while it runs",
		tasks: []task{{name: "a", opts: unique(), does: once(held(returns(nil)))}},
		play:  withoutHash,
	},
	{
		name:    "the task is deleted while it runs, kept",
		differs: differsDeleted,
		tasks:   []task{{name: "a", opts: with(asynq.Retention(time.Hour)), does: once(held(returns(nil)))}},
		play:    withoutHash,
	},
	{
		name:    "the task is deleted while it runs, and fails",
		differs: differsDeleted,
		tasks:   []task{{name: "a", does: once(held(returns(errBoom)))}},
		play:    withoutHash,
	},
	{
		name:    "the task is deleted while it runs, and given back",
		differs: differsDeleted,
		config:  hurried,
		tasks:   []task{{name: "a", does: once(held(returns(nil)))}},
		play: func(r *rig) {
			s := r.start()
			r.begun("a", 1)
			r.do([]any{"DEL", taskredis.TaskKey("default", r.id("a"))})
			s.shutdown()
		},
	},
	{
		name:  "another server takes the task back while it runs",
		tasks: []task{{name: "a", does: once(held(returns(nil)))}},
		play:  takenBack,
	},
	{
		name:  "another server takes the task back while it runs, and fails",
		tasks: []task{{name: "a", does: once(held(returns(errBoom)))}},
		play:  takenBack,
	},
}

// whileItEnds shuts down a server that runs the task a, and does something when that waits.
func (r *rig) whileItEnds(do func()) {
	s := r.start()
	r.begun("a", 1)
	s.down()
	r.note("a is given up", seen(r.t.Context(), others, func() bool { return r.stateOf(r.t.Context(), "a") != "active" }))
	do()
	r.open("a")
	s.shutdown()
}

// withoutHash deletes the hash of a while it runs, as an operator could with redis-cli.
func withoutHash(r *rig) {
	s := r.start()
	r.begun("a", 1)
	r.do([]any{"DEL", taskredis.TaskKey("default", r.id("a"))})
	r.open("a")
	s.shutdown()
}

// takenBack does with a, while it runs, what asynq's recoverer does.
func takenBack(r *rig) {
	s := r.start()
	r.begun("a", 1)
	r.do(
		[]any{"LREM", taskredis.ActiveKey("default"), 0, r.id("a")},
		[]any{"ZREM", taskredis.LeaseKey("default"), r.id("a")},
		[]any{"ZADD", taskredis.RetryKey("default"), time.Now().Add(2 * time.Hour).Unix(), r.id("a")},
		[]any{"HSET", taskredis.TaskKey("default", r.id("a")), "state", "retry"},
	)
	r.open("a")
	s.shutdown()
}
