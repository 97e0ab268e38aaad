package lock_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// tokenParts are in tokens.
var tokenParts = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-`)

// once fails the test if a line of err's text has the name of a package twice as a prefix, or shows a
// part of a token.
func once(tb testing.TB, what string, err error) {
	tb.Helper()
	if err == nil {
		tb.Errorf("%s: want an error", what)
		return
	}
	for line := range strings.Lines(err.Error()) {
		for _, prefix := range []string{"lock: ", "redlock: ", "locktest: "} {
			expect.That(tb, strings.Count(" "+line, " "+prefix) <= 1, "%s: want %q once, have %q", what, prefix, line)
		}
	}
	expect.That(tb, !tokenParts.MatchString(fmt.Sprintf("%v %+v %q", err, err, err)), "%s: want no token, have %q", what, err)
}

func cancelled(tb testing.TB, cause error) context.Context {
	tb.Helper()
	ctx, cancel := context.WithCancelCause(tb.Context())
	cancel(cause)
	return ctx
}

// held returns a lease of order:1, and lost one whose lock somebody else has by now.
func (c bubble) held() *leased {
	l := newLeased(c.T)
	c.Cleanup(func() { abandon(l.Lease) })
	return l
}

func (c bubble) lost() *leased {
	l := c.held()
	l.redis.put("siding:another")
	return l
}

func (c bubble) try(f *fake, ctx context.Context, opts *lock.Options) error { //nolint:revive // f is what it is called on
	held, err := lockerOn(c.T, f.Store).Acquire(ctx, "order:1", opts)
	if err == nil {
		c.Cleanup(func() { abandon(held) })
	}
	return err
}

// heldUntilEnd works under the lock until the end of the context.
func heldUntilEnd(locker *lock.Locker, ctx context.Context, opts *lock.Options) error { //nolint:revive // likewise
	return locker.Do(ctx, "order:1", opts, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
}

// Errors contain one another. Each text has the name of the package once, and shows no token.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	wait := &lock.Options{Wait: time.Second}
	inBubbles(t, map[string]func(bubble) error{
		"bad name": func(c bubble) error {
			_, err := lockerOn(c.T, newFake()).Acquire(c.Context(), "a\n", nil)
			return err
		},
		"bad option":     func(c bubble) error { return c.try(newFake(), c.Context(), &lock.Options{TTL: 1}) },
		"bad config":     func(bubble) error { return lock.Config{TTL: 1}.Validate() },
		"store":          func(c bubble) error { return c.try(newFake().with(locktest.Refuse), c.Context(), nil) },
		"store, waiting": func(c bubble) error { return c.try(newFake().with(locktest.Refuse), c.Context(), wait) },
		"no answer":      func(c bubble) error { return c.try(newFake().with(locktest.BlackHole), c.Context(), wait) },
		"too late":       func(c bubble) error { return c.try(newFake().with(locktest.Slow(time.Minute)), c.Context(), nil) },
		"busy":           func(c bubble) error { return c.try(c.lost().redis, c.Context(), nil) },
		"busy, waiting":  func(c bubble) error { return c.try(c.lost().redis, c.Context(), wait) },
		"closed": func(c bubble) error {
			l := c.held()
			l.locker.Close()
			return heldUntilEnd(l.locker, c.Context(), nil)
		},
		"ended": func(c bubble) error { return c.try(newFake(), cancelled(c.T, errors.New("no more")), nil) },
		"ended by a loss": func(c bubble) error {
			l := c.lost()
			work := l.Context(c.Context())
			_ = l.Renew(c.Context())
			_, err := l.locker.Acquire(work, "order:2", nil)
			return err
		},
		"ended by a loss, waiting": func(c bubble) error {
			l := c.lost()
			work := l.Context(c.Context())
			_, err := lockerOn(c.T, l.redis.Store).Acquire(work, "order:1", &lock.Options{Wait: lock.Forever, Holder: "again", Retry: lock.Fixed(time.Second)})
			return err
		},
		"re-entry": func(c bubble) error { l := c.held(); return heldUntilEnd(l.locker, l.Context(c.Context()), nil) },
		"again after a loss": func(c bubble) error {
			l := c.lost()
			work := l.Context(c.Context())
			_ = l.Renew(c.Context())
			return heldUntilEnd(l.locker, context.WithoutCancel(work), nil)
		},
		"the work of a lost lock": func(c bubble) error {
			l := c.lost()
			work := l.Context(c.Context())
			<-work.Done()
			return context.Cause(work)
		},
		"held for too long": func(c bubble) error {
			return heldUntilEnd(lockerOn(c.T, newFake().Store), c.Context(), &lock.Options{MaxHold: time.Second})
		},
		"renew":            func(c bubble) error { l := c.held(); l.redis.Set(locktest.Refuse); return l.Renew(c.Context()) },
		"renew a lost one": func(c bubble) error { return c.lost().Renew(c.Context()) },
		"renew after a release": func(c bubble) error {
			l := c.held()
			return errors.Join(l.Release(c.Context()), l.Renew(c.Context()))
		},
		"renew too late":     func(c bubble) error { l := c.held(); l.redis.Set(locktest.BlackHole); return l.Renew(c.Context()) },
		"release":            func(c bubble) error { l := c.held(); l.redis.Set(locktest.Refuse); return l.Release(c.Context()) },
		"release a lost one": func(c bubble) error { return c.lost().Release(c.Context()) },
		"release one that ended": func(c bubble) error {
			l := c.held()
			abandon(l.Lease)
			time.Sleep(time.Minute)
			l.redis.Set(locktest.Refuse)
			return l.Release(c.Context())
		},
	}, func(t bubble, fail func(bubble) error) {
		once(t, "error", fail(t))
	})
}

// What is missing is named by the first call that can name it. Nothing panics, and no lock is taken.
func TestMissingArguments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		var none context.Context
		nothing := func(context.Context) error { return nil }
		for name, call := range map[string]func() error{
			"lock: do order:2: fn: want a function, have nil: do": func() error { return l.locker.Do(t.Context(), "order:2", nil, nil) },
			"lock: ctx: want a context, have nil: do":             func() error { return l.locker.Do(none, "order:2", nil, nothing) },
			"lock: ctx: want a context, have nil: acquire":        func() error { _, err := l.locker.Acquire(none, "order:2", nil); return err },
			"lock: ctx: want a context, have nil: renew":          func() error { return l.Renew(none) },
			"lock: ctx: want a context, have nil: release":        func() error { return l.Release(none) },
		} {
			want := name[:strings.LastIndex(name, ": ")]
			expect.Equal(t, name, fmt.Sprint(call()), want)
		}
		expect.Equal(t, "calls, as only the first lock was asked for", len(l.redis.Sent()), 1)
		expect.OK(t, l.Release(t.Context()))
	})
}
