package engine

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
)

func TestHealthCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		redis, log := newMemory(t), &logbook{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		type call struct {
			after time.Duration
			well  bool
		}
		var calls []call
		cfg := Config{Redis: redis, Logger: log.logger(), HealthCheck: func(err error) {
			calls = append(calls, call{time.Since(began), err == nil})
			switch len(calls) {
			case 1:
				panic("no pager")
			case 2:
				redis.away.Store(true)
				redis.cut()
				runtime.Goexit()
			case 3:
				redis.away.Store(false)
				time.Sleep(time.Minute) // the interval begins when the function returns
			}
		}}.withDefaults()
		done := make(chan struct{})
		go func() {
			defer close(done)
			checkHealth(ctx, &cfg)
		}()
		time.Sleep(2*time.Minute + time.Second)
		cancel()
		<-done
		want := []call{{15 * time.Second, true}, {30 * time.Second, true}, {45 * time.Second, false}, {2 * time.Minute, true}}
		expect.Need(t, len(calls) == len(want), "want %v, have %v", want, calls)
		for i := range want {
			if calls[i] != want[i] {
				t.Errorf("call %d: want %v, have %v", i, want[i], calls[i])
			}
		}
		n := log.count("function=HealthCheckFunc")
		expect.That(t, n == 2, "want two lines of log, have:\n%v", log)
	})
}

// The end of the server is no illness of Redis.
func TestHealthCheckThatIsEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		redis := newMemory(t)
		redis.Ping(t.Context())
		redis.hole.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second+time.Millisecond, cancel) // in the middle of a check
		checkHealth(ctx, &Config{Redis: redis, HealthCheckInterval: time.Second, HealthCheck: func(err error) { t.Errorf("want no report, have %v", err) }})
	})
}

func TestHealthCheckOfNobody(t *testing.T) {
	t.Parallel()
	checkHealth(t.Context(), &Config{})
}
