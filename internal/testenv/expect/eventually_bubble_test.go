package expect_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// fatal is a testing.TB that notes how it was ended.
type fatal struct {
	testing.TB

	message string
}

func (f *fatal) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// An Eventually that gives up in silence would let other tests pass.
func TestEventually(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		expect.Eventually(t, "a third look", func() bool { looks++; return looks == 3 })
		expect.That(t, looks == 3, "want 3 looks, have %d", looks)
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
