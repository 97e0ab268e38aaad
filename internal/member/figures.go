package member

import (
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/dashboard"
	"github.com/sidingq/siding/internal/metrics"
	"github.com/sidingq/siding/queue"
)

// figures are the metrics that a member serves about its work. The zero value has none.
type figures struct {
	metrics *metrics.Metrics
	redis   redis.UniversalClient // that reads the gauges of the fleet, once watch was called
}

// newFigures returns the figures that are served.
func newFigures(cfg config.HTTP) (f figures) {
	if cfg.Address != "" && cfg.Metrics {
		f.metrics = metrics.New()
	}
	return f
}

func (f *figures) observe(e queue.Event) {
	if f.metrics != nil {
		f.metrics.Observe(e)
	}
}

// watch begins the figures of all kinds of task, and adds those of the fleet.
func (f *figures) watch(kinds []string, opts *redis.UniversalOptions, cfg queue.ServerConfig) error {
	if f.metrics == nil {
		return nil
	}
	f.metrics.Kinds(kinds)
	f.redis = queue.Redis(opts)
	inspector, err := inspect.New(f.redis, inspect.Config{Prefix: cfg.Lock.Prefix, Resources: cfg.Resources, Crashes: cfg.Recovery.Crashes})
	if err != nil {
		return err
	}
	f.metrics.Watch(inspector, cfg.Logger)
	return nil
}

// serve adds the figures to the pages.
func (f *figures) serve(pages *dashboard.Config) {
	if f.metrics != nil {
		pages.Metrics = f.metrics.Handler()
	}
}

// close closes the connections to Redis.
func (f *figures) close() error {
	if f.redis == nil {
		return nil
	}
	return f.redis.Close()
}
