package asynqdiff

import (
	"bytes"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sidingq/siding/internal/taskredis"
)

// options are about what clients say when they enqueue a task, and what other producers may write.
var options = []scenario{
	{name: "a negative number of retries", tasks: []task{{name: "a", opts: with(asynq.MaxRetry(-1)), does: once(returns(errBoom))}}},
	{name: "timeouts and deadlines", tasks: []task{
		{name: "timeout", opts: with(asynq.Timeout(10 * time.Minute)), does: once(returns(errBoom))},
		{name: "deadline", deadline: 2 * time.Hour, does: once(returns(errBoom))},
		{name: "timeout after the deadline", opts: with(asynq.Timeout(3 * time.Hour)), deadline: 2 * time.Hour},
		{name: "timeout of less than a second", opts: with(asynq.Timeout(500 * time.Millisecond)), does: once(returns(errBoom))},
		{name: "longest timeout", opts: with(asynq.Timeout(1<<63 - 1))},
	}},

	{
		name:    "a timeout before a deadline",
		differs: "asynq cuts the end of an attempt to whole seconds if its task has both, so a timeout may be up to a second short; Siding's is whole",
		tasks:   []task{{name: "a", opts: with(asynq.Timeout(10 * time.Minute)), deadline: 2 * time.Hour}},
	},

	{name: "headers", tasks: []task{
		{name: "a", headers: map[string]string{"trace": "1", "": "empty", "空": "\x00"}, does: []step{returns(errBoom), returns(nil)}},
		{name: "b", headers: map[string]string{}},
		{name: "c", headers: map[string]string{"trace": "1"}, opts: kept},
	}},
	{name: "payloads", tasks: []task{
		{name: "a", payload: []byte{}, opts: noRetries, does: once(returns(errBoom))},
		{name: "b", payload: []byte("\x00\xff\xe4 binary"), opts: noRetries, does: once(returns(errBoom))},
		{name: "c", payload: bytes.Repeat([]byte("large "), 50_000), opts: noRetries, does: once(returns(errBoom))},
	}},
	{name: "names of types", tasks: []task{
		{name: "mail:send", opts: noRetries, does: once(returns(errBoom))},
		{name: " a b ", opts: noRetries, does: once(returns(errBoom))},
		{name: "任務", opts: noRetries, does: once(returns(errBoom))},
	}},
	{
		name: "names of queues",
		config: func(c *asynq.Config) {
			c.Queues, c.StrictPriority = map[string]int{"a:b": 3, "c-d": 2, "schlange mit ü": 1}, true
		},
		tasks: []task{
			{name: "a", opts: with(asynq.Queue("a:b"), asynq.Retention(time.Hour))},
			{name: "b", opts: with(asynq.Queue("c-d"), asynq.Retention(time.Hour))},
			{name: "c", opts: with(asynq.Queue("schlange mit ü"), asynq.Retention(time.Hour))},
		},
	},
	{name: "no name of a queue", tasks: []task{{name: "a", opts: with(asynq.Queue(" ")), does: never}}},

	{name: "an id twice", tasks: []task{{name: "a"}, {name: "b", id: "a", does: never}}},
	{
		name:  "an id again, when it is free",
		tasks: []task{{name: "a"}},
		play: func(r *rig) {
			r.start()
			r.state("a", "")
			r.enqueue(task{name: "b", id: "a"})
			r.attempted()
		},
	},
	{
		name:  "an id again, while its task is kept",
		tasks: []task{{name: "a", opts: kept}},
		play: func(r *rig) {
			r.finish()
			r.enqueue(task{name: "b", id: "a"})
		},
	},
	{
		name: "an id that the client makes",
		play: func(r *rig) {
			r.start()
			info, err := r.client.Enqueue(asynq.NewTask("a", nil), asynq.MaxRetry(0), asynq.Retention(time.Hour))
			r.note("enqueue", err)
			r.left("a", 1)
			r.until("the task to be kept", func() bool {
				info, err := r.inspect.GetTaskInfo("default", info.ID)
				return err == nil && info.State == asynq.TaskStateCompleted
			})
		},
	},

	{name: "a time in the past", tasks: []task{{name: "a", opts: with(asynq.ProcessIn(-time.Hour))}}},
	{name: "a time to come", tasks: []task{{name: "a", opts: with(asynq.ProcessIn(time.Hour)), does: never}, {name: "b"}}},
	{
		name: "a time that has come",
		tasks: []task{
			{name: "a", opts: with(asynq.ProcessIn(2 * time.Hour))},
			{name: "b", opts: with(asynq.ProcessIn(time.Hour))},
			{name: "c", opts: with(asynq.ProcessIn(time.Hour)), does: never},
		},
		play: func(r *rig) { // the one that was due first runs first
			r.move(taskredis.ScheduledKey("default"), r.id("a"), -time.Minute)
			r.move(taskredis.ScheduledKey("default"), r.id("b"), -time.Hour)
			r.finish()
		},
	},
	{
		name: "a time that comes",
		play: func(r *rig) {
			r.start()
			r.enqueue(task{name: "a", opts: with(asynq.ProcessIn(time.Second))})
			r.attempted()
		},
	},
	{
		name:   "more tasks than are forwarded at once",
		config: func(c *asynq.Config) { c.Concurrency = 20 },
		play: func(r *rig) {
			for i := range 250 {
				_, err := r.client.Enqueue(asynq.NewTask("many", nil), asynq.TaskID(r.id(fmt.Sprint("many", i))), asynq.ProcessIn(time.Hour))
				if err != nil {
					r.t.Fatal(err)
				}
				r.move(taskredis.ScheduledKey("default"), r.id(fmt.Sprint("many", i)), -time.Hour)
			}
			r.start()
			r.left("many", 250)
		},
	},

	{name: "retention", tasks: []task{
		{name: "an hour", opts: kept},
		{name: "two hours", opts: with(asynq.Retention(2 * time.Hour))},
		{name: "less than a second", opts: with(asynq.Retention(500 * time.Millisecond))},
		{name: "negative", opts: with(asynq.Retention(-time.Hour))},
		{name: "of a failure", opts: kept, does: once(returns(errBoom))},
		{name: "after a failure", opts: kept, does: []step{returns(errBoom), returns(nil)}},
	}},
}

