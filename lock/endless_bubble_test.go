package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// An endless store has a lock that somebody else holds, and whose key has lost its TTL.
type endless struct {
	*locktest.Memory

	asked atomic.Int32
}

func (e *endless) Acquire(context.Context, store.Request) (store.Result, error) {
	e.asked.Add(1)
	return store.Result{Holder: "siding:1:somebody", Left: -time.Millisecond, Position: 1}, nil
}

// The first waiter asks for such a lock about once a second, and not each millisecond.
func TestEndlessLockIsNotPolledHard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &endless{Memory: locktest.NewMemory()}
		_, err := lockerOn(t, e).Acquire(t.Context(), "order:1", &lock.Options{Wait: 10 * time.Second})
		if !errors.Is(err, lock.ErrBusy) {
			t.Errorf("want ErrBusy, have %v", err)
		}
		if have := e.asked.Load(); have < 10 || have > 30 {
			t.Errorf("want it asked for 10 to 30 times, have %d", have)
		}
	})
}
