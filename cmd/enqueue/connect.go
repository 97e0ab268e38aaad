package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/queue"
)

// patience is how long Redis may take to give its first answer.
const patience = 5 * time.Second

// settings returns where Redis is and which queues have shards. The flag, the environment, the file
// or the default says so, in this order.
func (a *app) settings() (config.Config, error) {
	var overrides []config.Override
	if a.flags.redis != "" {
		overrides = append(overrides, config.Override{Flag: "redis", Value: a.flags.redis})
	}
	return config.Sources{File: a.flags.config, Environ: a.environ, Flags: overrides}.Load()
}

// clientOptions returns the options of a client whose calls all end soon. By default go-redis makes
// four attempts at a command and dials five times for each. A host that stays silent then costs 40
// seconds.
func clientOptions(settings config.Redis) (*redis.UniversalOptions, error) {
	opts, err := settings.Options()
	if err != nil {
		return nil, err
	}
	// The second attempt gets over a connection that was closed while idle.
	opts.MaxRetries = 1
	opts.DialerRetries = 1
	opts.MaxRedirects = 3 // of a Cluster, in which the third attempt asks for the new master
	opts.ClientName = "siding-enqueue"
	return opts, nil
}

// connect returns a client of the Redis that the settings name, which has
// answered. The caller closes it.
func connect(ctx context.Context, settings config.Redis) (redis.UniversalClient, error) {
	opts, err := clientOptions(settings)
	if err != nil {
		return nil, err
	}
	client := queue.Redis(opts)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		_ = client.Close() // of no use, and what is wrong is known
		return nil, settings.Failed("worker", err)
	}
	return client, nil
}
