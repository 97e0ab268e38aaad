package asynqdiff

import (
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/taskredis"
)

// crashes are about tasks without a resource that a dead server has left behind: their crashes are failures, as for asynq.
var crashes = []scenario{
	{
		name:  "a server dies",
		tasks: []task{{name: "a", does: once(held(returns(nil)))}},
		play: func(r *rig) { // until its lease has ended, nobody takes its task
			s := r.start()
			r.begun("a", 1)
			s.crash()
			r.enqueue(task{name: "b"})
			next := r.start()
			r.left("b", 1)
			next.shutdown()
		},
	},
	{
		name:  "a server dies, and its lease ends",
		tasks: []task{{name: "a", does: once(held(returns(nil)))}},
		play: func(r *rig) {
			s := r.start()
			r.begun("a", 1)
			s.crash()
			r.move(taskredis.LeaseKey("default"), r.id("a"), -time.Minute)
			r.recover("a")
		},
	},
	{
		name:  "the lease has just ended",
		tasks: []task{{name: "a", does: never}},
		play: func(r *rig) {
			r.orphan("a", -5*time.Second)
			r.note("it is taken back", r.recovers("a"))
		},
	},
	{
		name:  "the lease has ended",
		tasks: []task{{name: "a", headers: map[string]string{"trace": "1"}, opts: unique(), does: never}},
		play:  recovered,
	},
	{
		name:  "the lease has ended, no retries",
		tasks: []task{{name: "a", opts: unique(asynq.MaxRetry(0)), does: never}},
		play:  recovered,
	},
	{
		name: "an ended lease is no failure",
		config: func(c *asynq.Config) {
			c.IsFailure = func(err error) bool { return !errors.Is(err, asynq.ErrLeaseExpired) }
		},
		tasks: []task{{name: "a", does: never}},
		play:  recovered,
	},
	{
		name:  "the lease has ended, and the queue is paused",
		tasks: []task{{name: "a", does: never}},
		play: func(r *rig) {
			r.note("pause", r.inspect.PauseQueue("default"))
			r.orphan("a", -time.Minute)
			r.recovers("a")
		},
	},
	{
		name:  "the lease has ended in a queue that no server has",
		tasks: []task{{name: "a", opts: with(asynq.Queue("other")), does: never}},
		play: func(r *rig) {
			r.orphan("a", -time.Minute)
			r.note("it is taken back", r.recovers("a"))
		},
	},
	{
		name:  "the lease has not ended",
		tasks: []task{{name: "a", does: never}},
		play: func(r *rig) {
			r.orphan("a", 28*time.Second)
			r.note("it is taken back", r.recovers("a"))
		},
	},
	{
		name: "many leases have ended",
		play: func(r *rig) {
			for i := range 5 {
				name := fmt.Sprint("t", i)
				r.enqueue(task{name: name, does: never})
				r.orphan(name, -time.Hour)
			}
			r.start()
			for i := range 5 {
				r.released(fmt.Sprint("t", i))
			}
		},
	},
	{
		name:    "an ended lease beside that of a message that cannot be read",
		differs: differsBroken,
		play: func(r *rig) {
			r.put(task{name: "bad", does: never}, []byte("\xff no message"))
			r.orphan("bad", -time.Minute)
			r.enqueue(task{name: "a", does: never})
			r.orphan("a", -time.Minute)
			r.note("it is taken back", r.recovers("a"))
		},
	},
	{
		name:    "an ended lease of no task",
		differs: differsNoTask,
		tasks:   []task{{name: "a", does: never}},
		play: func(r *rig) {
			r.orphan("a", -time.Minute)
			r.do([]any{"DEL", taskredis.TaskKey("default", r.id("a"))})
			r.note("it is taken back", r.recovers("a"))
		},
	},
	{
		name:    "active without a lease",
		differs: "asynq leaves an active task without a lease as it is for ever; Siding gives it one, and recovers the task when that has ended",
		tasks:   []task{{name: "a", does: never}},
		play: func(r *rig) {
			r.orphan("a", -time.Minute)
			r.do([]any{"ZREM", taskredis.LeaseKey("default"), r.id("a")})
			r.note("it is taken back", r.recovers("a"))
		},
	},
}

// recovered has a server find the task a, whose lease has ended.
func recovered(r *rig) {
	r.orphan("a", -time.Minute)
	r.recover("a")
}

// recover runs a server until a task has no ended lease any more.
func (r *rig) recover(name string) {
	r.t.Helper()
	s := r.start()
	r.released(name)
	s.shutdown()
}

// released waits until a task has no ended lease any more.
func (r *rig) released(name string) {
	r.t.Helper()
	r.until(name+" to have no ended lease", func() bool { return !r.hasEndedLease(name) })
}

func (r *rig) hasEndedLease(name string) bool {
	score, err := r.redis.ZScore(r.t.Context(), taskredis.LeaseKey(r.task(name).queue()), r.id(name)).Result()
	return err == nil && time.Unix(int64(score), 0).Before(time.Now())
}

// recovers runs a server for a time, and says whether it takes a task from the active ones.
func (r *rig) recovers(name string) bool {
	r.t.Helper()
	s := r.start()
	active := taskredis.ActiveKey(r.task(name).queue())
	has := seen(r.t.Context(), others, func() bool {
		return errors.Is(r.redis.LPos(r.t.Context(), active, r.id(name), redis.LPosArgs{}).Err(), redis.Nil)
	})
	s.shutdown()
	return has
}
