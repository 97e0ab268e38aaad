package queue_test

import (
	"cmp"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

// A plain is a team's own mux on a server, on a client of the team's own.
type plain struct {
	guardConfig queue.ServerConfig
	config      asynq.Config
	onTasks     tap // sees the calls of the server

	server *queue.Server
	logs   *logs
}

// serve starts p on the bundle's queue with its stage as the handler.
func (p *plain) serve(b *bundle) {
	b.Helper()
	p.start(b, handlerOf(b.run))
}

// handlerOf returns fn as asynq's handler of jobs.
func handlerOf(fn func(context.Context, job) error) asynq.HandlerFunc {
	return func(ctx context.Context, task *asynq.Task) error {
		var j job
		if err := json.Unmarshal(task.Payload(), &j); err != nil {
			return err
		}
		return fn(ctx, j)
	}
}

// start starts p, and stops it at the test's cleanup.
func (p *plain) start(b *bundle, fn asynq.HandlerFunc) {
	b.Helper()
	p.logs = newLogs(b)
	rdb := queue.Redis(b.opts)
	b.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(p.onTasks)
	cfg := p.guardConfig
	if cfg.Logger == nil {
		cfg.Logger = p.logs.logger
	}
	cfg.Asynq = p.config
	a := &cfg.Asynq
	a.Concurrency = cmp.Or(a.Concurrency, 10)
	a.DelayedTaskCheckInterval = cmp.Or(a.DelayedTaskCheckInterval, 50*time.Millisecond)
	a.ShutdownTimeout = cmp.Or(a.ShutdownTimeout, 200*time.Millisecond)
	if a.Queues == nil {
		a.Queues = map[string]int{b.queue: 1}
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("test:", fn)
	cfg.Handler = mux
	var err error
	p.server, err = queue.NewServerFromRedisClient(rdb, cfg)
	expect.OK(b, err)
	start(b, p.server)
}

// stop may be called again.
func (p *plain) stop(tb testing.TB) {
	tb.Helper()
	shutdown(tb, p.server)
}

// enqueuePlain sends a job as a plain asynq client does: without the header that names its resource.
func (b *bundle) enqueuePlain(j job, opts ...asynq.Option) string {
	b.Helper()
	return b.enqueueTask(asynq.NewTask(j.Kind(), expect.Value(json.Marshal(j))(b)), opts...)
}

// resources names the resource of plain jobs.
func resources() map[string]queue.ResourceFunc {
	return resourcesBy(func(j job) (string, error) { return j.Res, nil })
}

func resourcesBy(name func(j job) (string, error)) map[string]queue.ResourceFunc {
	return map[string]queue.ResourceFunc{job{}.Kind(): func(payload []byte) (string, error) {
		var j job
		if err := json.Unmarshal(payload, &j); err != nil {
			return "", err
		}
		return name(j)
	}}
}

// A tap stands between a client and Redis. A tap decides whether and when a command is sent, and
// when its answer is seen. A nil tap lets all through.
type tap func(ctx context.Context, cmd redis.Cmder, send func() error) error

func (f tap) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook sends a pipeline when f sends the last of its commands. f sees the others before.
func (f tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	if f == nil {
		return next
	}
	return func(ctx context.Context, cmds []redis.Cmder) (err error) {
		for i, cmd := range cmds {
			err = f(ctx, cmd, func() error {
				if i < len(cmds)-1 {
					return nil
				}
				return next(ctx, cmds)
			})
			if err != nil {
				for _, cmd := range cmds {
					cmd.SetErr(err)
				}
				break
			}
		}
		return err
	}
}

func (f tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		send := func() error { return next(ctx, cmd) }
		if f == nil {
			return send()
		}
		err := f(ctx, cmd, send)
		if err != nil && cmd.Err() == nil {
			cmd.SetErr(err)
		}
		return err
	}
}
