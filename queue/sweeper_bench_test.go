package queue_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
)

// BenchmarkSweeper scans 100,000 contended locks, all of them held. It reports the time for each
// lock, and how much of that is Redis' own.
func BenchmarkSweeper(b *testing.B) {
	const locks = 100_000
	rdb := redistest.Start(b).Client(b)
	locker, err := lease.New(lock.Redis(rdb), lease.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(locker.Close)
	seed := rdb.Pipeline()
	for n := range locks {
		key := "lock:order:" + strconv.Itoa(n)
		seed.Set(b.Context(), key, "siding:1:holder", time.Hour)
		seed.ZAdd(b.Context(), "{"+key+"}:queue", redis.Z{Score: 1, Member: "siding-task:q:1"})
		seed.ZAdd(b.Context(), "siding:{q}:contended", redis.Z{Score: float64(n), Member: key})
	}
	if _, err := seed.Exec(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := rdb.ConfigResetStat(b.Context()).Err(); err != nil {
		b.Fatal(err)
	}
	looks := 0
	for b.Loop() {
		due, err := asynqredis.ListContended(b.Context(), rdb, "q", "")
		if err != nil {
			b.Fatal(err)
		}
		keys := make([]string, len(due.Locks))
		for i, l := range due.Locks {
			keys[i] = l.Key
		}
		found, err := locker.Sweep(b.Context(), keys, true)
		if err != nil {
			b.Fatal(err)
		}
		next := make([]asynqredis.Scan, len(found))
		for i := range found {
			next[i] = asynqredis.Scan{Lock: due.Locks[i]} // at once
		}
		if err := asynqredis.Scanned(b.Context(), rdb, "q", next); err != nil {
			b.Fatal(err)
		}
		looks += len(found)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(looks), "ns/look")
	stats := rdb.InfoMap(b.Context(), "commandstats").Val()["Commandstats"]
	_, usec, _ := strings.Cut(stats["cmdstat_evalsha"], "usec=")
	usec, _, _ = strings.Cut(usec, ",")
	own, err := strconv.ParseFloat(usec, 64)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(1000*own/float64(looks), "redis-ns/look")
}
