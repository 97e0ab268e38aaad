package expect_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
)

var (
	errEnded = errors.New("ended")
	errLast  = errors.New("last")
)

func TestUntil(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		limit     time.Duration // of the context, 0 for none
		true      time.Duration // when the condition becomes so
		from, to  time.Duration // when Until returns
		succeeded bool
	}{
		{"at once", 0, 0, 0, 0, true},
		{"soon", 0, 5 * time.Millisecond, 5 * time.Millisecond, 8 * time.Millisecond, true},
		{"late", 0, 30 * time.Second, 30 * time.Second, 30*time.Second + 16*time.Millisecond, true},
		{"never", 0, time.Hour, time.Minute, time.Minute, false},
		{"after the context", time.Second, time.Hour, time.Second, time.Second, false},
		{"in a context that lasts", time.Hour, 2 * time.Minute, 2 * time.Minute, 2*time.Minute + 16*time.Millisecond, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tc.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeoutCause(ctx, tc.limit, errEnded)
					defer cancel()
				}
				start := time.Now()
				err := expect.Until(ctx, func() error {
					if time.Since(start) >= tc.true {
						return nil
					}
					return errLast
				})
				if took := time.Since(start); took < tc.from || took > tc.to || (err == nil) != tc.succeeded {
					t.Errorf("want success (%t) after %v to %v, have %v after %v", tc.succeeded, tc.from, tc.to, err, took)
				}
				if !tc.succeeded && (!errors.Is(err, errLast) || errors.Is(err, errEnded) != (tc.limit > 0)) {
					t.Errorf("want the end of the context and the last error, have %v", err)
				}
			})
		})
	}
}

// Until returns an error from before the end of the context. A check that the context cuts off says only that
// it has ended.
func TestUntilKeepsTheLastError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errEnded)
		defer cancel()
		checks := 0
		err := expect.Until(ctx, func() error {
			if checks++; checks == 1 {
				return errLast
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, errEnded) || !errors.Is(err, errLast) {
			t.Errorf("want %q and %q, have %q", errEnded, errLast, err)
		}
	})
}

// fatal is a testing.TB that notes how it was ended.
type fatal struct {
	testing.TB

	message string
}

func (f *fatal) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestEventually(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		expect.Eventually(t, "a third look", func() bool { looks++; return looks == 3 })
		if looks != 3 {
			t.Errorf("want 3 looks, have %d", looks)
		}
		f := &fatal{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			expect.Eventually(f, "a miracle", func() bool { return false })
		}()
		<-done
		if want := "want a miracle: not within 1m0s: not yet"; f.message != want {
			t.Errorf("want %q, have %q", want, f.message)
		}
	})
}
