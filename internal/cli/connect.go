package cli

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/queue"
)

// Patience is how long a program waits for the first answer of Redis.
const Patience = 5 * time.Second

// ClientOptions returns the options of a client that gives up soon, with the name of the program. By
// default go-redis makes four attempts at a command and dials five times for each. A host that does
// not answer then costs 40 s. The error is that of a setting.
func ClientOptions(settings config.Config, program string) (*redis.UniversalOptions, error) {
	opts, err := settings.RedisOptions()
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

// Connect returns a client of the Redis that the settings name, once that Redis has answered. The
// caller closes the client. The error is that of a setting; or a [Fault], by [config.Redis.Failed], to which
// worker goes.
func Connect(ctx context.Context, settings config.Config, program, worker string) (redis.UniversalClient, error) {
	opts, err := ClientOptions(settings, program)
	if err != nil {
		return nil, err
	}
	client := queue.Redis(opts)
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		_ = client.Close() // err says what is wrong
		return nil, Fault(settings.Redis.Failed(worker, err))
	}
	return client, nil
}
