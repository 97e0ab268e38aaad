package queue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

// ServerConfig configures a [Server]. The zero value works.
type ServerConfig struct {
	// Asynq is what asynq.NewServer takes, with the same meaning in every field. Four zero
	// fields have defaults that differ from asynq's:
	//
	//   - Concurrency: 20, as most tasks wait for other systems.
	//   - DelayedTaskCheckInterval: 0.5 s, so that tasks come soon after their delay.
	//   - TaskCheckInterval: 10 ms with [GuardConfig.NoNotifier], else asynq's second.
	//   - Logger: [GuardConfig.Logger].
	//
	// Names of queues are as [Options.Queue] wants them. A task that waits for its resource is
	// no failure: ErrorHandler, IsFailure and RetryDelayFunc are not asked about it.
	Asynq asynq.Config
	// Handler runs the tasks of kinds without a handler by [Handle]: your asynq.ServeMux with
	// its middleware, unchanged. A task that names a resource, by its header or by
	// [GuardConfig.Resources], runs under the lock of that resource.
	Handler asynq.Handler
	// Guard configures the locks and what else concerns guarded tasks.
	Guard GuardConfig
	// Shards says over how many asynq queues, 1 to [MaxShards], each of these queues is spread.
	// So the masters of a Redis Cluster share the load of a queue. All clients and servers need
	// the same Shards. Tasks of one resource are in one shard. Each shard has the weight of its
	// queue. The server need not serve all of these queues. A queue with shards that it serves
	// excludes StrictPriority, as asynq would empty one shard after the other.
	Shards map[string]int
}

func (c ServerConfig) withDefaults() ServerConfig {
	c.Guard = c.Guard.withDefaults()
	a := &c.Asynq
	a.Queues = served(a.Queues)
	if a.Concurrency < 1 {
		a.Concurrency = 20
	}
	if a.TaskCheckInterval <= 0 {
		a.TaskCheckInterval = defaultPoll
		if c.Guard.NoNotifier {
			a.TaskCheckInterval = sleepInterval
		}
	}
	a.DelayedTaskCheckInterval = cmp.Or(a.DelayedTaskCheckInterval, 500*time.Millisecond)
	a.ShutdownTimeout = cmp.Or(a.ShutdownTimeout, 8*time.Second)
	if a.Logger == nil {
		a.Logger = asynqLogger{c.Guard.Logger, new(logEvery)}
	}
	return c
}

// served returns those of queues that asynq serves: the ones of a weight above 0. Without any it
// returns the queue that is called default.
func served(queues map[string]int) map[string]int {
	queues = maps.Clone(queues)
	maps.DeleteFunc(queues, func(name string, weight int) bool { return weight < 1 || strings.TrimSpace(name) == "" })
	if len(queues) == 0 {
		return map[string]int{"default": 1}
	}
	return queues
}

// Validate returns an error that names the first field that cannot work. Zero
// fields stand for their defaults.
func (c ServerConfig) Validate() error {
	for _, name := range slices.Sorted(maps.Keys(c.Asynq.Queues)) {
		if want := wantName(name, maxName); want != "" {
			return fmt.Errorf("queue: queues: want names of %s, have %q", want, clip(name))
		}
	}
	c = c.withDefaults()
	if err := checkShards(c.Asynq.Queues, c.Shards); err != nil {
		return err
	}
	for _, queue := range slices.Sorted(maps.Keys(c.Asynq.Queues)) {
		if n := c.Shards[queue]; n > 0 && c.Asynq.StrictPriority {
			return fmt.Errorf("queue: shards: %s: want none with strict priority, as one shard would go before the other, have %d", queue, n)
		}
	}
	for _, d := range []struct {
		name        string
		have, least time.Duration
	}{
		{"task check interval", c.Asynq.TaskCheckInterval, time.Millisecond},
		{"delayed task check interval", c.Asynq.DelayedTaskCheckInterval, 10 * time.Millisecond},
		{"shutdown timeout", c.Asynq.ShutdownTimeout, time.Millisecond},
		{"group grace period", cmp.Or(c.Asynq.GroupGracePeriod, time.Minute), time.Second},
	} {
		if d.have < d.least {
			return fmt.Errorf("queue: %s: want %v or more, have %v", d.name, d.least, d.have)
		}
	}
	return c.Guard.validate()
}

// asynqConfig returns the configuration of asynq's server.
func (s *Server) asynqConfig() asynq.Config {
	c := s.cfg.Asynq
	c.Queues = shardQueues(c.Queues, s.cfg.Shards)
	onError := c.ErrorHandler
	c.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, t *asynq.Task, err error) {
		s.logFailure(ctx, t, err)
		if onError != nil {
			onError.HandleError(ctx, t, err)
		}
	})
	return s.guard.Wrap(c)
}
