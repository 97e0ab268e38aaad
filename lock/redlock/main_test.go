package redlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sidingq/siding/lock"
)

func TestMain(m *testing.M) {
	// The pool of a client whose server was down looks every second whether the server is back.
	// Only then does the pool see that it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// patience bounds every wait for something that must happen; only a test that
// fails waits for its end.
const patience = time.Minute

// brief is the configuration of tests in which a lock expires.
var brief = lock.Config{TTL: time.Second, RenewEvery: 200 * time.Millisecond, SafetyMargin: 200 * time.Millisecond}

// ended waits until ctx has ended and returns the cause.
func ended(t *testing.T, ctx context.Context) error { //nolint:revive // t first, as in every helper
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		t.Fatal("want the context ended, have it alive")
		return nil
	}
}

// must ends a test of which a step has failed.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// wantBroken checks an error of the nodes.
func wantBroken(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || errors.Is(err, lock.ErrBusy) || errors.Is(err, lock.ErrLost) {
		t.Errorf("%s: want an error that is neither busy nor lost, have %v", what, err)
	}
}

func lockerOn(t *testing.T, store lock.Store, cfg lock.Config) *lock.Locker {
	t.Helper()
	locker, err := lock.New(store, cfg)
	must(t, err)
	t.Cleanup(locker.Close)
	return locker
}

// second is the error of a call of which it alone matters.
func second[T any](_ T, err error) error { return err }