// unique has the options of a task that is unique for an hour.
func unique(more ...asynq.Option) []asynq.Option {
	return append(with(asynq.Unique(time.Hour)), more...)
}

// uniqueness is about tasks that are enqueued once.
var uniqueness = []scenario{
	{name: "unique, and enqueued again afterwards", tasks: []task{
		{name: "done", opts: unique()},
		{name: "kept", opts: unique(kept...)},
		{name: "retried", opts: unique(), does: once(returns(errBoom))},
		{name: "archived", opts: unique(noRetries...), does: once(returns(errBoom))},
		{name: "revoked", opts: unique(), does: once(returns(asynq.RevokeTask))},
		{name: "skipped", opts: unique(), does: once(returns(asynq.SkipRetry))},
	}, play: func(r *rig) {
		first := r.all()
		r.finish()
		r.snapshot("before")
		for _, t := range first {
			r.enqueue(task{name: t.name, id: t.name + " again", opts: unique()})
		}
	}},
	{name: "unique, pending", tasks: []task{
		{name: "a", opts: unique()},
		{name: "a", id: "b", opts: unique()},
		{name: "a", id: "c", payload: []byte("another"), opts: unique(), does: times(2, returns(nil))},
	}},
	{
		name:  "unique, running",
		tasks: []task{{name: "a", opts: unique(), does: once(held(returns(nil)))}},
		play: func(r *rig) {
			r.start()
			r.begun("a", 1)
			r.enqueue(task{name: "a", id: "b", opts: unique()})
			r.snapshot("while it runs")
			r.open("a")
		},
	},
	{
		name: "unique, scheduled",
		tasks: []task{
			{name: "a", opts: unique(asynq.ProcessIn(time.Hour))},
			{name: "a", id: "b", opts: unique()},
		},
		play: func(r *rig) { // the key stays for the time until it runs and an hour
			r.snapshot("before")
			r.move(taskredis.ScheduledKey("default"), r.id("a"), -time.Minute)
			r.finish()
		},
	},
	{
		name:  "unique, and its key has expired",
		tasks: []task{{name: "a", opts: unique(), does: once(held(returns(nil)))}},
		play: func(r *rig) { // the key is another's in the end
			r.start()
			r.begun("a", 1)
			info, err := r.inspect.GetTaskInfo("default", r.id("a"))
			r.note("info", err)
			m, err := taskredis.DecodeMessage([]byte(r.redis.HGet(r.t.Context(), taskredis.TaskKey("default", info.ID), "msg").Val()))
			r.note("message", err)
			r.do([]any{"SET", m.UniqueKey, "another"})
			r.open("a")
		},
	},
	{name: "unique for less than a second", tasks: []task{{name: "a", opts: with(asynq.Unique(time.Millisecond)), does: never}}},
	{name: "unique, with an id that is taken", tasks: []task{
		{name: "a"},
		{name: "b", id: "a", opts: unique(), does: never},
	}},
}

