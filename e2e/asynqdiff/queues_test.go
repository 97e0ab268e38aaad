package asynqdiff

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

// strictly serves three queues in strict priority.
func strictly(c *asynq.Config) {
	c.Queues = map[string]int{"high": 3, "default": 2, "low": 1}
	c.StrictPriority = true
}

func inQueue(queue, name string) task { return task{name: name, opts: with(asynq.Queue(queue))} }

// queues are about which task runs next.
var queues = []scenario{
	{name: "first come, first served", tasks: []task{{name: "a"}, {name: "b"}, {name: "c"}}},
	{name: "strict priority", config: strictly, play: func(r *rig) {
		for i := range 8 {
			for _, queue := range []string{"low", "default", "high"} {
				r.enqueue(inQueue(queue, fmt.Sprint(queue, i)))
			}
		}
		r.finish()
	}},
	{
		name:   "strict priority of what comes later",
		config: strictly,
		tasks:  []task{{name: "a", opts: with(asynq.Queue("low")), does: once(held(returns(nil)))}, inQueue("low", "b")},
		play: func(r *rig) {
			r.start()
			r.begun("a", 1)
			r.enqueue(inQueue("high", "c"))
			r.open("a")
			r.attempted()
		},
	},
	{
		name:   "weights",
		config: func(c *asynq.Config) { c.Queues = map[string]int{"high": 30, "low": 10} },
		play: func(r *rig) {
			const n = 60
			for i := range n {
				for _, queue := range []string{"high", "low"} {
					_, err := r.client.Enqueue(asynq.NewTask(queue, nil), asynq.TaskID(r.id(fmt.Sprint(queue, i))), asynq.Queue(queue))
					if err != nil {
						r.t.Fatal(err)
					}
				}
			}
			s := r.start()
			r.left("high", n)
			r.left("low", n)
			s.shutdown()
			high := 0
			for _, a := range r.record.attempts[:n] {
				if a.task.Type() == "high" {
					high++
				}
			}
			// Of 60 draws 45 are high on average, with a standard deviation of 3.4.
			r.note("three in four are of the queue with three times the weight", fmt.Sprint(high > 28 && high < n))
		},
	},
	{
		name:   "equal weights",
		config: func(c *asynq.Config) { c.Concurrency, c.Queues = 2, map[string]int{"one": 1, "two": 1} },
		tasks:  []task{inQueue("one", "a"), inQueue("two", "b"), inQueue("one", "c"), inQueue("two", "d")},
	},
	{
		name:   "queues that cannot be",
		config: func(c *asynq.Config) { c.Queues = map[string]int{"": 1, " ": 1, "none": 0, "less": -1} },
		tasks:  []task{{name: "b", opts: with(asynq.Queue("none")), does: never}, {name: "a"}},
	},
	{
		name:   "a queue that no server has",
		config: func(c *asynq.Config) { c.Queues = map[string]int{"default": 1} },
		tasks:  []task{{name: "b", opts: with(asynq.Queue("other")), does: never}, {name: "a"}, {name: "c"}},
	},
	{
		name:   "as many tasks at once as it may",
		config: func(c *asynq.Config) { c.Concurrency = 3 },
		tasks: []task{
			{name: "a", does: once(held(returns(nil)))},
			{name: "b", does: once(held(returns(nil)))},
			{name: "c", does: once(held(returns(nil)))},
			{name: "d"},
		},
		play: func(r *rig) {
			r.start()
			for _, name := range []string{"a", "b", "c"} {
				r.begun(name, 1)
			}
			r.snapshot("while three run")
			r.open("b")
			r.left("d", 1)
			r.open("a")
			r.open("c")
		},
	},
	{
		name:   "never more at once than it may",
		config: func(c *asynq.Config) { c.Concurrency = 4 },
		play: func(r *rig) {
			var now, most atomic.Int32
			all := make(chan struct{})
			work := func(context.Context, *attempt) error {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer now.Add(-1)
				<-all
				return nil
			}
			for i := range 8 {
				r.enqueue(task{name: fmt.Sprint("t", i), does: once(work)})
			}
			s := r.start()
			for i := range 4 {
				r.begun(fmt.Sprint("t", i), 1)
			}
			close(all)
			r.attempted()
			s.shutdown()
			r.note("at once", most.Load())
		},
	},
	{
		name:  "a retry goes behind what is pending",
		tasks: []task{{name: "a", does: []step{held(returns(errBoom)), returns(nil)}}, {name: "b", does: once(held(returns(nil)))}, {name: "c"}},
		play: func(r *rig) {
			r.start()
			r.begun("a", 1)
			r.open("a")
			r.begun("b", 1)
			r.state("a", "pending")
			r.open("b")
			r.attempted()
		},
	},
	{
		name:   "a paused queue",
		config: strictly,
		tasks:  []task{{name: "a", opts: with(asynq.Queue("high")), does: never}, inQueue("low", "b"), inQueue("low", "c")},
		play: func(r *rig) {
			r.note("pause", r.inspect.PauseQueue("high"))
			r.note("pause again", r.inspect.PauseQueue("high"))
			r.finish()
			r.note("pause no queue", r.inspect.PauseQueue(" "))
		},
	},
	{
		name: "a queue that is paused for a time",
		play: func(r *rig) {
			r.start()
			r.note("resume", r.inspect.UnpauseQueue("default"))
			r.note("pause", r.inspect.PauseQueue("default"))
			r.enqueue(task{name: "a"})
			r.enqueue(task{name: "b"})
			r.note("resume", r.inspect.UnpauseQueue("default"))
			r.attempted()
		},
	},
	{
		name:   "a queue that is paused while a task runs",
		config: strictly,
		tasks: []task{
			{name: "a", opts: with(asynq.Queue("high")), does: once(held(returns(errBoom)))},
			{name: "b", opts: with(asynq.Queue("high"), asynq.ProcessIn(time.Hour)), does: never},
		},
		play: func(r *rig) { // what has begun ends, and what is due becomes pending
			r.start()
			r.begun("a", 1)
			r.note("pause", r.inspect.PauseQueue("high"))
			r.open("a")
			r.state("a", "retry")
			r.move("asynq:{high}:scheduled", r.id("b"), -time.Minute)
			r.state("b", "pending")
			r.enqueue(inQueue("low", "c"))
			r.enqueue(inQueue("low", "d"))
			r.attempted()
		},
	},
}
