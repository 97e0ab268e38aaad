package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
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
	overrides, err := redisOverrides(a.flags.redis)
	if err != nil {
		return config.Config{}, err
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

// redisOverrides translates the value of --redis. Its errors do not show the
// value, which may hold a password.
func redisOverrides(value string) ([]config.Override, error) {
	if value == "" {
		return nil, nil
	}
	if !strings.Contains(value, "://") {
		return []config.Override{{Flag: "redis", Value: value}}, nil
	}
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "redis" && u.Scheme != "rediss") || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("--redis: want host:port or redis[s]://[user@]host[:port][/db]")
	}
	if _, ok := u.User.Password(); ok {
		return nil, errors.New("--redis: want no password on the command line, where others can read it: set SIDING_REDIS_PASSWORD")
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	overrides := []config.Override{{Flag: "redis", Value: net.JoinHostPort(u.Hostname(), port)}}
	if name := u.User.Username(); name != "" {
		overrides = append(overrides, config.Override{Flag: "redis-username", Value: name})
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		overrides = append(overrides, config.Override{Flag: "redis-db", Value: db})
	}
	if u.Scheme == "rediss" {
		overrides = append(overrides, config.Override{Flag: "redis-tls", Value: "true"})
	}
	return overrides, nil
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
		return nil, fmt.Errorf("redis %s: %w", strings.Join(settings.Addrs, ","), err)
	}
	return client, nil
}
