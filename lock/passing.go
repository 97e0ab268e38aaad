package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// beginPassing waits until no release is under way. It returns false if the store has answered
// one, else the caller is the one to send the next.
func (t *tenure) beginPassing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.passing != nil {
		over := t.passing
		t.mu.Unlock()
		<-over
		t.mu.Lock()
	}
	if !t.freed {
		t.passing = make(chan struct{})
	}
	return !t.freed
}

// passOn releases the lock in the store and passes it on. It is done even if ctx has ended. A
// call that failed in a way that may pass is tried again in the background, until the TTL is over.
func (t *tenure) passOn(ctx context.Context, line store.Line) (*store.Turn, error) {
	ctx = context.WithoutCancel(ctx)
	turn, err := t.passOnce(ctx, line)
	if err == nil {
		return turn, nil
	}
	t.mu.Lock()
	retry := again(err) && !t.retrying
	t.retrying = t.retrying || retry
	t.mu.Unlock()
	if retry && t.begin() {
		go func() {
			defer t.acquiring.Done()
			t.passOnLater(ctx, line)
		}()
	}
	return nil, fmt.Errorf("lock: release %s: %w", t.resource, err)
}

// passOnce sends one release, after beginPassing.
func (t *tenure) passOnce(ctx context.Context, line store.Line) (*store.Turn, error) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	line.Fence = t.fence
	turn, err := t.store.Release(ctx, t.key, t.token, line)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.freed = err == nil || errors.Is(err, ErrLost)
	close(t.passing)
	t.passing = nil
	return turn, err
}

// again reports whether a release is sent again after err.
func again(err error) bool { return err != nil && !errors.Is(err, ErrLost) && passing(err) }

// passOnLater sends a release again until the store answers, the lock has run out, or the Locker is
// closed. The caller has gone: it can call no waiter, and no waiter can begin.
func (t *tenure) passOnLater(ctx context.Context, line store.Line) {
	const (
		first, longest = 50 * time.Millisecond, 500 * time.Millisecond
		// Whoever tells a waiter of its turn may be cut off just then, as Redis was. So the lock is
		// kept for a shorter time than by another release, and the sweeper passes it on.
		grace = time.Second
	)
	line.ByHand, line.Start, line.Send = false, nil, nil
	line.Grace = min(line.Grace, grace)
	t.mu.Lock()
	end := t.start.Add(t.cfg.TTL)
	t.mu.Unlock()
	for wait := first; ; wait = min(2*wait, longest) {
		if t.restFor(ctx, wait/2+rand.N(wait), nil) != nil || !time.Now().Before(end) {
			return
		}
		if !t.beginPassing() {
			return
		}
		if _, err := t.passOnce(ctx, line); !again(err) {
			return
		}
	}
}
