package queue_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/queue"
)

// A plain is a team's own asynq.Server with the guard added to it.
type plain struct {
	guardConfig queue.GuardConfig
	config      asynq.Config
	unhooked    bool                    // without Guard.Conn
	notifying   bool                    // on a connection made by NotifyingConn, as that of the team's clients
	unwrapped   bool                    // without Guard.Wrap
	wrapFirst   bool                    // Guard.Wrap before Guard.Conn
	locksOn     *redis.UniversalOptions // where the guard's client is, if not where the tasks are
	around      func(asynq.RedisConnOpt) asynq.RedisConnOpt
	made        func(*queue.Guard)
	unguarded   bool // without Guard.Middleware
	outermost   asynq.MiddlewareFunc
	inFront     tap // sees asynq's calls before the guard does
	onTasks     tap // sees asynq's calls as they go to Redis, changed by the guard
	onLocks     tap // sees the guard's own calls

	guard  *queue.Guard
	server *asynq.Server
	logs   *logs
}

// serve starts p on the bundle's queue with st as its handler, and stops it at
// the test's cleanup.
func (p *plain) serve(t *testing.T, b *bundle, st *stage) {
	t.Helper()
	p.start(t, b, handlerOf(st.run))
	t.Cleanup(func() { p.stop(t) })
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

func (p *plain) start(t *testing.T, b *bundle, fn asynq.HandlerFunc) {
	t.Helper()
	logs := newLogs(t)
	p.logs = logs
	locks := queue.Redis(cmp.Or(p.locksOn, b.opts))
	t.Cleanup(func() { _ = locks.Close() })
	locks.AddHook(p.onLocks)
	if p.guardConfig.Logger == nil {
		p.guardConfig.Logger = logs.logger
	}
	var err error
	if p.guard, err = queue.NewGuard(locks, p.guardConfig); err != nil {
		t.Fatal(err)
	}
	if p.made != nil {
		p.made(p.guard)
	}
	cfg := p.config
	cfg.Concurrency = cmp.Or(cfg.Concurrency, 10)
	cfg.TaskCheckInterval = cmp.Or(cfg.TaskCheckInterval, 10*time.Millisecond)
	cfg.DelayedTaskCheckInterval = cmp.Or(cfg.DelayedTaskCheckInterval, 50*time.Millisecond)
	cfg.ShutdownTimeout = cmp.Or(cfg.ShutdownTimeout, 200*time.Millisecond)
	if cfg.Queues == nil {
		cfg.Queues = map[string]int{b.queue: 1}
	}
	cfg.Logger = plainLogger{logs.logger}
	conn := asynq.RedisConnOpt(connOf(func() any {
		client := queue.Redis(b.opts)
		client.AddHook(p.inFront) // the first one added is the nearest to asynq
		return client
	}))
	if p.notifying {
		conn = queue.NotifyingConn(conn)
	}
	if p.wrapFirst {
		cfg = p.guard.Wrap(cfg)
	}
	if p.around != nil {
		conn = p.around(conn)
	}
	if !p.unhooked {
		conn = p.guard.Conn(conn)
	}
	if !p.unwrapped && !p.wrapFirst {
		cfg = p.guard.Wrap(cfg)
	}
	p.server = asynq.NewServer(connOf(func() any {
		made := conn.MakeRedisClient()
		if client, ok := made.(redis.UniversalClient); ok {
			client.AddHook(p.onTasks) // the last one added is the nearest to Redis
		}
		return made
	}), cfg)
	mux := asynq.NewServeMux()
	if p.outermost != nil {
		mux.Use(p.outermost)
	}
	if !p.unguarded {
		mux.Use(p.guard.Middleware)
	}
	mux.HandleFunc("test:", fn)
	if err := p.server.Start(mux); err != nil {
		t.Fatal(err)
	}
}

// stop may be called again.
func (p *plain) stop(t *testing.T) {
	t.Helper()
	p.server.Shutdown()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.guard.Wait(ctx); err != nil {
		t.Errorf("wait: %v", err)
	}
}

// plainTask is a job as a plain asynq client sends it: without the guard's header.
func plainTask(t *testing.T, j job) *asynq.Task {
	t.Helper()
	payload, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	return asynq.NewTask(j.Kind(), payload)
}

// enqueuePlain sends a job through a plain asynq client.
func (b *bundle) enqueuePlain(t *testing.T, j job, opts ...asynq.Option) string {
	t.Helper()
	client := asynq.NewClientFromRedisClient(b.rdb)
	info, err := client.EnqueueContext(t.Context(), plainTask(t, j), append(opts, asynq.Queue(b.queue))...)
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// resources names the resource of plain jobs.
func resources() map[string]queue.ResourceFunc {
	return map[string]queue.ResourceFunc{job{}.Kind(): func(payload []byte) (string, error) {
		var j job
		if err := json.Unmarshal(payload, &j); err != nil {
			return "", err
		}
		return j.Res, nil
	}}
}

type connOf func() any

func (f connOf) MakeRedisClient() any { return f() }

// plainLogger is what a team's own asynq.Server logs to.
type plainLogger struct{ logger *slog.Logger }

func (l plainLogger) Debug(...any)      {}
func (l plainLogger) Info(args ...any)  { l.write(slog.LevelInfo, args) }
func (l plainLogger) Warn(args ...any)  { l.write(slog.LevelWarn, args) }
func (l plainLogger) Error(args ...any) { l.write(slog.LevelError, args) }
func (l plainLogger) Fatal(args ...any) { l.write(slog.LevelError, args) }

func (l plainLogger) write(level slog.Level, args []any) {
	l.logger.Log(context.Background(), level, "plain asynq", "message", fmt.Sprint(args...))
}

// A tap stands between a client and Redis. A tap decides whether and when a command is sent, and
// when its answer is seen. A nil tap lets all through.
type tap func(ctx context.Context, cmd redis.Cmder, send func() error) error

func (f tap) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook lets f see the commands of a pipeline once they have been sent.
func (f tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	if f == nil {
		return next
	}
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if cmd.Err() != nil {
				continue
			}
			if lost := f(ctx, cmd, cmd.Err); lost != nil {
				cmd.SetErr(lost)
				err = lost
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

// hasKeys reports whether cmd is a script call on these keys, given by what they
// contain.
func hasKeys(cmd redis.Cmder, parts ...string) bool {
	args := cmd.Args()
	if len(args) < 3+len(parts) || !strings.HasPrefix(fmt.Sprint(args[0]), "eval") || fmt.Sprint(args[2]) != fmt.Sprint(len(parts)) {
		return false
	}
	for i, part := range parts {
		if !strings.Contains(fmt.Sprint(args[3+i]), part) {
			return false
		}
	}
	return true
}

func isPark(cmd redis.Cmder) bool {
	return hasKeys(cmd, ":t:", ":active", ":lease", ":retry", ":pending", ":notify", ":contended")
}

func isDequeue(cmd redis.Cmder) bool {
	return hasKeys(cmd, ":pending", ":paused", ":active", ":lease", ":notify", ":retry", ":contended")
}

func isWake(cmd redis.Cmder) bool {
	return hasKeys(cmd, ":t:", ":retry", ":pending", ":paused", ":notify")
}

func isSilent(cmd redis.Cmder) bool { return hasKeys(cmd, ":lease") && len(cmd.Args()) == 8 }

// isAcquire knows the call by the number of its arguments. That of the recovery's
// election is not meant.
func isAcquire(cmd redis.Cmder) bool {
	return hasKeys(cmd, "lock:", ":fence", ":queue", ":paused") && len(cmd.Args()) == 18 && !hasKeys(cmd, "siding-recovery:", ":fence", ":queue", ":paused")
}
