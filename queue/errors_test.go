package queue_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// once fails the test if a line of err's text has the name of a package twice as a prefix, or that of taskredis at all.
func once(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: want an error", what)
		return
	}
	for line := range strings.Lines(err.Error()) {
		for _, prefix := range []string{"queue: ", "lock: ", "engine: ", "taskredis: ", "lockredis: "} {
			if strings.Count(" "+line, " "+prefix) > 1 {
				t.Errorf("%s: want %q once, have %q", what, prefix, line)
			}
		}
		if strings.Contains(line, "taskredis: ") {
			t.Errorf("%s: want no name of an internal package, have %q", what, line)
		}
	}
}

// Errors contain one another. Each text has the name of a package once.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	away := queue.RedisOpt{Addrs: []string{"127.0.0.1:1"}, MaxRetries: -1, DialerRetries: 1}
	down := queue.Redis((*redis.UniversalOptions)(&away))
	t.Cleanup(func() { _ = down.Close() })
	client := newClient(t, down)
	spread := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = spread.Close() })
	server, err := queue.NewServer(away, queue.ServerConfig{Logger: newLogs(t).logger})
	must(t, err)
	missing := b.newServer(t, queue.ServerConfig{Available: func(context.Context) error { return lock.ErrClosed }})
	asked := queue.Revocation{Resource: b.resource, By: "a test", Reason: "to see the error"}
	with := func(change func(*queue.Revocation)) queue.Revocation { r := asked; change(&r); return r }
	revoke := func(rdb redis.UniversalClient, r queue.Revocation) error {
		return errOf(queue.Revoke(t.Context(), rdb, r))
	}
	held, err := b.locker.Acquire(t.Context(), b.resource+":held", nil)
	must(t, err)
	t.Cleanup(func() { _ = held.Release(context.Background()) })
	b.enqueue(t, b.job(1), queue.Options{TaskID: "taken", UniqueFor: time.Hour})
	enqueue := func(c *queue.Client, task queue.Task, o queue.Options) error {
		o.Queue = b.queue
		return errOf(c.Enqueue(t.Context(), task, &o))
	}
	for name, err := range map[string]error{
		"no redis":       enqueue(client, b.job(1), queue.Options{}),
		"taken":          enqueue(b.client, b.job(2), queue.Options{TaskID: "taken"}),
		"duplicate":      enqueue(b.client, b.job(1), queue.Options{UniqueFor: time.Hour}),
		"bad resource":   enqueue(b.client, job{Res: "{"}, queue.Options{}),
		"bad option":     enqueue(b.client, b.job(1), queue.Options{Timeout: 1}),
		"no task":        enqueue(b.client, nil, queue.Options{}),
		"batch":          errOf(client.EnqueueBatch(t.Context(), []queue.Job{{Task: b.job(1)}})),
		"check":          errOf(queue.CheckRedis(t.Context(), down)),
		"check no one":   errOf(queue.CheckRedis(t.Context(), nil)),
		"revoke":         revoke(down, asked),
		"revoke free":    revoke(b.rdb, asked),
		"revoke another": revoke(b.rdb, with(func(r *queue.Revocation) { r.Resource, r.Fence = b.resource+":held", 1 })),
		"revoke prefix":  revoke(b.rdb, with(func(r *queue.Revocation) { r.Prefix = "{" })),
		"revoke brace":   revoke(b.rdb, with(func(r *queue.Revocation) { r.Resource = "{" })),
		"revoke no name": revoke(b.rdb, with(func(r *queue.Revocation) { r.By = " " })),
		"revoke fence":   revoke(b.rdb, with(func(r *queue.Revocation) { r.Fence = -1 })),
		"no client":      errOf(queue.NewClient(nil, queue.ClientConfig{})),
		"no options":     errOf(queue.NewServer(nil, queue.ServerConfig{})),
		"redis ring":     errOf(queue.NewServerFromRedisClient(spread, queue.ServerConfig{})),
		"bad queue":      queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{"/": 1}}}.Validate(),
		"bad shards":     queue.ServerConfig{Shards: map[string]int{"a": -1}}.Validate(),
		"bad ttl":        queue.ServerConfig{Lock: lock.Config{TTL: -1}}.Validate(),
		"traceparent":    queue.SetTraceparent(t.Context(), "x"),
		"ready":          server.Ready(t.Context()),
		"start":          server.Start(t.Context()),
		"run":            server.Run(t.Context()),
		"run again":      server.Run(t.Context()),
		"not available":  missing.Ready(t.Context()),
		"no lock": func() error {
			missing.Locker().Close()
			return missing.Locker().Do(t.Context(), "a", nil, nothing)
		}(),
	} {
		once(t, name, err)
	}
	shutdown(t, missing)
	if err := revoke(b.rdb, with(func(r *queue.Revocation) { r.Fence = -1 })); err == nil || err.Error() != "queue: revoke "+b.resource+": fence: want 0 or more, have -1" {
		t.Errorf("a negative fence: have %v", err)
	}
}

func nothing(context.Context) error { return nil }
