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
}

func (g *gauge) begin(ctx context.Context) error {
	err := sleep.For(ctx, g.connecting)
	if err != nil {
		return err
	}
	if g.before, err = redisstat.ReadUsage(ctx, g.client); err != nil {
		return err
	}
	g.start = time.Now()
	return nil
}

func (g *gauge) end(ctx context.Context) error {
	g.m.took = time.Since(g.start)
	after, err := redisstat.ReadUsage(ctx, g.client)
	if err != nil {
		return err
	}
	g.m.used = after.Since(g.before)
	return nil
}
