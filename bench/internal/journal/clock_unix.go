//go:build unix

package journal

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the machine was started. All its processes read the same clock, Node's
// process.hrtime too.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("journal: no monotonic clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
