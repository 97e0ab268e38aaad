package verify_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/verify"
)

// A double is a testing.TB that notes what is done to it.
type double struct {
	testing.TB
	failed   bool
	skipped  bool
	log      strings.Builder
	cleanups []func()
}

func (*double) Helper()            {}
func (*double) Name() string       { return "TestDouble/a+b_[c]'d#01" }
func (d *double) Failed() bool     { return d.failed }
func (d *double) Cleanup(f func()) { d.cleanups = append(d.cleanups, f) }

func (d *double) Logf(format string, args ...any) { fmt.Fprintf(&d.log, format+"\n", args...) }

func (d *double) Skip(args ...any) {
	d.skipped = true
	fmt.Fprintln(&d.log, args...)
	runtime.Goexit()
}

func (d *double) Fatalf(format string, args ...any) {
	d.failed = true
	d.Logf(format, args...)
	runtime.Goexit()
}

// run calls f with a double, in a goroutine of its own, as the double may end it.
func run(failed bool, f func(testing.TB)) *double {
	d := &double{failed: failed}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, cleanup := range d.cleanups {
				cleanup()
			}
		}()
		f(d)
	}()
	<-done
	return d
}

func TestLong(t *testing.T) {
	for _, tc := range []struct {
		environment string
		skipped     bool
	}{{"", true}, {"0", true}, {"1", false}} {
		t.Run(tc.environment, func(t *testing.T) {
			t.Setenv("SIDING_VERIFY", tc.environment)
			if d := run(false, verify.Long); d.skipped != tc.skipped {
				t.Errorf("want skipped %t, have %t", tc.skipped, d.skipped)
			}
		})
	}
}

func TestSeedIsNewEachTime(t *testing.T) {
	t.Setenv("SIDING_SEED", "")
	if first, second := verify.Seed(t), verify.Seed(t); first == second {
		t.Errorf("want two seeds, have %d twice", first)
	}
}

func TestSeedOfTheEnvironment(t *testing.T) {
	t.Setenv("SIDING_SEED", "18446744073709551615")
	t.Setenv("SIDING_VERIFY", "1")
	var have uint64
	seed := func(tb testing.TB) { tb.Helper(); have = verify.Seed(tb, "HOW_LONG", "NOT_SET") }
	if d := run(false, seed); have != 1<<64-1 || d.log.String() != "seed 18446744073709551615\n" {
		t.Errorf("want the seed and one line, have %d and %q", have, d.log.String())
	}
	t.Setenv("SIDING_ORDERS", "")
	t.Setenv("HOW_LONG", "5 minutes")
	const command = `SIDING_SEED=18446744073709551615 HOW_LONG='5 minutes' SIDING_VERIFY='1' ` +
		`go test -count=1 -run '^TestDouble$/^a\+b_\[c\]'\''d#01$'`
	if d := run(true, seed); !strings.Contains(d.log.String(), command) {
		t.Errorf("want the command %q, have %q", command, d.log.String())
	}
}

func TestSeedThatIsNone(t *testing.T) {
	t.Setenv("SIDING_SEED", "-1")
	d := run(false, func(tb testing.TB) { tb.Helper(); verify.Seed(tb) })
	if want := `SIDING_SEED: want a number from 0 to 2^64-1, have "-1"`; !d.failed || !strings.Contains(d.log.String(), want) {
		t.Errorf("want %q, have failed %t and %q", want, d.failed, d.log.String())
	}
}
