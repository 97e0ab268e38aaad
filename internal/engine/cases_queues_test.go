package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
)

// TestThousandQueues: a server with a thousand queues costs Redis at most twice what asynq's costs it, while all queues have tasks
// and while none has.
func TestThousandQueues(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	const each, rounds, idle = 20, 2, 5 * time.Second
	queues := make(map[string]int)
	for i := range 1000 {
		queues[fmt.Sprintf("queue%04d", i)] = 1
	}
	drains := map[string]func(f *fleet) (stop func()){
		"asynq": func(f *fleet) func() {
			s := asynq.NewServer(asynq.RedisClientOpt{Addr: f.addr}, asynq.Config{Queues: queues, Concurrency: 20, LogLevel: asynq.ErrorLevel})
			expect.OK(t, s.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })))
			return s.Shutdown
		},
		"Siding": func(f *fleet) func() {
			n := f.node(newLedger(t), always(0), slots(20), func(c *Config) { c.Queues = queues })
			return func() { n.shut(t) }
		},
	}
	busiest, idlest := make(map[string]time.Duration), make(map[string]time.Duration) // the least of the rounds
	for range rounds {
		for name, start := range drains {
			f := newFleet(t)
			for queue := range queues {
				f.crowd(queue, each, "")
			}
			before := f.cpu()
			stop := start(f)
			f.within(15*time.Minute, func() error { // Redis' time counts, not the machine's
				for queue := range queues {
					if err := f.taken(queue)(); err != nil {
						_ = sleep.For(t.Context(), 100*time.Millisecond) // as looking costs, too
						return err
					}
				}
				return nil
			})
			busy := f.cpu() - before
			_ = sleep.For(t.Context(), 3*time.Second) // until it knows
			before = f.cpu()
			_ = sleep.For(t.Context(), idle)
			rest := f.cpu() - before
			stop()
			t.Logf("%s: %v of Redis for %d tasks, %v for %v without any", name, busy, each*len(queues), rest, idle)
			if old, ok := busiest[name]; !ok || busy < old {
				busiest[name] = busy
			}
			if old, ok := idlest[name]; !ok || rest < old {
				idlest[name] = rest
			}
		}
	}
	if busiest["Siding"] > 2*busiest["asynq"] {
		t.Errorf("with tasks: want at most twice %v, have %v", busiest["asynq"], busiest["Siding"])
	}
	if idlest["Siding"] > 2*idlest["asynq"] {
		t.Errorf("without tasks: want at most twice %v, have %v", idlest["asynq"], idlest["Siding"])
	}
}

// cpu returns how long Redis has been at work.
func (f *fleet) cpu() (used time.Duration) {
	f.t.Helper()
	info, err := f.rdb.Info(context.Background(), "cpu").Result()
	expect.OK(f.t, err)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			expect.OK(f.t, err)
			used += time.Duration(seconds * float64(time.Second))
		}
	}
	return used
}
