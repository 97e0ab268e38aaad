package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// A guard's three parts work together only. If Conn or Wrap is missing, or is another guard's, no
// guarded task runs. Conn finds the fault at the first dequeue, before a task is taken, and
// Middleware at the first guarded task. If Middleware is missing, Conn finds that when a guarded
// task is done.

// errRedisRing refuses a client that spreads keys over independent servers.
var errRedisRing = errors.New("queue: a redis.Ring spreads keys over servers that know nothing of one another; want a Redis, one with Sentinel, or a Cluster")

func isRedisRing(rdb any) bool {
	_, spreads := rdb.(*redis.Ring)
	return spreads
}

// checkClient refuses a nil client and a redis.Ring.
func checkClient(rdb redis.Scripter) error {
	switch {
	case rdb == nil:
		return errors.New("queue: redis: want a client, such as one made by Redis, have none")
	case isRedisRing(rdb):
		return errRedisRing
	}
	return nil
}

// guards reports whether a task is guarded, by all that is known before its handler starts.
func (g *Guard) guards(kind string, headers map[string]string) bool {
	_, named := headers[HeaderResource]
	_, ours := g.cfg.Resources[kind]
	return named || ours
}

// check returns why no task may be taken. The hook calls check before the first task on a
// connection of Conn, and when a guarded task is done that did not pass through Middleware.
func (g *Guard) check(ctx context.Context, tasks redis.ProcessHook) error {
	err := g.checkWiring(ctx, tasks)
	if err != nil && ctx.Err() == nil {
		g.faults.fault(ctx, g.cfg.Logger, "no tasks are taken", err)
	}
	return err
}

func (g *Guard) checkWiring(ctx context.Context, tasks redis.ProcessHook) error {
	switch {
	case g.redisRing.Load():
		return errRedisRing
	case g.hook.Unguarded():
		return errors.New("queue: a guarded task has run on a server whose handler did not pass through Guard.Middleware")
	case !g.wrapped.Load():
		return errors.New("queue: the server's connection passed through Guard.Conn, but no asynq.Config through Guard.Wrap")
	}
	return g.checkRedis(ctx, tasks)
}

// checkRedis writes through the server's connection and reads through the guard's client. A guard
// whose client reaches another Redis, or another database, would lock there and wake nobody. On a
// single Redis it writes keys of several slots at once, as the guard's scripts do. A proxy that
// sends each key to another server refuses that, or loses some.
func (g *Guard) checkRedis(ctx context.Context, tasks redis.ProcessHook) error {
	const lasts = 10 * time.Second
	n := 8
	if !oneStep(g.rdb) {
		n = 1
	}
	const write = "for i = 1, #KEYS do redis.call('SET', KEYS[i], '1', 'PX', ARGV[1]) end return 1"
	args := []any{"eval", write, n}
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "siding:{probe-" + uuid.NewString() + "}"
		args = append(args, keys[i])
	}
	if err := tasks(ctx, redis.NewCmd(ctx, append(args, lasts.Milliseconds())...)); err != nil {
		return fmt.Errorf("queue: the server's connection takes no writes of several keys by one script: %w", err)
	}
	for _, key := range keys {
		there, err := g.rdb.Eval(ctx, "return redis.call('DEL', KEYS[1])", []string{key}).Int()
		if err != nil {
			return fmt.Errorf("queue: the guard's client does not read what the server's connection has written: %w", err)
		}
		if there != 1 {
			return errors.New("queue: the guard's client and the server's connection reach different Redis servers or databases, or a proxy; want the same one")
		}
	}
	return nil
}

// unwired returns which part of the guard the server of a guarded task lacks, "" if none.
func (r *run) unwired(ctx context.Context) string {
	wrapped, _ := ctx.Value(guardKey{}).(*Guard)
	unhooked := r.attempt == nil
	switch {
	case wrapped == nil && unhooked:
		return "the server's connection did not pass through Guard.Conn, nor its asynq.Config through Guard.Wrap"
	case wrapped == nil:
		return "the server's asynq.Config did not pass through Guard.Wrap"
	case wrapped != r.Guard:
		return "the server's asynq.Config passed through Guard.Wrap of another guard than its Guard.Middleware is of"
	case unhooked:
		return "the server's connection did not pass through Guard.Conn of the guard that its Guard.Middleware is of"
	}
	return ""
}

// refuse keeps a guarded task from running on a server that lacks a part of the guard. The task
// uses no retry and is not archived. A task that asynq would archive waits in its worker until its
// context ends, and a shutdown of the server requeues it.
func (r *run) refuse(ctx context.Context, missing string) error {
	r.log().ErrorContext(ctx, "a guarded task was refused", "missing", missing)
	e := &parkedError{reason: "siding: " + missing, after: unwiredDelay}
	_, wrapped := ctx.Value(guardKey{}).(*Guard)
	if r.attempt != nil || wrapped && r.info.Retried < r.info.Retries {
		return r.park(e)
	}
	<-ctx.Done()
	return e
}

// hooked returns client, which one server uses, with the guard's hook.
func (g *Guard) hooked(client redis.UniversalClient) redis.UniversalClient {
	if isRedisRing(client) {
		g.redisRing.Store(true)
	}
	client.AddHook(g.hook.Server(g.notifier.Fetcher()))
	return client
}
