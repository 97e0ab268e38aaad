package interop_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/lock"
)

// A shop has a balance, which two at once would get wrong. The lock guards the shop.
type shop struct {
	inside  atomic.Int64
	balance atomic.Int64 // read and written apart, so that a second one loses an update
	fence   atomic.Int64 // the highest of ours so far
}

// visit is the work under the lock; fence is 0 for a peer.
func (s *shop) visit(ctx context.Context, fence int64) error {
	if n := s.inside.Add(1); n != 1 {
		return fmt.Errorf("want one inside, have %d", n)
	}
	defer s.inside.Add(-1)
	before := s.balance.Load()
	if last := s.fence.Load(); fence != 0 {
		if fence <= last {
			return fmt.Errorf("want a fence above %d, have %d", last, fence)
		}
		s.fence.Store(fence)
	}
	_ = sleep.For(ctx, 100*time.Microsecond) // room for a second one
	s.balance.Store(before + 1)
	return nil
}

// TestWorkload has us and all peers contend for one key. Never two hold it at once, no update is
// lost, and everybody gets through.
func TestWorkload(t *testing.T) {
	t.Parallel()
	const (
		fighters = 4 // of each kind
		visits   = 10
		between  = 2 * time.Millisecond // tries
	)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var shop shop
	var all sync.WaitGroup
	fight := func(name string, try func() error, refused func(error) bool) {
		for range fighters {
			all.Go(func() {
				for done := 0; done < visits; {
					switch err := try(); {
					case err == nil:
						done++
					case !refused(err):
						t.Errorf("%s after %d visits: %v", name, done, err)
						return
					}
					_ = sleep.For(ctx, between/2+rand.N(between/2))
				}
			})
		}
	}

	for i, p := range peers {
		s := setUp(t, p.on)
		fight(p.name, func() error {
			h, err := s.Take(ctx, s.key)
			if err != nil {
				return err
			}
			return errors.Join(shop.visit(ctx, 0), h.Release(ctx))
		}, s.IsTaken)
		if i > 0 {
			continue
		}
		for name, opts := range map[string]*lock.Options{
			"siding":         nil,
			"siding, queued": {Wait: lock.Forever},
		} {
			fight(name, func() error {
				lease, err := s.locker.Acquire(ctx, s.res, opts)
				if err != nil {
					return err
				}
				return errors.Join(shop.visit(ctx, lease.Fence()), lease.Release(ctx))
			}, func(err error) bool { return errors.Is(err, lock.ErrBusy) && ctx.Err() == nil })
		}
	}
	all.Wait()
	if want, have := int64((len(peers)+2)*fighters*visits), shop.balance.Load(); have != want {
		t.Errorf("want a balance of %d, have %d", want, have)
	}
}
