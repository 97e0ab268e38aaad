// Package asynqhandler runs handlers of asynq, such as a ServeMux with its middleware, on Siding's server.
//
// A handler of asynq may ask for more than its arguments hold: asynq.GetTaskID and its like read the
// context, and Task.ResultWriter writes to Redis. asynq's own server provides for both with parts of asynq
// that are private. This package uses the same parts, and is the only one that knows them: see layout.go. A
// later asynq may change them. Then [New] returns an error that says so, and no server starts: handlers by
// queue.Handle are given an asynq.Task with its ResultWriter, too. Clients and package lock do not mind.
package asynqhandler

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/taskredis"
)

// New makes h a handler of Siding's server. The task and asynq's functions of the context give h what they
// give on asynq's server. The context is the one that the server made: its values, its deadline and the
// cause of its end are the server's.
//
// Two things differ from asynq's server. A result is kept only while the attempt runs and is the task's
// latest; else Write changes nothing and returns an error, where asynq's would replace the result of a
// later attempt, or leave a part of a task that was deleted. And what h changes in the map of headers is
// gone with the attempt, where asynq's server keeps it if the task is tried again.
//
// An error says that h is nil, or what is not as it was in the versions of asynq that this package knows.
func New(rdb redis.UniversalClient, h asynq.Handler) (engine.Handler, error) {
	if h == nil { // as a middleware may return
		return nil, errors.New("asynqhandler: want a handler, have nil")
	}
	l, err := newLayout(asynqVersion())
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, t *engine.Task) error {
		return l.process(ctx, h, t.Message, func(ctx context.Context, result []byte) error {
			return taskredis.WriteResult(ctx, rdb, t.Taken.Name, result)
		})
	}, nil
}

// Run runs a task with h as [New] has it, for tests without a server: results are kept nowhere.
func Run(ctx context.Context, h asynq.Handler, m *taskredis.Message) error {
	l, err := newLayout(asynqVersion()) //nolint:contextcheck // what it tries has none
	if err != nil {
		return err
	}
	return l.process(ctx, h, m, func(context.Context, []byte) error { return nil })
}

// NewErrorHandler makes h what Siding's server calls with the error of an attempt that has failed. The task, the
// functions of the context and the error give h what they give on asynq's server. As there, the task has no
// ResultWriter, and the context may have ended.
//
// An error says what is not as it was, as that of [New] does.
func NewErrorHandler(h asynq.ErrorHandler) (func(ctx context.Context, t *engine.Task, err error), error) {
	l, err := newLayout(asynqVersion())
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, t *engine.Task, err error) {
		h.HandleError(l.context(ctx, t.Message), engine.AsynqTask(t.Message), err)
	}, nil
}

// process calls h for an attempt at a task. write keeps a result of the attempt.
func (l *layout) process(ctx context.Context, h asynq.Handler, m *taskredis.Message, write func(context.Context, []byte) error) error {
	ctx = l.context(ctx, m)
	t := engine.AsynqTask(m)
	l.setWriter(ctx, t, m, &resultClient{task: m, write: func(result []byte) error { return write(ctx, result) }})
	return h.ProcessTask(ctx, t)
}

// A resultClient is what a ResultWriter believes to be Redis. Each attempt has its own, as asynq calls it
// with neither the context nor the name of the attempt.
type resultClient struct {
	redis.UniversalClient // nil, as nothing but HSet is called

	task  *taskredis.Message
	write func(result []byte) error
}

// HSet is the call with which asynq keeps a result.
func (c *resultClient) HSet(ctx context.Context, key string, values ...any) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx, "hset", key)
	if err := c.set(key, values); err != nil {
		cmd.SetErr(err)
	}
	return cmd
}

func (c *resultClient) set(key string, values []any) error {
	if key == taskredis.TaskKey(c.task.Queue, c.task.ID) && len(values) == 2 && values[0] == "result" {
		if result, ok := values[1].([]byte); ok {
			return c.write(result)
		}
	}
	return fmt.Errorf("asynqhandler: want asynq to set the result of the task, have it set %s", key)
}
