package engine

import (
	"testing"
	"time"
	"unsafe"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// The machine sleeps for longer than a lock lasts, which the monotonic clock does not show. No function of package time makes a time
// with such a reading, so the test turns back the seconds in the first word of one.
func TestSuspendedMachine(t *testing.T) {
	t.Parallel()
	now := time.Now()
	until := now.Add(14 * time.Second)
	a := &attempt{}
	a.trusted.Store(&until)
	expect.That(t, a.trusts(now), "want a lock trusted that lasts, have it lost")
	slept := until
	*(*uint64)(unsafe.Pointer(&slept)) -= 20 << 30
	expect.Need(t, slept.Sub(until) == 0 && slept.Round(0).Before(now.Round(0)), "package time keeps its times in another way now")
	a.trusted.Store(&slept)
	expect.That(t, !a.trusts(now), "want no lock trusted after its time, have it")
}
