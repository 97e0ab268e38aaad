package cli

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/queue"
)

// Patience is how long Redis may take to give its first answer.
const Patience = 5 * time.Second

// ClientOptions returns the options of a client whose calls all end soon, with the name of the
// program. By default go-redis makes four attempts at a command and dials five times for each. A
// host that stays silent then costs 40 seconds.
func ClientOptions(settings config.Redis, program string) (*redis.UniversalOptions, error) {
	opts, err := settings.Options()
	if err != nil {
		return nil, err
	}
	// The second attempt gets over a connection that was closed while idle.
	opts.MaxRetries = 1
	opts.DialerRetries = 1
	opts.MaxRedirects = 3 // of a Cluster, in which the third attempt asks for the new master
	opts.ClientName = "siding-" + program
	return opts, nil
}

// Connect returns a client of the Redis that the settings name, which has
// answered. The caller closes it. The worker is that of [config.Redis.Failed].
func Connect(ctx context.Context, settings config.Redis, program, worker string) (redis.UniversalClient, error) {
	opts, err := ClientOptions(settings, program)
	if err != nil {
		return nil, err
	}
	client := queue.Redis(opts)
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		_ = client.Close() // of no use, and what is wrong is known
		return nil, settings.Failed(worker, err)
	}
	return client, nil
}
