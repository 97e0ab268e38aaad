package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/queue"
)

const (
	// patience bounds each step that waits for Redis alone: the first answer,
	// and reading and saving a checkpoint.
	patience = 5 * time.Second
	// defaultConfig is read when no other file is named and it is there.
	defaultConfig = "config.yaml"
)

// settings returns where Redis is and which queues have shards: by the flag, the
// environment, the file or the default, in this order.
func (a *app) settings() (config.Config, error) {
	if err := config.CheckEnv(a.environ); err != nil {
		return config.Config{}, err
	}
	var overrides []config.Override
	if a.flags.redis != "" {
		overrides = append(overrides, config.Override{Flag: "redis", Value: a.flags.redis})
	}
	path := a.flags.config
	if path == "" {
		path, _ = a.lookupEnv("SIDING_CONFIG")
	}
	if path == "" {
		// Any other error than its absence is told when it is read.
		if _, err := os.Stat(defaultConfig); !errors.Is(err, os.ErrNotExist) {
			path = defaultConfig
		}
	}
	return config.Load(path, a.lookupEnv, overrides...)
}

func (a *app) lookupEnv(name string) (string, bool) {
	for _, entry := range a.environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// clientOptions returns the options of a client whose calls all end soon. After
// a fault that is no refusal, go-redis would dial five times for each of four
// attempts at a command: against a host that answers nothing, 40 seconds.
func clientOptions(settings config.Redis) (*redis.UniversalOptions, error) {
	opts, err := settings.Options()
	if err != nil {
		return nil, err
	}
	// The second attempt gets over a connection that was closed while idle.
	opts.MaxRetries = 1
	opts.DialerRetries = 1
	opts.MaxRedirects = 3 // in a Cluster, where the third attempt asks who is the master by then
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
		return nil, settings.Failed(err)
	}
	return client, nil
}
