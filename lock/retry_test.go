package lock_test

import (
	"math"
	"testing"
	"time"

	"github.com/sidingq/siding/lock"
)

// TestFixed has the same delay after each refusal, and does not give up.
func TestFixed(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 1000, math.MaxInt} {
		if delay, again := lock.Fixed(5 * time.Millisecond)(n); !again || delay != 5*time.Millisecond {
			t.Errorf("n %d: want 5ms, have %v, %t", n, delay, again)
		}
	}
}

// TestExponential doubles up to the longest, and leaves out up to a half, by chance.
func TestExponential(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	retry := lock.Exponential(10*ms, 100*ms)
	for n, most := range map[int]time.Duration{
		1: 10 * ms, 2: 20 * ms, 3: 40 * ms, 4: 80 * ms, 5: 100 * ms, 6: 100 * ms, 1000: 100 * ms, math.MaxInt: 100 * ms,
	} {
		seen := make(map[time.Duration]bool)
		for range 200 {
			delay, again := retry(n)
			if !again || delay < most/2 || delay > most {
				t.Fatalf("n %d: want %v to %v, have %v, %t", n, most/2, most, delay, again)
			}
			seen[delay] = true
		}
		if len(seen) < 50 {
			t.Errorf("n %d: want delays by chance, have %d different ones of 200", n, len(seen))
		}
	}
}

// TestOddRetries never give a delay below zero, nor panic.
func TestOddRetries(t *testing.T) {
	t.Parallel()
	const longest = time.Duration(math.MaxInt64)
	for name, retry := range map[string]lock.Retry{
		"first below zero":   lock.Exponential(-time.Second, time.Second),
		"longest below zero": lock.Exponential(time.Second, -time.Second),
		"zero":               lock.Exponential(0, 0),
		"endless":            lock.Exponential(longest, longest),
		"first over longest": lock.Exponential(time.Hour, time.Second),
	} {
		for _, n := range []int{0, 1, 2, 63, 64, math.MaxInt} {
			if delay, again := retry(n); !again || delay < 0 {
				t.Errorf("%s: n %d: want another try, have %v, %t", name, n, delay, again)
			}
		}
	}
}
