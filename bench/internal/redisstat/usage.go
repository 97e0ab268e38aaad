// Package redisstat reads what a Redis has done, and what clients sent to it.
package redisstat

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/report"
)

// Usage is what a Redis has done and spent so far.
type Usage struct {
	Calls map[string]int // how often each command was run, but for those that open connections
	CPU   time.Duration
}

// setUp are the commands by which clients open connections, and our own.
var setUp = []string{
	"auth", "hello", "select", "ping", "command", "client|setinfo", "client|setname", "client|tracking",
	"client|maint_notifications", "info",
}

// ReadUsage asks client's Redis.
func ReadUsage(ctx context.Context, client redis.UniversalClient) (Usage, error) {
	info, err := client.InfoMap(ctx, "commandstats", "cpu").Result()
	if err != nil {
		return Usage{}, err
	}
	u := Usage{Calls: make(map[string]int)}
	for name, stats := range info["Commandstats"] {
		// cmdstat_get:calls=5,usec=10,...
		name = strings.TrimPrefix(name, "cmdstat_")
		if slices.Contains(setUp, name) {
			continue
		}
		digits, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
		if u.Calls[name], err = strconv.Atoi(digits); err != nil {
			return Usage{}, fmt.Errorf("commandstats: %s: %w", name, err)
		}
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][name], 64)
		if err != nil {
			return Usage{}, fmt.Errorf("cpu: %s: %w", name, err)
		}
		u.CPU += time.Duration(seconds * float64(time.Second))
	}
	return u, nil
}

// Since returns what came about since before.
func (u Usage) Since(before Usage) Usage {
	d := Usage{Calls: make(map[string]int), CPU: u.CPU - before.CPU}
	for name, n := range u.Calls {
		d.Calls[name] = n - before.Calls[name]
	}
	return d
}

// Run returns how many commands were run, those inside scripts included.
func (u Usage) Run() int {
	n := 0
	for _, calls := range u.Calls {
		n += calls
	}
	return n
}

// Scripts returns how many scripts were run.
func (u Usage) Scripts() int { return u.Calls["eval"] + u.Calls["evalsha"] }

// Memory returns the bytes in use in client's Redis, but for those of its connections.
func Memory(ctx context.Context, client *redis.Client) (int, error) {
	info, err := client.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	used, err := strconv.Atoi(info["Memory"]["used_memory"])
	if err != nil {
		return 0, fmt.Errorf("memory: %w", err)
	}
	connections, err := strconv.Atoi(info["Memory"]["mem_clients_normal"])
	if err != nil {
		return 0, fmt.Errorf("memory: %w", err)
	}
	return used - connections, nil
}

// RoundTrip returns how long an empty script takes in the middle, from a client with nothing else to do. No lock can be faster.
func RoundTrip(ctx context.Context, addr string) (time.Duration, error) {
	const many, some, budget = 300, 20, 300 * time.Millisecond // a network makes each take long
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	script := redis.NewScript("return 1")
	if err := script.Run(ctx, client, nil).Err(); err != nil {
		return 0, err
	}
	var took []time.Duration
	for begin := time.Now(); len(took) < some || len(took) < many && time.Since(begin) < budget; {
		start := time.Now()
		if err := script.Run(ctx, client, nil).Err(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
	}
	return report.Percentile(took, 50), nil
}
