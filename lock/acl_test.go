package lock_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
)

// TestHolderWithoutChannels: a holder that may not publish can release all the same. The waiter
// that it cannot wake comes at its fallback time.
func TestHolderWithoutChannels(t *testing.T) {
	t.Parallel()
	s := setUp(t, redistest.Shared(t).Client(t), lock.Config{})
	const user = "without-channels"
	if err := s.rdb.Do(t.Context(), "ACL", "SETUSER", user, "on", "nopass", "+@all", "~*", "resetchannels").Err(); err != nil {
		t.Fatal(err)
	}
	options := *redistest.Shared(t).Client(t).Options()
	options.Username, options.Password = user, "any"
	client := redis.NewClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	holder := *s
	holder.rdb = client
	held := holder.take("")

	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = s.Acquire(ctx, s.res, &lock.Options{Wait: lock.Forever})
	}()
	poll.Eventually(t, "a queued waiter", func() bool { return len(s.queue()) > 0 })
	s.release(held)
	if have := s.value(); have != "" {
		t.Errorf("want the lock free, have %q", have)
	}
	cancel()
	<-gone
}
