package lockredis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
)

// A subscriber is a client that can listen on channels of Redis.
type subscriber interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// A redisListener hears what the scripts publish.
type redisListener struct {
	*redisStore

	rdb subscriber
}

// Listen follows https://redis.io/docs/latest/develop/pubsub/: Redis delivers a message at most
// once, and none while there is no connection.
func (s *redisListener) Listen(ctx context.Context, id string, heard func(), wake func(waiter string)) error {
	const checkEvery = time.Second // a ping finds a dead connection, which is then replaced
	pubsub := s.rdb.Subscribe(ctx, store.GoroutinePrefix+id)
	defer pubsub.Close()
	messages := pubsub.ChannelWithSubscriptions(redis.WithChannelHealthCheckInterval(checkEvery))
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m, open := <-messages:
			switch m := m.(type) {
			case *redis.Subscription:
				heard()
			case *redis.Message:
				wake(m.Payload)
			}
			if !open {
				return fmt.Errorf("lock: listen: %w", redis.ErrClosed)
			}
		}
	}
}
