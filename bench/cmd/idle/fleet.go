package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// A cost is what a fleet has cost.
type cost struct {
	fleet

	Sent        float64 `json:"commands_sent_per_second"`
	Run         float64 `json:"commands_run_per_second"` // those inside scripts, too
	CPU         float64 `json:"redis_cpus"`
	Connections int     `json:"connections"`
}

// timerInterval is the one of all servers here: asynq's default for it, so that it does not
// hide the rest. Siding takes it for its longest, a second.
const timerInterval = 5 * time.Second

// measure has a fleet do nothing for a while.
func measure(ctx context.Context, f fleet, watch time.Duration) (c cost, err error) {
	c.fleet = f
	server, err := redistest.Run(ctx)
	if err != nil {
		return c, err
	}
	defer server.Stop()
	var sent redisstat.Sent
	opts := &redis.UniversalOptions{Addrs: []string{server.Addr}, Dialer: sent.Dial}
	stop, err := f.start(ctx, opts)
	defer func() { err = errors.Join(err, stop(ctx)) }()
	if err != nil {
		return c, err
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	if err := sleep.For(ctx, min(watch, 5*time.Second)); err != nil { // the beginning is not typical
		return c, err
	}
	sentBefore, start := sent.Count(), time.Now()
	before, err := redisstat.ReadUsage(ctx, rdb)
	if err != nil {
		return c, err
	}
	if err := sleep.For(ctx, watch); err != nil {
		return c, err
	}
	after, err := redisstat.ReadUsage(ctx, rdb)
	if err != nil {
		return c, err
	}
	took := time.Since(start).Seconds()
	used := after.Since(before)
	c.Sent, c.Run, c.CPU = float64(sent.Count()-sentBefore)/took, float64(used.Run())/took, used.CPU.Seconds()/took
	info, err := rdb.InfoMap(ctx, "clients").Result()
	if err != nil {
		return c, err
	}
	c.Connections, err = strconv.Atoi(info["Clients"]["connected_clients"])
	c.Connections-- // ours
	return c, err
}

// start starts the servers of f. The returned function stops those that were started, also
// after an error.
func (f fleet) start(ctx context.Context, opts *redis.UniversalOptions) (stop func(context.Context) error, err error) {
	var stops []func(context.Context) error
	stop = func(ctx context.Context) error {
		errs := make([]error, len(stops))
		var all sync.WaitGroup
		for i, stop := range stops {
			all.Go(func() { errs[i] = stop(ctx) })
		}
		all.Wait()
		return errors.Join(errs...)
	}
	queues, shards := make(map[string]int), make(map[string]int)
	for i := range f.Queues {
		name := fmt.Sprintf("queue-%d", i)
		queues[name] = 1
		if f.Shards > 0 {
			shards[name] = f.Shards
		}
	}
	for range f.Servers {
		for _, v := range variants {
			if v.name != f.Variant {
				continue
			}
			var one func(context.Context) error
			if v.off {
				one, err = startOff(opts, queues)
			} else {
				one, err = startServer(ctx, opts, queue.ServerConfig{
					Asynq:  asynq.Config{Queues: queues, DelayedTaskCheckInterval: timerInterval},
					Shards: shards, Logger: slog.New(slog.DiscardHandler),
				})
			}
			if err != nil {
				return stop, err
			}
			stops = append(stops, one)
		}
	}
	return stop, nil
}

func startServer(ctx context.Context, opts *redis.UniversalOptions, cfg queue.ServerConfig) (stop func(context.Context) error, err error) {
	cfg.Handler = asynq.NotFoundHandler()
	s, err := queue.NewServer(queue.RedisOpt(*opts), cfg)
	if err != nil {
		return nil, err
	}
	return s.Shutdown, s.Start(ctx)
}

// startOff starts a plain asynq server that never asks for a task.
func startOff(opts *redis.UniversalOptions, queues map[string]int) (stop func(context.Context) error, err error) {
	rdb := redis.NewUniversalClient(opts)
	gate := gate{make(chan struct{})}
	rdb.AddHook(gate)
	s := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Concurrency: 20, Queues: queues, TaskCheckInterval: time.Millisecond, DelayedTaskCheckInterval: timerInterval, LogLevel: asynq.FatalLevel,
	})
	stop = func(context.Context) error {
		close(gate.closed)
		s.Shutdown()
		return rdb.Close()
	}
	return stop, s.Start(asynq.NotFoundHandler())
}

// A gate holds back dequeues until it is closed.
type gate struct{ closed chan struct{} }

func (g gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 6 && args[2] == 4 && strings.HasSuffix(fmt.Sprint(args[4]), ":paused") {
			<-g.closed
			cmd.SetErr(redis.Nil)
			return redis.Nil
		}
		return next(ctx, cmd)
	}
}
