//go:build unix

package chaos

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the machine was started. All its processes read the
// same clock, which nobody can set, so that what they write down can be compared.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("chaos: no monotonic clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
