package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/internal/sleep"
)

// A gauge reads what Redis has done between the beginning and the end of a run.
type gauge struct {
	client     *redis.Client
	m          *measurement
	connecting time.Duration // what workers get to connect before the beginning, besides settle
	start      time.Time
	before     redisstat.Usage
	cancel     context.CancelFunc
	memory     chan int // one value, when it has been measured or given up
}

func (g *gauge) begin(ctx context.Context) error {
	err := sleep.For(ctx, g.connecting)
	if err != nil {
		return err
	}
	if g.before, err = redisstat.ReadUsage(ctx, g.client); err != nil {
		return err
	}
	empty, err := redisstat.Memory(ctx, g.client)
	if err != nil {
		return err
	}
	g.memory = make(chan int, 1)
	ctx, g.cancel = context.WithCancel(ctx)
	g.start = time.Now()
	go func() {
		used := empty
		if sleep.For(ctx, waited) == nil {
			if n, err := redisstat.Memory(ctx, g.client); err == nil {
				used = n
			}
		}
		g.memory <- used - empty
	}()
	return nil
}

func (g *gauge) end(ctx context.Context) error {
	g.m.took = time.Since(g.start)
	g.cancel()
	g.m.waiting, g.m.waitingAt = <-g.memory, waited
	after, err := redisstat.ReadUsage(ctx, g.client)
	if err != nil {
		return err
	}
	g.m.used = after.Since(g.before)
	return nil
}
