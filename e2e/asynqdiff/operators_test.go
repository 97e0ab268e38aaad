package asynqdiff

import (
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/taskredis"
)

// later is a task of tomorrow.
func later(name string, opts ...asynq.Option) task {
	return task{name: name, opts: append(opts, asynq.ProcessIn(24*time.Hour)), does: never}
}

// operators are about what Inspector does to tasks, with a server running or not.
var operators = []scenario{
	{name: "scheduled tasks are run, deleted and archived", tasks: []task{
		later("run"), later("deleted", asynq.Unique(time.Hour)), later("archived", asynq.Unique(time.Hour)), later("b"),
	}, play: func(r *rig) {
		r.start()
		r.operate()
		r.left("run", 1)
	}},
	{name: "a scheduled task is changed", tasks: []task{
		{name: "a", payload: []byte("old"), headers: map[string]string{"trace": "1"}, opts: unique(asynq.ProcessIn(time.Hour))},
	}, play: func(r *rig) {
		r.start()
		r.note("update", r.inspect.UpdateTaskPayload("default", r.id("a"), []byte("new")))
		r.snapshot("after the update")
		r.note("run", r.inspect.RunTask("default", r.id("a")))
		r.attempted()
	}},
	{name: "pending tasks are run, deleted, archived and changed", tasks: []task{
		{name: "run"}, {name: "deleted", opts: unique(), does: never}, {name: "archived", opts: unique(), does: never}, {name: "changed"},
	}, play: func(r *rig) {
		r.operate()
		r.note("update", r.inspect.UpdateTaskPayload("default", r.id("changed"), []byte("new")))
		r.finish()
	}},
	{name: "tasks that are not there", tasks: []task{{name: "a"}}, play: func(r *rig) {
		r.finish()
		for _, queue := range []string{"default", "other", ""} {
			r.note("run", r.inspect.RunTask(queue, r.id("a")))
			r.note("delete", r.inspect.DeleteTask(queue, r.id("a")))
			r.note("archive", r.inspect.ArchiveTask(queue, r.id("a")))
			r.note("update", r.inspect.UpdateTaskPayload(queue, r.id("a"), []byte("new")))
		}
	}},
	{name: "a running task is run, deleted, archived and changed", tasks: []task{{name: "a", does: once(held(returns(errBoom)))}}, play: func(r *rig) {
		r.start()
		r.begun("a", 1)
		r.note("run", r.inspect.RunTask("default", r.id("a")))
		r.note("delete", r.inspect.DeleteTask("default", r.id("a")))
		r.note("archive", r.inspect.ArchiveTask("default", r.id("a")))
		r.note("update", r.inspect.UpdateTaskPayload("default", r.id("a"), []byte("new")))
		r.note("delete its queue", r.inspect.DeleteQueue("default", false))
		r.note("delete its queue by force", r.inspect.DeleteQueue("default", true))
		r.open("a")
	}},
	{name: "tasks that will be retried are run, deleted, archived and changed", tasks: []task{
		{name: "deleted", opts: unique(), does: once(returns(errBoom))},
		{name: "archived", opts: unique(), does: once(returns(errBoom))},
		{name: "changed", does: once(returns(errBoom))},
		{name: "run", does: once(returns(errBoom))},
	}, play: func(r *rig) {
		r.start()
		r.state("run", "retry")
		r.operate()
		r.note("update", r.inspect.UpdateTaskPayload("default", r.id("changed"), []byte("new")))
		r.left("run", 2)
	}},
	{name: "archived tasks are run, deleted and archived", tasks: []task{
		{name: "deleted", opts: unique(asynq.MaxRetry(0)), does: once(returns(errBoom))},
		{name: "archived", opts: noRetries, does: once(returns(errBoom))},
		{name: "run", opts: noRetries, does: once(returns(errBoom))},
	}, play: func(r *rig) {
		r.start()
		r.state("run", "archived")
		r.operate()
		r.left("run", 2)
	}},
	{name: "an archived task is run, and fails", tasks: []task{{name: "a", opts: noRetries, does: []step{returns(errBoom), returns(errMinor)}}}, play: func(r *rig) {
		r.start()
		r.state("a", "archived")
		r.note("run", r.inspect.RunTask("default", r.id("a")))
		r.attempted()
	}},
	{name: "kept tasks are run, deleted and archived", tasks: []task{
		{name: "deleted", opts: kept}, {name: "archived", opts: kept}, {name: "run", opts: kept},
	}, play: func(r *rig) {
		r.start()
		r.state("run", "completed")
		r.operate()
		r.left("run", 2)
	}},
	{name: "a task that is run goes behind what is pending", tasks: []task{later("a"), {name: "b"}}, play: func(r *rig) {
		r.note("run", r.inspect.RunTask("default", r.id("a"))) // behind b
		r.start()
		r.left("a", 1)
	}},
	{name: "everything is run", tasks: everything, play: all(func(r *rig) {
		n, err := r.inspect.RunAllScheduledTasks("default")
		r.count("scheduled", n, err)
		n, err = r.inspect.RunAllRetryTasks("default")
		r.count("retry", n, err)
		n, err = r.inspect.RunAllArchivedTasks("default")
		r.count("archived", n, err)
		for _, name := range []string{"scheduled", "scheduled 2"} {
			r.left(name, 1)
		}
		for _, name := range []string{"retry", "archived"} {
			r.left(name, 2)
		}
	})},
	{name: "everything is archived", tasks: everything, play: all(func(r *rig) {
		n, err := r.inspect.ArchiveAllScheduledTasks("default")
		r.count("scheduled", n, err)
		n, err = r.inspect.ArchiveAllRetryTasks("default")
		r.count("retry", n, err)
	})},
	{name: "everything is deleted", tasks: everything, play: all(func(r *rig) {
		n, err := r.inspect.DeleteAllScheduledTasks("default")
		r.count("scheduled", n, err)
		n, err = r.inspect.DeleteAllRetryTasks("default")
		r.count("retry", n, err)
		n, err = r.inspect.DeleteAllArchivedTasks("default")
		r.count("archived", n, err)
		n, err = r.inspect.DeleteAllCompletedTasks("default")
		r.count("completed", n, err)
	})},
	{name: "everything pending is archived", tasks: []task{{name: "a", does: never}, {name: "b", does: never}}, play: func(r *rig) {
		n, err := r.inspect.ArchiveAllPendingTasks("default")
		r.count("pending", n, err)
		r.enqueue(task{name: "c"})
		r.finish()
	}},
	{name: "everything pending is deleted", tasks: []task{{name: "a", opts: unique(), does: never}, {name: "b", does: never}}, play: func(r *rig) {
		n, err := r.inspect.DeleteAllPendingTasks("default")
		r.count("pending", n, err)
		r.enqueue(task{name: "c"})
		r.finish()
	}},
	{name: "an empty queue is deleted", tasks: []task{{name: "a"}}, play: func(r *rig) {
		r.finish()
		r.note("delete", r.inspect.DeleteQueue("default", false))
		r.note("delete again", r.inspect.DeleteQueue("default", false))
	}},
	{name: "a queue with tasks is deleted", tasks: everything, play: all(func(r *rig) {
		r.note("delete", r.inspect.DeleteQueue("default", false))
		r.note("delete by force", r.inspect.DeleteQueue("default", true))
	})},
	{name: "a queue is deleted, and its client goes on", tasks: []task{{name: "a", does: never}}, play: func(r *rig) {
		r.note("delete by force", r.inspect.DeleteQueue("default", true))
		r.start()
		r.enqueue(task{name: "b"})
		r.left("b", 1)
	}},
	{name: "a pending task without its hash", differs: differsNoTask, tasks: []task{{name: "a", does: never}, {name: "b"}}, play: func(r *rig) {
		r.do([]any{"DEL", taskredis.TaskKey("default", r.id("a"))})
		r.finish()
	}},
}

// everything has tasks in all states in which they are at rest, when a server has run.
var everything = []task{
	{name: "retry", does: once(returns(errBoom))},
	{name: "archived", opts: noRetries, does: once(returns(errBoom))},
	{name: "completed", opts: kept},
	{name: "scheduled", opts: with(asynq.ProcessIn(time.Hour)), does: never},
	{name: "scheduled 2", opts: with(asynq.ProcessIn(2 * time.Hour)), does: never},
}

// all does something when everything is at rest, while the server runs.
func all(then func(r *rig)) func(r *rig) {
	return func(r *rig) {
		r.start()
		for _, name := range []string{"retry", "archived", "completed"} {
			r.state(name, name)
		}
		then(r)
	}
}

// operate has an operator run, delete and archive the tasks of those names.
func (r *rig) operate() {
	r.note("delete", r.inspect.DeleteTask("default", r.id("deleted")))
	r.note("archive", r.inspect.ArchiveTask("default", r.id("archived")))
	r.note("run", r.inspect.RunTask("default", r.id("run")))
}

// count notes how many tasks an operator has changed.
func (r *rig) count(what string, n int, err error) {
	r.note(what, n)
	r.note(what, err)
}
