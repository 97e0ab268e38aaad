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
	slept := turnedBack(until)
	expect.Need(t, slept.Sub(until) == 0 && slept.Round(0).Before(now.Round(0)), "package time keeps its times in another way now")
	a.trusted.Store(&slept)
	expect.That(t, !a.trusts(now), "want no lock trusted after its time, have it")
}

// turnedBack returns a time of before a sleep of the machine.
func turnedBack(at time.Time) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) -= 20 << 30
	return at
}

// The loop looks at the attempts when the machine wakes up. What may still go on is looked at when its time is over, and not each
// time until then.
func TestLoopAfterASuspend(t *testing.T) {
	t.Parallel()
	l := newLoop(loopConfig(t, nil), script{})
	now := time.Now()
	until, overruns := turnedBack(now.Add(14*time.Second)), turnedBack(now.Add(15*time.Second))
	locked, free := &attempt{Taken: takenTask("1", "lock:a", 1), overrunsAt: overruns}, &attempt{Taken: takenTask("2", "", 0), overrunsAt: overruns}
	for _, a := range []*attempt{locked, free} {
		a.trusted.Store(&until)
		l.attempts[a.Attempt] = a
	}
	l.lookAt = until
	l.expire(now)
	expect.Equal(t, "whether the attempts are lost", [2]bool{locked.lost.Load(), free.lost.Load()}, [2]bool{true, false})
	expect.Equal(t, "attempts", len(l.attempts), 2)
	left := l.lookAt.Round(0).Sub(now.Round(0))
	expect.That(t, left == 15*time.Second, "want the next look in 15 s, have it in %v", left)
}
