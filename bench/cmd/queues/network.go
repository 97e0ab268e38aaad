package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/delay"
	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/bench/internal/report"
)

// longestRTT is more than workers and their Redis have between them.
const longestRTT = 100 * time.Millisecond

// link returns the address of a Redis as contenders reach it, and a function to call when they are done. With an rtt that is
// a proxy, which holds the bytes of a round trip back for so long. A round trip takes a bit longer than that, see roundTrip.
func link(ctx context.Context, redis string, rtt time.Duration) (far string, closeLink func(), err error) {
	if rtt == 0 {
		return redis, func() {}, nil
	}
	proxy, err := delay.Start(ctx, delay.Line{OneWay: rtt / 2, Network: "tcp", Server: redis})
	if err != nil {
		return "", nil, err
	}
	return proxy.Addr, proxy.Stop, nil
}

// roundTrip returns that of an empty script, in the middle of many, or of some where each takes long.
func roundTrip(ctx context.Context, addr string, rtt time.Duration) (time.Duration, error) {
	const many, some, budget = 300, 20, 300 * time.Millisecond
	count := many
	if rtt > 0 {
		count = max(some, min(many, int(budget/rtt)))
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	took, err := redisstat.RoundTrip(ctx, client, count)
	if err != nil {
		return 0, err
	}
	return report.Percentile(took, 50), nil
}
