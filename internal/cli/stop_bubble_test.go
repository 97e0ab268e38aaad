package cli

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// Signals that come together are one request; one that comes later is another.
func TestRequests(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		after []time.Duration // when signals come, after the first
		want  bool            // whether the process was asked again
	}{
		"one":             {nil, false},
		"two of timeout":  {[]time.Duration{0}, false},
		"three together":  {[]time.Duration{0, 100 * time.Millisecond}, false},
		"a second one":    {[]time.Duration{oneRequest}, true},
		"twice two":       {[]time.Duration{0, 3 * time.Second, 3 * time.Second}, true},
		"an hour later":   {[]time.Duration{time.Hour}, true},
		"just not enough": {[]time.Duration{oneRequest - 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancelCause(t.Context())
				signals, again := make(chan os.Signal), 0
				go heed(signals, end, func(os.Signal) { again++ })
				synctest.Wait()
				expect.That(t, ctx.Err() == nil, "want no end before a signal")
				signals <- syscall.SIGTERM
				synctest.Wait()
				if have := context.Cause(ctx); have == nil || have.Error() != "received terminated" {
					t.Errorf("want the signal as the cause, have %v", have)
				}
				began := time.Now()
				for _, after := range tt.after {
					time.Sleep(after - time.Since(began))
					select {
					case signals <- syscall.SIGTERM:
					default: // nobody waits for more
					}
					synctest.Wait()
				}
				if want := map[bool]int{true: 1}[tt.want]; again != want {
					t.Errorf("want %d calls, have %d", want, again)
				}
				close(signals)
			})
		})
	}
}
