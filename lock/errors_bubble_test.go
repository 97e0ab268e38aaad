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

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// tokenParts are in tokens.
var tokenParts = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-`)

// once fails the test if a line of err's text has the name of a package twice as a prefix, or shows a
// part of a token.
func once(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: want an error", what)
		return
	}
	for line := range strings.Lines(err.Error()) {
		for _, prefix := range []string{"lock: ", "redlock: ", "locktest: "} {
			if strings.Count(" "+line, " "+prefix) > 1 {
				t.Errorf("%s: want %q once, have %q", what, prefix, line)
			}
		}
	}
	if tokenParts.MatchString(fmt.Sprintf("%v %+v %q", err, err, err)) {
		t.Errorf("%s: want no token, have %q", what, err)
	}
}

func cancelled(t *testing.T, cause error) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	return ctx
}

// failing is a test of a call that fails.
type failing struct{ *testing.T }

// held returns a lease of order:1, and lost one whose lock somebody else has by now.
func (c failing) held() *leased {
	l := newLeased(c.T)
	c.Cleanup(func() { abandon(l.Lease) })
	return l
}

func (c failing) lost() *leased {
	l := c.held()
	l.redis.put("siding:another")
	return l
}

func (c failing) try(f *fake, ctx context.Context, opts *lock.Options) error { //nolint:revive // f is what it is called on
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
	inBubbles(t, map[string]func(failing) error{
		"bad name": func(c failing) error {
			_, err := lockerOn(c.T, newFake()).Acquire(c.Context(), "a\n", nil)
			return err
		},
		"bad option":     func(c failing) error { return c.try(newFake(), c.Context(), &lock.Options{TTL: 1}) },
		"bad config":     func(failing) error { return lock.Config{TTL: 1}.Validate() },
		"store":          func(c failing) error { return c.try(newFake().with(locktest.Refuse), c.Context(), nil) },
		"store, waiting": func(c failing) error { return c.try(newFake().with(locktest.Refuse), c.Context(), wait) },
		"no answer":      func(c failing) error { return c.try(newFake().with(locktest.BlackHole), c.Context(), wait) },
		"too late":       func(c failing) error { return c.try(newFake().with(locktest.Slow(time.Minute)), c.Context(), nil) },
		"busy":           func(c failing) error { return c.try(c.lost().redis, c.Context(), nil) },
		"busy, waiting":  func(c failing) error { return c.try(c.lost().redis, c.Context(), wait) },
		"closed": func(c failing) error {
			l := c.held()
			l.locker.Close()
			return heldUntilEnd(l.locker, c.Context(), nil)
		},
		"ended": func(c failing) error { return c.try(newFake(), cancelled(c.T, errors.New("no more")), nil) },
		"ended by a loss": func(c failing) error {
			l := c.lost()
			work := l.Context(c.Context())
			_ = l.Renew(c.Context())
			_, err := l.locker.Acquire(work, "order:2", nil)
			return err
		},
		"ended by a loss, waiting": func(c failing) error {
			l := c.lost()
			work := l.Context(c.Context())
			_, err := lockerOn(c.T, l.redis.Store).Acquire(work, "order:1", &lock.Options{Wait: lock.Forever, Holder: "again", Retry: lock.Fixed(time.Second)})
			return err
		},
		"re-entry": func(c failing) error { l := c.held(); return heldUntilEnd(l.locker, l.Context(c.Context()), nil) },
		"again after a loss": func(c failing) error {
			l := c.lost()
			work := l.Context(c.Context())
			_ = l.Renew(c.Context())
			return heldUntilEnd(l.locker, context.WithoutCancel(work), nil)
		},
		"the work of a lost lock": func(c failing) error {
			l := c.lost()
			work := l.Context(c.Context())
			<-work.Done()
			return context.Cause(work)
		},
		"held for too long": func(c failing) error {
			return heldUntilEnd(lockerOn(c.T, newFake().Store), c.Context(), &lock.Options{MaxHold: time.Second})
		},
		"renew":            func(c failing) error { l := c.held(); l.redis.Set(locktest.Refuse); return l.Renew(c.Context()) },
		"renew a lost one": func(c failing) error { return c.lost().Renew(c.Context()) },
		"renew after a release": func(c failing) error {
			l := c.held()
			return errors.Join(l.Release(c.Context()), l.Renew(c.Context()))
		},
		"renew too late":     func(c failing) error { l := c.held(); l.redis.Set(locktest.BlackHole); return l.Renew(c.Context()) },
		"release":            func(c failing) error { l := c.held(); l.redis.Set(locktest.Refuse); return l.Release(c.Context()) },
		"release a lost one": func(c failing) error { return c.lost().Release(c.Context()) },
		"release one that ended": func(c failing) error {
			l := c.held()
			abandon(l.Lease)
			time.Sleep(time.Minute)
			l.redis.Set(locktest.Refuse)
			return l.Release(c.Context())
		},
	}, func(t *testing.T, fail func(failing) error) {
		t.Helper()
		once(t, "error", fail(failing{t}))
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
			if err := call(); fmt.Sprint(err) != want {
				t.Errorf("%s: have %v", name, err)
			}
		}
		if sent := l.redis.Sent(); len(sent) != 1 {
			t.Errorf("want only the first lock asked for, have %+v", sent)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
