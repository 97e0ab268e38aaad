package taskredis

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/redistest"
)

// BenchmarkStepHot measures what a hand-off costs Redis: one task ends, and the next of its resource starts.
func BenchmarkStepHot(b *testing.B) {
	bn := &bench{t: b, rdb: redis.NewClient(&redis.Options{Addr: redistest.Start(b).Addr})}
	for i := range b.N + 1 {
		bn.pending("q", fmt.Sprint(i), "a")
	}
	s := bn.server("one")
	_, a := s.make(nil, 20, "q")
	taken := a.Taken
	for {
		_, a := s.make(nil, 19, "q")
		if !a.Drawn[0].More {
			break
		}
	}
	costs := bn.reset()
	b.ResetTimer()
	for range b.N {
		_, a := s.make(done(taken...), 20, "q")
		taken = a.Taken
	}
	b.StopTimer()
	costs(b)
}

// BenchmarkStepPark measures what it costs Redis to park a task of a crowd.
func BenchmarkStepPark(b *testing.B) {
	bn := &bench{t: b, rdb: redis.NewClient(&redis.Options{Addr: redistest.Start(b).Addr})}
	for i := range b.N + 1 {
		bn.pending("q", fmt.Sprint(i), "a")
	}
	s := bn.server("one")
	costs := bn.reset()
	b.ResetTimer()
	s.make(nil, 20, "q")
	for {
		_, a := s.make(nil, 19, "q")
		if !a.Drawn[0].More {
			break
		}
	}
	b.StopTimer()
	costs(b)
}

// BenchmarkStepFree measures a task whose resource nobody else wants, in steps of 20.
func BenchmarkStepFree(b *testing.B) {
	bn := &bench{t: b, rdb: redis.NewClient(&redis.Options{Addr: redistest.Start(b).Addr})}
	for i := range b.N {
		bn.pending("q", fmt.Sprint(i), fmt.Sprint(i))
	}
	s := bn.server("one")
	costs := bn.reset()
	b.ResetTimer()
	var taken []Taken
	for ended := 0; ended < b.N; ended += len(taken) {
		_, a := s.make(done(taken...), 20, "q")
		taken = a.Taken
	}
	b.StopTimer()
	costs(b)
}

// reset returns a function that reports what scripts have cost Redis since, for each of b.N.
func (bn *bench) reset() func(*testing.B) {
	ctx := context.Background()
	bn.rdb.ConfigResetStat(ctx)
	cpu := func() (user, sys float64) {
		for line := range strings.SplitSeq(bn.rdb.Info(ctx, "cpu").Val(), "\r\n") {
			_, _ = fmt.Sscanf(line, "used_cpu_user_main_thread:%f", &user)
			_, _ = fmt.Sscanf(line, "used_cpu_sys_main_thread:%f", &sys)
		}
		return user, sys
	}
	user, sys := cpu()
	return func(b *testing.B) {
		b.Helper()
		user2, sys2 := cpu()
		b.ReportMetric((user2-user)*1e6/float64(b.N), "user-µs/op")
		b.ReportMetric((sys2-sys)*1e6/float64(b.N), "sys-µs/op")
		var usec, calls float64
		for line := range strings.SplitSeq(bn.rdb.Info(ctx, "commandstats").Val(), "\r\n") {
			var c, u float64
			name, rest, _ := strings.Cut(line, ":")
			if _, err := fmt.Sscanf(rest, "calls=%f,usec=%f", &c, &u); err == nil {
				if name == "cmdstat_evalsha" {
					usec += u
				}
				calls += c
			}
		}
		b.ReportMetric(usec/float64(b.N), "redis-µs/op")
		b.ReportMetric(calls/float64(b.N), "commands/op")
	}
}
