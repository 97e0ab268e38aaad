package compare

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/embedded"
	"github.com/sidingq/siding/internal/testenv/poll"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func setup(t *testing.T) *redis.Client {
	t.Helper()
	server, err := embedded.Start(embedded.Config{Port: embedded.AnyPort})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// The contenders' lock is a good one of its sort: it excludes, is renewed, and frees only itself.
func TestPlainLock(t *testing.T) {
	t.Parallel()
	rdb := setup(t)
	l := plainLock{rdb, 3 * time.Second}
	nothing := func(context.Context) error { return nil }
	failed := errors.New("out of ink")
	err := l.do(t.Context(), "a", func(ctx context.Context) error {
		renewals, last := 0, l.ttl
		poll.Eventually(t, "the lock to be renewed twice", func() bool { //nolint:contextcheck // it has the test's
			if err := l.do(ctx, "a", nothing); !errors.Is(err, errBusy) {
				t.Fatalf("want the resource busy while the holder renews, have %v", err)
			}
			left := rdb.PTTL(ctx, "lock:a").Val()
			if left > last {
				renewals++
			}
			last = left
			return renewals > 1
		})
		if err := l.do(ctx, "b", nothing); err != nil {
			t.Errorf("want the other resource free, have %v", err)
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("want the error of the work, have %v", err)
	}
	if err := l.do(t.Context(), "a", nothing); err != nil {
		t.Errorf("want the lock released, have %v", err)
	}
}

func TestPlainLockLost(t *testing.T) {
	t.Parallel()
	rdb := setup(t)
	l := plainLock{rdb, 300 * time.Millisecond}
	err := l.do(t.Context(), "a", func(ctx context.Context) error {
		if err := rdb.Set(ctx, "lock:a", "another", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		poll.Eventually(t, "the context ended", func() bool { return ctx.Err() != nil }) //nolint:contextcheck // it has the test's
		return context.Cause(ctx)
	})
	if !errors.Is(err, errLost) {
		t.Errorf("want the work told of its loss, have %v", err)
	}
	if have := rdb.Get(t.Context(), "lock:a").Val(); have != "another" {
		t.Errorf("want the lock left to its new holder, have %q", have)
	}
}

// After Close nothing runs, so that nothing writes to a ledger that is closed.
func TestRecordClosed(t *testing.T) {
	t.Parallel()
	r := NewRecord()
	begun, end, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		_ = r.Run("1", func() error { close(begun); <-end; return nil })
	}()
	<-begun
	go func() { r.Close(); close(closed) }()
	poll.Eventually(t, "no more runs", func() bool {
		return errors.Is(r.Run("2", func() error { return nil }), errClosed)
	})
	select {
	case <-closed:
		t.Error("want Close to wait for the run")
	default:
	}
	close(end)
	<-closed
	if have := r.Waits([]string{"1", "3"}); have[0] == Never || have[1] != Never {
		t.Errorf("want one started, and one never, have %v", have)
	}
}
