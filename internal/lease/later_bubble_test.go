package lease_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
)

// A throttled store has one lock, whose rates allow the next start after the first of laters.
type throttled struct {
	store.Store

	start  time.Time
	laters []time.Duration
	swept  []time.Duration // when, since the start
}

func (s *throttled) Sweep(context.Context, []store.Ruled, bool, store.Handoff) ([]store.Swept, error) {
	s.swept = append(s.swept, time.Since(s.start))
	found := []store.Swept{{Waiting: true}}
	if len(s.laters) > 0 {
		found[0].Later, s.laters = s.laters[0], s.laters[1:]
	}
	return found, nil
}

func (s *throttled) Missing(context.Context, []store.Queued, bool, time.Duration) ([]bool, error) {
	return nil, nil
}

// A lock is swept at the time at which its rates allow the next start. If that time comes closer, the
// earlier one counts.
func TestSweepAtTheTimeOfTheNextStart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		laters []time.Duration // of the sweeps that follow, two of them at once
		want   []time.Duration
	}{
		"no rate":                {nil, []time.Duration{0, 0}},
		"one after the other":    {[]time.Duration{0, time.Second, time.Minute}, []time.Duration{0, 0, time.Second, time.Minute + time.Second}},
		"the same time twice":    {[]time.Duration{time.Second, time.Second}, []time.Duration{0, 0, time.Second}},
		"the rates were raised":  {[]time.Duration{time.Hour, time.Second}, []time.Duration{0, 0, time.Second}},
		"the rates were lowered": {[]time.Duration{time.Second, time.Hour}, []time.Duration{0, 0, time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &throttled{start: time.Now(), laters: tt.laters}
				c, err := lease.New(s, lease.Config{})
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if _, err := c.Sweep(t.Context(), []string{"lock:a"}, false); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				c.Close()
				if !slices.Equal(s.swept, tt.want) {
					t.Errorf("want sweeps at %v, have %v", tt.want, s.swept)
				}
			})
		})
	}
}

// After Close nothing is swept any more.
func TestCloseEndsLaterSweeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &throttled{start: time.Now(), laters: []time.Duration{time.Second}}
		c, err := lease.New(s, lease.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Sweep(t.Context(), []string{"lock:a"}, false); err != nil {
			t.Fatal(err)
		}
		c.Close()
		time.Sleep(time.Minute)
		if len(s.swept) != 1 {
			t.Errorf("want one sweep, have them at %v", s.swept)
		}
	})
}