// What Siding does otherwise, where several scenarios show it.
const (
	differsNoTask = "asynq keeps an id without a task among the active ones, and recovers no others once its lease has ended; Siding drops the id"
	differsBroken = "asynq leaves a message that cannot be read among the active tasks, and recovers no others while it is there; Siding takes it out and says so"
	differsNames  = "asynq ends the task that a message names, and that with the message stays active; Siding ends the one that has run"
)

// messages are about tasks that asynq's client of today does not make.
var messages = []scenario{
	{
		name: "neither a timeout nor a deadline",
		play: func(r *rig) {
			r.put(task{name: "a"}, r.message("a").Encode())
			r.finish()
		},
	},
	{
		name: "more retries than it may have",
		play: func(r *rig) {
			m := r.message("a")
			m.Retry, m.Retried = 3, 7
			r.put(task{name: "a", does: once(returns(errBoom))}, m.Encode())
			r.finish()
		},
	},
	{
		name: "a message with what an error has left",
		play: func(r *rig) { // of a task that an operator has run again
			m := r.message("a")
			m.Retried, m.ErrorMsg, m.LastFailedAt, m.Retention = 2, "before", time.Now().Add(-time.Hour).Unix(), 3600
			r.put(task{name: "a"}, m.Encode())
			r.finish()
		},
	},
	{
		name:    "a field that is not known",
		differs: "asynq drops fields of later versions when it rewrites a task; Siding keeps them",
		play: func(r *rig) {
			encoded := protowire.AppendString(protowire.AppendTag(r.message("a").Encode(), 99, protowire.BytesType), "later")
			r.put(task{name: "a", does: once(returns(errBoom))}, encoded)
			r.finish()
		},
	},
	{
		name:    "a message that cannot be read",
		differs: differsBroken,
		play: func(r *rig) {
			r.put(task{name: "a", does: never}, []byte("\xff no message"))
			r.enqueue(task{name: "b"})
			r.finish()
		},
	},
	{
		name:    "an id without a task",
		differs: differsNoTask,
		play: func(r *rig) {
			r.do([]any{"LPUSH", taskredis.PendingKey("default"), r.id("a")})
			r.enqueue(task{name: "b"})
			r.finish()
		},
	},
	{
		name:    "a message that names another queue",
		differs: differsNames,
		play: func(r *rig) {
			m := r.message("a")
			m.Queue = "other"
			r.put(task{name: "a"}, m.Encode())
			r.finish()
		},
	},
	{
		name:    "a message that names another id",
		differs: differsNames,
		play: func(r *rig) {
			m := r.message("a")
			m.ID = r.id("other")
			r.put(task{name: "a"}, m.Encode())
			r.finish()
		},
	},
}
