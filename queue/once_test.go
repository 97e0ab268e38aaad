package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/queue"
)

// A resender sends each call twice, as a client does that has not got the first answer.
type resender struct{}

func (resender) DialHook(next redis.DialHook) redis.DialHook { return next }

func (resender) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_ = next(ctx, cmd)
		return next(ctx, cmd)
	}
}

func (resender) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		_ = next(ctx, cmds)
		return next(ctx, cmds)
	}
}

// A call that has stored its task says so, also when the client sends the call again after a lost
// answer. Another call's task is a conflict all the same.
func TestEnqueueSentTwice(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts queue.Options
		want error // of the next call
	}{
		"id":                  {queue.Options{TaskID: "a"}, queue.ErrTaskIDConflict},
		"id, later":           {queue.Options{TaskID: "a", Delay: time.Hour}, queue.ErrTaskIDConflict},
		"unique":              {queue.Options{UniqueFor: time.Hour}, queue.ErrDuplicate},
		"unique, later":       {queue.Options{UniqueFor: time.Hour, Delay: time.Hour}, queue.ErrDuplicate},
		"unique with an id":   {queue.Options{UniqueFor: time.Hour, TaskID: "a"}, queue.ErrDuplicate},
		"neither":             {queue.Options{}, nil},
		"neither, later":      {queue.Options{Delay: time.Hour}, nil},
		"unique, id, later":   {queue.Options{UniqueFor: time.Hour, TaskID: "a", Delay: time.Hour}, queue.ErrDuplicate},
		"unique, for a while": {queue.Options{UniqueFor: time.Minute}, queue.ErrDuplicate},
	} {
		for how, enqueue := range map[string]func(*queue.Client, context.Context, queue.Task, *queue.Options) error{
			"alone": func(c *queue.Client, ctx context.Context, task queue.Task, o *queue.Options) error {
				_, err := c.Enqueue(ctx, task, o)
				return err
			},
			"in a batch": func(c *queue.Client, ctx context.Context, task queue.Task, o *queue.Options) error {
				results, err := c.EnqueueBatch(ctx, []queue.Job{{Task: task, Options: o}})
				return errors.Join(err, results[0].Err)
			},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				onBothPaths(t, func(t *testing.T, b *bundle) {
					t.Helper()
					rdb := queue.Redis(b.opts)
					t.Cleanup(func() { _ = rdb.Close() })
					rdb.AddHook(resender{})
					client := newClient(t, rdb)
					opts := tt.opts
					opts.Queue = b.queue
					if err := enqueue(client, t.Context(), b.job(1), &opts); err != nil {
						t.Errorf("want it stored, have %v", err)
					}
					if info := b.stats(t); info.Size != 1 {
						t.Errorf("want one task, have %d", info.Size)
					}
					if err := enqueue(client, t.Context(), b.job(1), &opts); !errors.Is(err, tt.want) {
						t.Errorf("the next call: want %v, have %v", tt.want, err)
					}
				})
			})
		}
	}
}
