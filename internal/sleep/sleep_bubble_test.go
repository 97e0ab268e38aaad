package sleep_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/sleep"
)

func TestFor(t *testing.T) {
	t.Parallel()
	errEnded := errors.New("ended")
	for _, tc := range []struct {
		name   string
		d, end time.Duration // the time asked for, and when the context ends
		want   time.Duration
		err    error
	}{
		{"the time passes", time.Hour, 2 * time.Hour, time.Hour, nil},
		{"no time", 0, time.Hour, 0, nil},
		{"the context ends first", 2 * time.Hour, time.Hour, time.Hour, errEnded},
		{"the context has ended", time.Hour, 0, 0, errEnded},
		{"the context has ended, no time", 0, 0, 0, errEnded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), tc.end, errEnded)
				defer cancel()
				start := time.Now()
				err := sleep.For(ctx, tc.d)
				if have := time.Since(start); have != tc.want || !errors.Is(err, tc.err) {
					t.Errorf("want %v after %v, have %v after %v", tc.err, tc.want, err, have)
				}
			})
		})
	}
}
